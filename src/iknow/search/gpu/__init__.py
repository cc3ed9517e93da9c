"""Search with torch; on GPUs, with Triton kernels."""
