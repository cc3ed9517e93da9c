"""Columns: the evidence as the page's algebra reads it (static/algebra.js says why it is enough).

Of each layer and sample: the distance to the nearest training sample of the believed class, and of
the two nearest other classes, which training samples these are, and how many neighbours are nearer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion
from iknow.core.assessment import Assessment
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Ball, Neighborhood, neighborhood_to_dict

MOST_NEIGHBORS = 30
"""So many neighbours are in the page, or as many as a rule asks for; they are most of its size."""

Columns = dict[str, NDArray[Any]]


def count_neighbors(evidence: Evidence, neighborhood: Neighborhood) -> int:
    """How many neighbours of each sample the page holds, and so the largest k it can show."""
    return max(neighborhood.n_neighbors, min(evidence.n_neighbors, MOST_NEIGHBORS))


def count_others(evidence: Evidence, neighborhood: Neighborhood) -> int:
    """How many other classes: two, or all of them where each has a radius of its own."""
    others = evidence.n_classes - 1
    return others if has_radius_per_class(neighborhood) else min(others, 2)


def has_radius_per_class(neighborhood: Neighborhood) -> bool:
    return isinstance(neighborhood, Ball) and isinstance(neighborhood.radius, tuple)


def bytes_per_sample(assessment: Assessment) -> int:
    """What one sample adds to the page, before compression and base64."""
    size = 20
    for layer, evidence in assessment.evidence.items():
        rule = assessment.neighborhoods[layer]
        size += (1 + count_others(evidence, rule)) * (8 + 2 + 8 + 2)
        size += 4 * count_neighbors(evidence, rule)
    return size


def layer_columns(evidence: Evidence, neighborhood: Neighborhood, belief: Ints) -> Columns:
    """The columns of one layer. belief: class codes of shape (n,).

    distances, codes, rows and ranks have shape (n, 1 + others), the believed class first, then
    others by distance; neighbors has shape (n, k).
    """
    samples = np.arange(len(evidence))[:, None]
    others = evidence.class_distances.copy()
    others[samples[:, 0], belief] = np.nan  # sorted to the end, behind inf
    order = np.argsort(others, axis=1, kind="stable")[:, : count_others(evidence, neighborhood)]
    codes = np.hstack([belief[:, None], order])
    distances = evidence.class_distances[samples, codes]
    neighbors = evidence.neighbor_distances[:, : count_neighbors(evidence, neighborhood)]
    return {
        "distances": distances.astype(np.float64),
        "codes": codes.astype(np.uint16),
        # Users number training samples as they like, say by the ids of a database.
        "rows": evidence.exemplars[samples, codes].astype(np.int64),
        "ranks": _ranks(distances, neighbors),
        "neighbors": neighbors.astype(np.float32),
    }


def _ranks(distances: Floats, neighbors: Floats) -> NDArray[Any]:
    """1 + the number of neighbours that are nearer, of the shape of `distances`."""
    n_neighbors = neighbors.shape[1]
    ranks = np.ones(distances.shape, np.uint8 if n_neighbors < 255 else np.uint16)
    for k in range(n_neighbors):
        ranks += neighbors[:, k, None] < distances
    return ranks


def sample_columns(
    assessment: Assessment, rows: Ints, counted: Bools, truth: Ints | None
) -> Columns:
    """What the page holds of each sample besides its evidence.

    rows: which samples, of shape (m,). counted: mask of shape (m,) of those that figures count.
    truth: codes of all true labels, of shape (n,).
    """
    known = assessment.assertion[rows] == Assertion.IK
    stability = assessment.stability
    columns: Columns = {
        "index": rows.astype(np.int32),
        "counted": counted.astype(np.uint8),
        "belief": assessment.belief_codes[rows].astype(np.uint16),
        "invalid": assessment.invalid[rows].astype(np.uint8),
        "uncertified": (assessment.never_known & ~assessment.invalid)[rows].astype(np.uint8),
        "score": assessment.scores[rows, assessment.belief_codes[rows]].astype(np.float32),
        "removals": np.where(known, stability.at_least[rows], 0).astype(np.int32),
        "removalsExact": stability.exact[rows].astype(np.uint8),
    }
    if truth is not None:
        columns["truth"] = truth[rows].astype(np.uint16)
    return columns


def describe_setting(neighborhood: Neighborhood) -> dict[str, Any]:
    """A rule and its parameters as the page's algebra reads them."""
    record = neighborhood_to_dict(neighborhood)
    radii = record["radius"] if has_radius_per_class(neighborhood) else None
    setting: dict[str, Any] = {"rule": record["rule"], "radii": radii}
    setting |= {name: record.get(name) for name in ("radius", "k", "ratio")}
    return setting if radii is None else setting | {"radius": None}


def describe_layers(assessment: Assessment) -> list[dict[str, Any]]:
    """Name, setting and sizes of each layer."""
    return [
        {
            "name": str(name),
            "setting": describe_setting(assessment.neighborhoods[name]),
            "width": 1 + count_others(evidence, assessment.neighborhoods[name]),
            "nNeighbors": count_neighbors(evidence, assessment.neighborhoods[name]),
            "nHeld": evidence.n_neighbors,
            "lipschitz": float(assessment.lipschitz.get(name, np.inf)),
        }
        for name, evidence in assessment.evidence.items()
    ]


def gather_columns(
    assessment: Assessment, rows: Ints, counted: Bools, truth: Ints | None
) -> Mapping[str, NDArray[Any]]:
    """All columns of the chosen samples; those of the layer in place i are named "i.distances"."""
    columns = sample_columns(assessment, rows, counted, truth)
    belief = assessment.belief_codes[rows]
    for place, (name, evidence) in enumerate(assessment.evidence.items()):
        layer = layer_columns(evidence[rows], assessment.neighborhoods[name], belief)
        columns |= {f"{place}.{column}": values for column, values in layer.items()}
    return columns
