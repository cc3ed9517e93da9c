"""Searching with Ray: the rows of a layer in several processes, on one machine or many."""

from iknow.errors import MissingExtraError
from iknow.locking import unforked

try:
    with unforked():
        from iknow.search.ray.index import RayIndex
except ImportError as error:
    if error.name != "ray":
        raise
    raise MissingExtraError("searching with Ray", "ray") from error

__all__ = ["RayIndex"]
