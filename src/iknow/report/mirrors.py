"""Mirrors: rules that the page's JavaScript knows too, and what it is told of those it does not.

The page moves a rule by its mirror in static/rules. A rule of a user's own has none, unless its
class brings one: `javascript`, the text of an ES module that exports the mirror by the name of the
class. Without it, the page shows what Python found, and has no slider for that layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Ints
from iknow.core.evidence import Evidence
from iknow.core.margin import find_margins
from iknow.core.movement import Movement
from iknow.core.neighborhood import NO_REACH, Neighborhood, neighborhood_to_dict
from iknow.core.robustness import find_robust_radii
from iknow.core.support import find_support
from iknow.core.text import name

MIRRORED = ("Ball", "Nearest", "BallElseNearest", "BallWithNearest", "RelativeBall")
"""The rules in static/rules/registry.js."""


def has_mirror(rule: Neighborhood) -> bool:
    """Whether the page can move a rule: one of ours, or one that brings its own JavaScript."""
    kind = type(rule)
    ours = kind.__module__.startswith("iknow.") and kind.__name__ in MIRRORED
    return ours or getattr(rule, "javascript", None) is not None


def own_mirrors(rules: Iterable[Neighborhood]) -> dict[str, str]:
    """The modules that rules bring, by path; "rules/own.js" lists them."""
    brought = {type(rule).__name__: rule.javascript for rule in rules if hasattr(rule, "javascript")}
    texts = {kind: text for kind, text in sorted(brought.items()) if text is not None}
    lines = [f'import {{ {kind} }} from "./own/{kind}.js";' for kind in texts]
    listing = "\n".join([*lines, f"export const OWN = {{ {', '.join(texts)} }};"])
    return {f"rules/own/{kind}.js": text for kind, text in texts.items()} | {"rules/own.js": listing}


def describe_setting(rule: Neighborhood, classes: Ints | None = None) -> dict[str, Any]:
    """A rule and its parameters as static/rules/registry.js reads them.

    classes: codes of the classes that the page names; all unless given.
    """
    setting: dict[str, Any] = {"text": name(repr(rule))}
    if not has_mirror(rule):
        return setting
    for key, value in neighborhood_to_dict(rule).items():
        chosen = isinstance(value, (tuple, list)) and classes is not None
        setting[key] = [value[code] for code in classes.tolist()] if chosen else value
    return setting


def bytes_of_fixed(rule: Neighborhood, width: int) -> int:
    """What `find_fixed` adds to the page for each sample, before compression."""
    return 0 if has_mirror(rule) else 9 * width + 17


def find_fixed(
    evidence: Evidence, rule: Neighborhood, belief: Ints, movement: Movement, codes: Ints
) -> dict[str, NDArray[Any]]:
    """What the page cannot find itself: the columns that static/rules/fixed.js reads.

    codes: the classes in the page's columns, of shape (n, width), -1 for none.
    """
    samples = np.arange(len(evidence))[:, None]
    reach = rule.reach(evidence)
    reach = np.broadcast_to(reach if reach.ndim == 2 else reach[:, None], (len(evidence), evidence.n_classes))
    limits = np.where(reach == NO_REACH, rule.empty_beyond, reach)  # as a margin has it
    layer = "layer"
    robust = find_robust_radii({layer: evidence}, {layer: rule}, belief, {layer: movement})
    return {
        "within": (find_support(evidence, rule)[samples, codes] & (codes >= 0)).astype(np.uint8),
        "reach": limits[samples, codes].astype(np.float64),
        "none": (reach == NO_REACH).all(axis=1).astype(np.uint8),
        "margin": find_margins(evidence, rule, belief).astype(np.float64),
        "robust": robust,
    }
