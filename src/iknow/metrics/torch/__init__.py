"""How far a torch module can move its activations, proven operation by operation."""
