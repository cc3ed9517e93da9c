"""Columns: which samples the page holds, and their evidence as its algebra reads it.

static/layer.js says why this evidence is enough. For each layer and sample: the nearest training
samples of the believed class and of the two nearest other classes, their distances, and how many
neighbors are nearer. With a quorum it is the samples that complete it, as `iknow.core.quorum`
weighs evidence for every rule, and those before to show.

The page moves a rule by its mirror in static/rules.js. A user's own rule has none: the page shows
what Python found for it, and offers no slider.

The distances in the page are those that decide. To name all samples of a quorum it needs the ones
before, and to certify robustness the distances with the sides of the quorum exchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Ints
from iknow.core.assertion import Assertion, may_be_known
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.level import NEIGHBORS
from iknow.core.quorum import ONE, Quorum, weigh
from iknow.core.robustness import Movement
from iknow.core.rule import NO_REACH, Rule, promise_of, reach_by_class
from iknow.core.text import name
from iknow.explain.assessment import Assessment

Columns = dict[str, NDArray[Any]]

MOST_EXTRAS = 300  # wrong IKs shown although they were not drawn: as many as a person can inspect
MOST_NEIGHBORS = 30  # unless a rule needs more: neighbors are most of the page's size


def choose_samples(
    assessment: Assessment, wrong: Bools, most: int, rng: np.random.Generator
) -> tuple[Ints, Bools]:
    """All samples, or `most` of them drawn at random, plus the wrong IKs that were not drawn.

    wrong: mask of shape (n,) of the beliefs that are known to be wrong. Returns their positions,
    ascending, and which of them figures count: all but the wrong IKs outside the random draw.
    """
    n = len(assessment)
    if n <= most:
        return np.arange(n), np.ones(n, dtype=bool)
    drawn = np.zeros(n, dtype=bool)
    drawn[rng.choice(n, most, replace=False)] = True
    missed = np.flatnonzero(wrong & (assessment.assertion == Assertion.IK) & ~drawn)
    if len(missed) > MOST_EXTRAS:
        missed = rng.choice(missed, MOST_EXTRAS, replace=False)
    rows = np.union1d(np.flatnonzero(drawn), missed)
    return rows, drawn[rows]


def has_mirror(rule: type[Rule]) -> bool:
    """Whether static/rules.js has the rule: all of iknow's own, and no subclass elsewhere."""
    return rule.__module__.rpartition(".")[0] == "iknow.rules"


def describe_setting(rule: Rule) -> dict[str, Any]:
    """A rule and its parameters for static/rules.js."""
    setting: dict[str, Any] = {"rule": type(rule).__name__}
    if not has_mirror(type(rule)):
        return setting | {"text": name(repr(rule)), "quorum": rule.quorum}
    return setting | vars(rule)


def gather_columns(
    part: Assessment, rows: Ints, counted: Bools, y_true: Ints | None
) -> tuple[list[dict[str, Any]], Columns]:
    """What the page holds about the samples of `part`: facts about each layer, and all columns.

    rows: their positions among all samples, of shape (m,). counted: mask of those that figures
    count. y_true: codes of their true labels. A layer's columns begin with its place: "0.codes".
    """
    stability, answers = part.stability, part.answers
    columns: Columns = {
        "index": rows.astype(np.int32),
        "counted": counted.astype(np.uint8),
        "belief": part.belief_codes.astype(np.int32),
        "invalid": part.invalid.astype(np.uint8),
        "uncertified": (~may_be_known(part.belief_codes, part.knowable)).astype(np.uint8),
        "doubted": part.doubted.astype(np.uint8),
        "score": answers.score.astype(np.float32),
        "removals": stability.at_least.astype(np.int32),
        "removalsExact": stability.exact.astype(np.uint8),
        "changes": stability.changes.astype(np.int32),
    }
    if answers.level is not None and answers.weakest is not None:
        columns["level"] = answers.level.astype(np.float32)
        columns["weakest"] = answers.weakest.astype(np.uint16)
        columns["confidence"] = part.confidence.astype(np.float32)
    if answers.probability is not None:
        columns["probability"] = answers.probability.astype(np.float32)
    if y_true is not None:
        columns["truth"] = y_true.astype(np.int32)
    facts = []
    for place, layer in enumerate(part.evidence):
        about, found = read_layer(part, layer)
        facts.append(about)
        columns |= {f"{place}.{column}": values for column, values in found.items()}
    return facts, columns


