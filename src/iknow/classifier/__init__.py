"""The classifier and what only it needs: a thin shell around the other packages."""
