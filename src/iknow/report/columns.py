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

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Ints
from iknow.core.assertion import Assertion, may_be_known
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.quorum import ONE, Quorum, Weighed, weigh
from iknow.core.robustness import Movement, find_robust_radii
from iknow.core.rule import NO_REACH, Rule, promise_of
from iknow.core.slack import find_margins
from iknow.core.support import find_support
from iknow.core.text import name
from iknow.explain.assessment import Assessment

Columns = dict[str, NDArray[Any]]

MOST_EXTRAS = 300  # wrong IKs shown although they were not drawn: as many as a person can inspect


@dataclass(frozen=True, eq=False)
class Chosen:
    """The samples in the page.

    rows: their positions in the assessment, ascending, of shape (m,). counted: mask of shape (m,);
    the others are wrong IKs outside the random draw, which are only shown. n_samples: of all.
    """

    rows: Ints
    counted: Bools
    n_samples: int

    @property
    def n_counted(self) -> int:
        return int(self.counted.sum())

    @property
    def n_extra(self) -> int:
        return len(self.rows) - self.n_counted


def choose_samples(
    assessment: Assessment, wrong: Bools, most: int, rng: np.random.Generator
) -> Chosen:
    """All samples, or `most` of them drawn at random, plus the wrong IKs that were not drawn.

    wrong: mask of shape (n,) of the beliefs that are known to be wrong.
    """
    n = len(assessment)
    if n <= most:
        return Chosen(np.arange(n), np.ones(n, dtype=bool), n)
    drawn = np.zeros(n, dtype=bool)
    drawn[rng.choice(n, most, replace=False)] = True
    missed = np.flatnonzero(wrong & (assessment.assertion == Assertion.IK) & ~drawn)
    if len(missed) > MOST_EXTRAS:
        missed = rng.choice(missed, MOST_EXTRAS, replace=False)
    rows = np.union1d(np.flatnonzero(drawn), missed)
    return Chosen(rows, drawn[rows], n)


def order_for_pictures(assessment: Assessment, rows: Ints, wrong: Bools) -> Ints:
    """Positions in `rows`, of shape (m,): wrong IKs, other wrong beliefs, then closest calls."""
    closeness = np.abs(assessment.margin[rows])
    known = assessment.assertion[rows] == Assertion.IK
    rank = np.where(wrong[rows] & known, 0, np.where(wrong[rows], 1, 2))
    order: Ints = np.lexsort((closeness, rank))
    return order


def has_mirror(rule: type[Rule]) -> bool:
    """Whether static/rules.js has the rule: all of iknow's own, and no subclass elsewhere."""
    return rule.__module__.rpartition(".")[0] == "iknow.rules"


def describe_setting(rule: Rule) -> dict[str, Any]:
    """A rule and its parameters for static/rules.js."""
    setting: dict[str, Any] = {"rule": type(rule).__name__}
    if not has_mirror(type(rule)):
        return setting | {"text": name(repr(rule)), "quorum": rule.quorum}
    return setting | vars(rule)


def find_fixed(
    evidence: Evidence, rule: Rule, belief: Ints, movement: Movement, codes: Ints
) -> Columns:
    """What the page cannot find itself: the columns that `Fixed` in static/rules.js reads.

    codes: the classes in the page's columns, of shape (n, width); -1 for none.
    """
    samples, weighed = np.arange(len(evidence))[:, None], weigh(evidence, rule.quorum, belief)
    reach = rule.reach(weighed)
    reach = np.broadcast_to(reach.reshape(len(evidence), -1), evidence.class_distances.shape)
    limit = promise_of(rule, "empty_beyond")  # as for margins: inf is no limit
    shown = np.where(reach == NO_REACH, NO_REACH if np.isinf(limit) else limit, reach)
    within = find_support(weighed, rule, belief)[samples, codes] & (codes >= 0)
    return {
        "within": within.astype(np.uint8),
        "reach": shown[samples, codes].astype(np.float64),
        "none": (reach == NO_REACH).all(axis=1).astype(np.uint8),
        "margin": find_margins(weighed, rule, belief).astype(np.float64),
        "robust": find_robust_radii({"": evidence}, {"": rule}, belief, {"": movement}),
    }


def others_by_distance(evidence: Weighed) -> Ints:
    """The codes of all classes, the nearest first and the believed one last."""
    answered = np.flatnonzero(evidence.belief >= 0)
    others = evidence.class_distances.copy()
    others[answered, evidence.belief[answered]] = np.nan  # sorted to the end, behind inf
    return np.argsort(others, axis=1, kind="stable")


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
        codes = np.hstack([codes[:, :1], others_by_distance(attacked)[:, : codes.shape[1] - 1]])
    distances = attacked.class_distances[np.arange(len(codes))[:, None], codes]
    return {"attack": np.where(codes < 0, np.inf, distances)}


MOST_NEIGHBORS = 30  # unless a rule needs more: neighbors are most of the page's size


def count_neighbors(evidence: Evidence, rule: Rule) -> int:
    """How many neighbors of each sample the page holds: the largest k it can show."""
    return max(rule.n_neighbors, min(evidence.n_neighbors, MOST_NEIGHBORS))


