"""Selection: validation evidence → neighborhoods. Works on evidence, never on a model."""

from iknow.selection.choice import Selection, select
from iknow.selection.matching import match_k, match_threshold

__all__ = ["Selection", "match_k", "match_threshold", "select"]
