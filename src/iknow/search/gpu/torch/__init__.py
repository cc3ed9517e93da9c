"""Search by torch."""