def count_others(evidence: Evidence, rule: Rule) -> int:
    """How many other classes the page holds: two, or all if each has its own reach."""
    others = evidence.n_classes - 1
    return others if rule.reach(evidence).ndim == 2 else min(others, 2)


def bytes_per_sample(assessment: Assessment) -> int:
    """What one sample adds to the page, before compression and base64."""
    first = np.zeros(1, dtype=np.int64)
    return sum(a.nbytes for a in gather_columns(assessment, first, first == 0, first).values())


def layer_columns(evidence: Evidence, rule: Rule, belief: Ints) -> Columns:
    """The columns of one layer. belief: class codes of shape (n,), -1 for no belief.

    distances, codes, rows and ranks have shape (n, 1 + others), the believed class first, then
    others by distance; neighbors has shape (n, k).
    """
    whole, evidence = evidence, weigh(evidence, rule.quorum, belief)
    samples = np.arange(len(evidence))[:, None]
    order = others_by_distance(evidence)[:, : count_others(evidence[:1], rule)]
    codes = np.hstack([belief[:, None], order])
    # Nothing is near a class that was not named.
    distances = np.where(codes < 0, np.inf, evidence.class_distances[samples, codes])
    rows = np.where(codes < 0, NO_EXEMPLAR, evidence.exemplars[samples, codes])
    neighbors = evidence.neighbor_distances[:, : count_neighbors(evidence, rule)]
    ranks = np.ones(distances.shape, np.uint8 if neighbors.shape[1] < 255 else np.uint16)
    for neighbor in neighbors.T:  # a rank is 1 + the number of neighbors that are nearer
        ranks += neighbor[:, None] < distances
    return {
        "distances": distances.astype(np.float64),
        "codes": codes.astype(np.int32),
        "rows": rows.astype(np.int64),  # users may number samples by the ids of a database
        "ranks": ranks,
        "neighbors": neighbors.astype(np.float32),
        **nearer_columns(whole, rule.quorum, codes),
    }


def sample_columns(
    assessment: Assessment, rows: Ints, counted: Bools, y_true: Ints | None
) -> Columns:
    """What the page holds about each sample besides its evidence; y_true: codes of shape (n,)."""
    known = assessment.assertion[rows] == Assertion.IK
    stability, answers = assessment.stability, assessment.answers
    belief = assessment.belief_codes[rows]
    columns: Columns = {
        "index": rows.astype(np.int32),
        "counted": counted.astype(np.uint8),
        "belief": belief.astype(np.int32),
        "invalid": assessment.invalid[rows].astype(np.uint8),
        "uncertified": (~may_be_known(belief, assessment.knowable)).astype(np.uint8),
        "doubted": assessment.doubted[rows].astype(np.uint8),
        "score": answers.score[rows].astype(np.float32),
        "removals": np.where(known, stability.at_least[rows], 0).astype(np.int32),
        "removalsExact": stability.exact[rows].astype(np.uint8),
        "changes": stability.changes[rows].astype(np.int32),
    }
    if answers.level is not None and answers.weakest is not None:
        columns["level"] = answers.level[rows].astype(np.float32)
        columns["weakest"] = answers.weakest[rows].astype(np.uint16)
    if y_true is not None:
        columns["truth"] = y_true[rows].astype(np.int32)
    return columns


def describe_layers(assessment: Assessment) -> list[dict[str, Any]]:
    """Name, setting and sizes of each layer."""
    layers = []
    for layer, evidence in assessment.weighed.items():
        rule = assessment.neighborhoods[layer]
        layers.append(
            {
                "name": name(layer),
                "setting": describe_setting(rule),
                "width": 1 + count_others(evidence[:1], rule),
                "nNeighbors": count_neighbors(evidence, rule),
                "nHeld": evidence.n_neighbors,
                "lipschitz": movement_of(assessment, layer).lipschitz,
            }
        )
    return layers


def movement_of(assessment: Assessment, layer: str) -> Movement:
    """How far the layer's points can move: any length, if that is unknown."""
    return assessment.movements[layer] if layer in assessment.movements else Movement(np.inf)


def gather_columns(
    assessment: Assessment, rows: Ints, counted: Bools, y_true: Ints | None
) -> Columns:
    """All columns of some samples; those of the layer at position i are named "i.distances".

    rows: which samples, of shape (m,). counted: mask of shape (m,) of those that figures count.
    y_true: codes of all true labels, of shape (n,).
    """
    columns = sample_columns(assessment, rows, counted, y_true)
    belief = assessment.belief_codes[rows]
    for place, (which, evidence) in enumerate(assessment.evidence.items()):
        part, rule = evidence[rows], assessment.neighborhoods[which]
        movement = movement_of(assessment, which)[rows]
        layer = layer_columns(part, rule, belief)
        if np.isfinite(movement.lipschitz):
            for each in ("rounding", "crossing", "stretch"):
                values = np.broadcast_to(getattr(movement, each), len(rows))
                layer[each] = np.array(values, dtype=np.float64)
            layer |= attack_columns(part, rule, layer["codes"])
        if not has_mirror(type(rule)):
            layer |= find_fixed(part, rule, belief, movement, layer["codes"])
        columns |= {f"{place}.{column}": values for column, values in layer.items()}
    return columns


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
