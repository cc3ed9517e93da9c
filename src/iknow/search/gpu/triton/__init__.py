"""Kernels for `torch.by_triton`. All of them also run in Triton's interpreter."""
