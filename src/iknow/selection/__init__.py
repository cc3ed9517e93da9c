"""Selection: validation evidence → neighborhoods. Works on evidence, never on a model."""

from iknow.rules.nearest import match_k
from iknow.selection.goal import Goal
from iknow.selection.guarantee import certify
from iknow.selection.method import choose, select
from iknow.selection.selection import Certificate, Selection
from iknow.selection.validation import Validation, check_unseen, match_threshold
from iknow.selection.watch import Watch, make_watch

__all__ = [
    "Certificate", "Goal", "Selection", "Validation", "Watch", "certify", "check_unseen",
    "choose", "make_watch", "match_k", "match_threshold", "select",
]  # fmt: skip
