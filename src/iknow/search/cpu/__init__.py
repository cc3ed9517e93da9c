"""Search on CPUs: by matrix products and by cells of cells, compiled where numba is."""