def read_layer(part: Assessment, layer: str) -> tuple[dict[str, Any], Columns]:
    """Name, setting and sizes of a layer, and its columns.

    distances, codes, rows and ranks have shape (n, width), the believed class first, then two
    others by distance, or all if each has its own reach; neighbors has shape (n, k), tenth (n,).
    """
    evidence, weighed, rule = part.evidence[layer], part.weighed[layer], part.neighborhoods[layer]
    n, n_others = len(part), evidence.n_classes - 1
    width = 1 + (n_others if rule.reach(weighed[:1]).ndim == 2 else min(n_others, 2))
    codes = np.hstack([part.belief_codes[:, None], weighed.others_by_distance()[:, : width - 1]])
    which = np.arange(n)[:, None], codes
    # Nothing is near a class that was not named.
    distances = np.where(codes < 0, np.inf, weighed.class_distances[which])
    # The largest k to show: as many neighbors as the page holds.
    k = max(rule.n_neighbors, min(evidence.n_neighbors, MOST_NEIGHBORS))
    neighbors = weighed.neighbor_distances[:, :k]
    ranks = np.ones(codes.shape, np.uint8 if neighbors.shape[1] < 255 else np.uint16)
    for neighbor in neighbors.T:  # a rank is 1 + the number of neighbors that are nearer
        ranks += neighbor[:, None] < distances
    columns: Columns = {
        "distances": distances.astype(np.float64),
        "codes": codes.astype(np.int32),
        # Users may number samples by the ids of a database.
        "rows": np.where(codes < 0, NO_EXEMPLAR, weighed.exemplars[which]).astype(np.int64),
        "ranks": ranks,
        "neighbors": neighbors.astype(np.float32),
        **nearer_columns(evidence, rule.quorum, codes),
    }
    if evidence.n_neighbors >= NEIGHBORS:
        columns["tenth"] = weighed.neighbor_distance(NEIGHBORS)
    movement = part.movements.get(layer, Movement(np.inf))
    if np.isfinite(movement.lipschitz):
        for each in ("rounding", "crossing", "stretch"):
            columns[each] = np.array(np.broadcast_to(getattr(movement, each), n), np.float64)
        columns |= attack_columns(evidence, rule, codes)
    if not has_mirror(type(rule)):
        columns |= find_fixed(part, layer, codes)
    # The distance to the sample that completes the quorum of the belief is split.
    ranked = None if part.measured is None else part.measured.rank(layer, columns["rows"][:, 0])
    if ranked is not None:
        columns["features"], columns["shares"] = ranked[1].astype(np.int32), ranked[2].astype("f4")
    facts = {
        "features": None if ranked is None else list(map(name, ranked[0])),
        "name": name(layer),
        "setting": describe_setting(rule),
        "width": width,
        "nNeighbors": k,
        "nHeld": evidence.n_neighbors,
        "lipschitz": movement.lipschitz,
        "jumpsAt": movement.jumps_at,
    }
    return facts, columns


def nearer_columns(evidence: Evidence, quorum: Quorum, codes: Ints) -> Columns:
    """The samples of each class before the one that completes a quorum, nearest first.

    Both of shape (n, width * (the larger side - 1)), filled up with -1 and inf.
    """
    before = max(quorum) - 1
    if before == 0:
        return {}
    samples, needed = np.arange(len(codes))[:, None], np.full(codes.shape, quorum[1])
    needed[:, 0] = quorum[0]
    absent = (np.arange(before) >= needed[:, :, None] - 1) | (codes < 0)[:, :, None]
    rows = np.where(absent, NO_EXEMPLAR, evidence.rows[samples, codes, :before])
    distances = np.where(absent, np.inf, evidence.distances[samples, codes, :before])
    return {
        "nearerRows": rows.reshape(len(codes), -1).astype(np.int64),
        "nearerDistances": distances.reshape(len(codes), -1).astype(np.float32),
    }


def attack_columns(evidence: Evidence, rule: Rule, codes: Ints) -> Columns:
    """With a quorum, what `find_clearance` compares: how far each class is to those who attack.

    Another class would have to be the belief, so the sides of the quorum change places. If not all
    classes are in the page, those that come first for the attack stand for the others.
    """
    if rule.quorum == ONE:
        return {}
    attacked = weigh(evidence, rule.quorum[::-1], codes[:, 0].astype(np.int64))
    if codes.shape[1] < evidence.n_classes:
        others = attacked.others_by_distance()[:, : codes.shape[1] - 1]
        codes = np.hstack([codes[:, :1], others])
    distances = attacked.class_distances[np.arange(len(codes))[:, None], codes]
    return {"attack": np.where(codes < 0, np.inf, distances)}


def find_fixed(part: Assessment, layer: str, codes: Ints) -> Columns:
    """What the page cannot find itself: the columns that `Fixed` in static/rules.js reads.

    codes: the classes in the page's columns, of shape (n, width); -1 for none.
    """
    rule, weighed = part.neighborhoods[layer], part.weighed[layer]
    reach = reach_by_class(rule, weighed)
    limit = promise_of(rule, "empty_beyond")  # as for margins: inf is no limit
    shown = np.where(reach == NO_REACH, NO_REACH if np.isinf(limit) else limit, reach)
    which = np.arange(len(part))[:, None], codes
    return {
        "within": (part.supports[layer][which] & (codes >= 0)).astype(np.uint8),
        "reach": shown[which].astype(np.float64),
        "none": (reach == NO_REACH).all(axis=1).astype(np.uint8),
        "margin": part.layer_margins[layer].astype(np.float64),
        "robust": part.only([layer]).robust_radius,
    }


def shown_rows(columns: Columns, n_layers: int) -> Ints:
    """The training rows that the page shows beside each sample, of shape (m, n_rows); -1 for none.

    Those of the believed class and of the nearest other, in every layer, with the deciding first.
    """
    deciding, before = [], []
    for layer in range(n_layers):
        rows, nearer = columns[f"{layer}.rows"], columns.get(f"{layer}.nearerRows")
        deciding.append(rows[:, :2])
        if nearer is not None:
            before.append(nearer[:, : 2 * nearer.shape[1] // rows.shape[1]])
    return np.hstack([*deciding, *before])
