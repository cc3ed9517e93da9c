"""The audit trail: what was answered, when, to whom, in a chain that shows any change."""
