"""What numba compiles for search."""
