"""Models: inputs → belief, scores and activations. One file per framework."""
