"""Selection: validation evidence → neighborhoods. Works on evidence, never on a model."""

from iknow.rules.nearest import match_k
from iknow.selection.copies import check_unseen
from iknow.selection.coverage import select, tunes_for_coverage
from iknow.selection.goal import Goal
from iknow.selection.goals import choose
from iknow.selection.guarantee import certify
from iknow.selection.matching import match_coverage, match_threshold
from iknow.selection.per_class import select_per_class
from iknow.selection.selection import Certificate, Curve, Selection
from iknow.selection.watch import Watch, make_watch

__all__ = [
    "Certificate",
    "Curve",
    "Goal",
    "Selection",
    "Watch",
    "certify",
    "check_unseen",
    "choose",
    "make_watch",
    "match_coverage",
    "match_k",
    "match_threshold",
    "select",
    "select_per_class",
    "tunes_for_coverage",
]
