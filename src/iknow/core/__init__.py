"""The algebra: evidence → support → justification → assertion. Numpy only, pure functions."""
