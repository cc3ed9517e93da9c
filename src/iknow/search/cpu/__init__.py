"""Search on CPUs: by matrix products and by a tree of cells, compiled if numba is installed."""
