"""Search: activations → evidence. One file per way of searching, one contract for all."""

from iknow.search.layer import warm_up

__all__ = ["warm_up"]
