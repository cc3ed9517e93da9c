"""The largest coverage, exactly: the deepest point of boxes, with proof."""
