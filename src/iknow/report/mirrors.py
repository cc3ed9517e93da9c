"""Mirrors: rules that the page's JavaScript knows too, and what stands in for the others.

The page moves a rule by its mirror in static/rules. A user's own rule has none: the page shows what
Python found for it, and offers no slider.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Ints
from iknow.core.evidence import Evidence
from iknow.core.margin import find_margins
from iknow.core.quorum import weigh
from iknow.core.robustness import Movement, find_robust_radii
from iknow.core.rule import NO_REACH, Rule, promise_of
from iknow.core.support import find_support
from iknow.core.text import name

MIRRORS = {path.stem for path in (Path(__file__).parent / "static" / "rules").glob("*.js")}


def has_mirror(rule: type[Rule]) -> bool:
    """Whether a rule of iknow has its file in static/rules; a subclass elsewhere has none."""
    package, _, file = rule.__module__.rpartition(".")
    return package == "iknow.rules" and file in MIRRORS


def describe_setting(rule: Rule) -> dict[str, Any]:
    """A rule and its parameters for static/rules/registry.js."""
    setting: dict[str, Any] = {"rule": type(rule).__name__}
    if not has_mirror(type(rule)):
        return setting | {"text": name(repr(rule)), "quorum": rule.quorum}
    return setting | vars(rule)


def find_fixed(
    evidence: Evidence, rule: Rule, belief: Ints, movement: Movement, codes: Ints
) -> dict[str, NDArray[Any]]:
    """What the page cannot find itself: the columns that static/rules/fixed.js reads.

    codes: the classes in the page's columns, of shape (n, width); -1 for none.
    """
    samples, weighed = np.arange(len(evidence))[:, None], weigh(evidence, rule.quorum, belief)
    reach = rule.reach(weighed)
    reach = np.broadcast_to(reach.reshape(len(evidence), -1), evidence.class_distances.shape)
    limit = promise_of(rule, "empty_beyond")  # as for margins: inf is no limit
    shown = np.where(reach == NO_REACH, NO_REACH if np.isinf(limit) else limit, reach)
    return {
        "within": (find_support(weighed, rule, belief)[samples, codes] & (codes >= 0)).astype(
            np.uint8
        ),
        "reach": shown[samples, codes].astype(np.float64),
        "none": (reach == NO_REACH).all(axis=1).astype(np.uint8),
        "margin": find_margins(weighed, rule, belief).astype(np.float64),
        "robust": find_robust_radii({"": evidence}, {"": rule}, belief, {"": movement}),
    }
