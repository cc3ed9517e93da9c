"""Tuning: from validation samples to rules, by the goal that the user names.

A promise is about the evidence that it was made for. After a change it is stale, and fresh samples
can renew it.

Validation samples must not be training samples, nor samples to watch those that tuned. A network's
activations for one input vary slightly with the batch size, so two samples count as copies if they
are at most a hundred-thousandth of the layer's size apart. The same rule applies to training
samples among themselves, which keeps the comparison fair. Leaves of trees say nothing here: a tree
grows until it tells its training samples apart, and every other sample shares a leaf with one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.classifier.observe import check_valid, name_labels, observe, read, search_all
from iknow.classifier.plan import Plan, as_quorum, kind_of
from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import Evidence
from iknow.core.level import CLARITY, NEARNESS, Levels, are_probabilities, log_odds, near_and_clear
from iknow.core.quorum import Contrast, Quorum, find_contrast, weigh
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.models.inputs import norms
from iknow.models.labels import check_count, check_trained, encode
from iknow.models.model import Observation, without_scores
from iknow.models.samples import Samples
from iknow.search.layer import LayerIndex
from iknow.selection import Goal, Selection, check_unseen, choose, make_watch
from iknow.selection.validation import LEVEL, Validation, chance_of_copies
from iknow.selection.watch import Watch

if TYPE_CHECKING:
    from iknow.classifier.estimator import EpistemicClassifier

TOLERANCE = 1e-5
SAMPLES_MEASURED = 4096
ROWS_AT_ONCE = 512


def select(
    classifier: EpistemicClassifier,
    plan: Plan,
    goal: Goal,
    samples: Samples,
    what: str,
    positions: Ints | None = None,
    reference: Any = None,
) -> Selection:
    """The rules for a goal, chosen on some samples; positions: see `check_valid`."""
    codes_of(plan, samples, classifier.classes)  # before the model works, if they are at hand
    rule = kind_of(classifier.rule)
    quorum = as_quorum(classifier.quorum, rule)
    k = goal.neighbors_needed(rule, plan.index.n_rows, quorum)
    seen = look(plan, samples, k, quorum, what, positions, classifier.progress)
    seen, others = replace(seen, y_true=codes_of(plan, samples, classifier.classes)), None
    if reference is not None:
        further = read(classifier, plan.model, reference, layers=plan.layers)
        others = look(plan, further, k, quorum, "reference", None, classifier.progress)
        if others.from_probabilities != seen.from_probabilities:
            # The scores look like probabilities in one set alone, so they rank in neither.
            seen, others = replace(seen, confidence=None), replace(others, confidence=None)
    return replace(choose(goal, seen, rule, plan.classes, reference=others), goal=goal)


def codes_of(plan: Plan, samples: Samples, classes: Any) -> Ints | None:
    """The classes of samples, as far as their labels are known, of shape (n,)."""
    if samples.labels is None:
        return None
    labels = name_labels(samples.labels, classes)
    if samples.n_samples is not None:
        check_count(labels, samples.n_samples)
    codes = encode(labels, plan.classes, "y")
    check_trained(codes, plan.index.labels, plan.classes)
    return codes


def look(
    plan: Plan,
    samples: Samples,
    k: int,
    quorum: Quorum,
    what: str,
    positions: Ints | None,
    progress: bool,
) -> Validation:
    """What tuning needs to know about samples that `fit` has not seen."""
    odds: list[list[Floats]] = []
    normalized: list[bool] = []

    def contrast(layer: str, seen: Observation) -> Contrast:
        found = plan.indexes[layer].gather(seen.activations[layer], k, max(quorum))
        return find_contrast(weigh(found, quorum, seen.belief), seen.belief)

    def heard() -> Iterator[Observation]:
        for seen in observe(plan, samples, plan.layers, progress=progress):
            normalized.append(are_probabilities(seen.scores))
            odds.append([log_odds(seen.scores, seen.belief, each) for each in (False, True)])
            yield without_scores(seen)

    whole, evidence = search_all(heard(), plan.layers, contrast, None, keeps=False)
    check_valid(whole.invalid, what, positions, plan.layers)
    if positions is None:  # otherwise fit held them out itself
        check_unseen(*count_copies(evidence, plan.indexes))
    from_probabilities = all(normalized)
    confidence = np.concatenate([each[from_probabilities] for each in odds])
    return Validation(evidence, whole.belief, None, confidence, from_probabilities)


def watch(plan: Plan, assessed: Assessment) -> Watch:
    """What an alarm compares a stream with: the scores of fresh samples, as assessed."""
    indexes = {layer: plan.indexes[layer] for layer in assessed.evidence}
    check_unseen(*count_copies(assessed.evidence, indexes))
    if assessed.levels is not None:
        _check_apart(assessed, assessed.levels, indexes)
    answers = assessed.answers
    made = make_watch(
        answers.watched, answers.belief, answers.watched_by_layer, answers.watched_layers
    )
    if made is None:
        raise InputError("watch needs at least one sample; got none")
    return made


def _check_apart(assessed: Assessment, path: Levels, indexes: dict[str, LayerIndex]) -> None:
    """Refuse the samples that laid the path, beyond what chance explains.

    Of these only their distances and ratios are known, each sorted by itself: a copy finds its own
    everywhere among them. Whole numbers, as between leaves, agree by chance and tell nothing.
    """
    telling = [layer for layer in path.layers if indexes[layer].metric.p != 0]
    if not telling:
        return
    copied, repeated = np.ones(len(assessed), dtype=bool), path.n_samples
    for layer in telling:
        evidence = weigh(assessed.evidence[layer], path.quorum, assessed.belief_codes)
        contrast = find_contrast(evidence, assessed.belief_codes)
        values = dict(zip((NEARNESS, CLARITY), near_and_clear(contrast), strict=True))
        for voice in (each for each in path.voices if each.layer == layer):
            ours = values[voice.name]
            copied &= np.isin(ours, voice.reference) & np.isfinite(ours)
            counts = np.unique(voice.reference, return_counts=True)[1]
            repeated = min(repeated, int(counts[counts > 1].sum()))
    n = int(copied.sum())
    if chance_of_copies(n, len(assessed), repeated, path.n_samples) <= LEVEL:
        raise InputError(
            f"{n} of the {len(assessed)} samples are among those that tuned the classifier, and "
            "seem more ordinary than new ones: give fresh samples to watch"
        )


def count_copies(
    evidence: Mapping[str, Evidence] | Mapping[str, Contrast], indexes: Mapping[str, LayerIndex]
) -> tuple[int, int, int, int]:
    """Count the copies and all samples, then the same for the training samples.

    Training samples are checked only if there is a copy, at most `SAMPLES_MEASURED` of them.
    """
    telling = {layer: index for layer, index in indexes.items() if index.metric.p != 0}
    n_samples = max(map(len, evidence.values()))
    n_rows = next(iter(indexes.values())).n_rows
    if not telling:
        return 0, n_samples, 0, n_rows
    step = -(-n_rows // SAMPLES_MEASURED)

    limits = {}  # by the typical length of a layer's activations
    for layer, index in telling.items():
        limits[layer] = TOLERANCE * np.sqrt(np.square(norms(index.points[::step])).mean())

    def copies(nearest: Callable[[str], Floats]) -> int:
        close = [nearest(layer) <= limit for layer, limit in limits.items()]
        return int(np.logical_and.reduce(close).sum())

    def nearest(layer: str) -> Floats:
        """The distance to the nearest sample of all, which a quorum may not count."""
        held = evidence[layer].n_neighbors > 0
        return evidence[layer].neighbor_distance(1) if held else evidence[layer].nearest_distance()

    def nearest_other(layer: str) -> Floats:
        """From training samples: each is its own nearest neighbor, so the other comes second."""
        parts = (rows[at : at + ROWS_AT_ONCE] for at in range(0, len(rows), ROWS_AT_ONCE))
        index = telling[layer]
        return np.concatenate([index.gather_among(part, 2).neighbor_distance(2) for part in parts])

    if not (copied := copies(nearest)):
        return 0, n_samples, 0, n_rows
    rows = np.arange(0, n_rows, step)
    return copied, n_samples, copies(nearest_other), len(rows)
