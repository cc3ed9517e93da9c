"""Search: activations → evidence. One file per way of searching, one contract for all."""
