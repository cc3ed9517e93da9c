"""Search by torch, on GPUs by Triton kernels."""
