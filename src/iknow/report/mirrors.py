"""Mirrors: rules that the page's JavaScript knows too, and what stands in for the others.

The page moves a rule by its mirror in static/rules. A rule of a user's own has none there: for it
the page holds what Python found, shows that, and offers no slider.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Ints
from iknow.core.evidence import Evidence
from iknow.core.margin import find_margins
from iknow.core.movement import Movement
from iknow.core.neighborhood import NO_REACH, Neighborhood
from iknow.core.robustness import find_robust_radii
from iknow.core.support import find_support
from iknow.core.text import name

MIRRORED = ("Ball", "Nearest", "BallElseNearest", "BallWithNearest", "RelativeBall")
"""The rules in static/rules/registry.js."""


def has_mirror(rule: Neighborhood) -> bool:
    """Whether the page can move a rule: a subclass may do anything, so the class itself counts."""
    return type(rule).__module__.startswith("iknow.") and type(rule).__name__ in MIRRORED


def describe_setting(rule: Neighborhood, classes: Ints | None = None) -> dict[str, Any]:
    """A rule and its parameters as static/rules/registry.js reads them.

    classes: codes of the classes that the page names; all unless given.
    """
    kind = type(rule).__name__
    if not has_mirror(rule):
        return {"rule": kind, "text": name(repr(rule))}
    setting = {"rule": kind, **vars(rule)}
    if classes is not None and isinstance(setting.get("radius"), tuple):
        setting["radius"] = [setting["radius"][code] for code in classes.tolist()]
    return setting


def find_fixed(
    evidence: Evidence, rule: Neighborhood, belief: Ints, movement: Movement, codes: Ints
) -> dict[str, NDArray[Any]]:
    """What the page cannot find itself: the columns that static/rules/fixed.js reads.

    codes: the classes in the page's columns, of shape (n, width), -1 for none.
    """
    samples = np.arange(len(evidence))[:, None]
    reach = rule.reach(evidence)
    reach = np.broadcast_to(reach.reshape(len(evidence), -1), evidence.class_distances.shape)
    shown = np.where(reach == NO_REACH, rule.empty_beyond, reach)  # as for margins
    return {
        "within": (find_support(evidence, rule)[samples, codes] & (codes >= 0)).astype(np.uint8),
        "reach": shown[samples, codes].astype(np.float64),
        "none": (reach == NO_REACH).all(axis=1).astype(np.uint8),
        "margin": find_margins(evidence, rule, belief).astype(np.float64),
        "robust": find_robust_radii({"": evidence}, {"": rule}, belief, {"": movement}),
    }
