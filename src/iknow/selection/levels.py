"""Choosing a level: one threshold along the path that reference samples fix (`iknow.core.level`).

The path is laid before any label of the samples that certify is looked at, so along it

    coverage       is matched by the level that this share of the validation samples reaches
    false alarm    is bounded without labels: see `limit_false_alarm`
    accuracy       is certified by exact tests in turn: see `certify_level`

**An accuracy**: as in `iknow.selection.guarantee`, a fifth of the samples chooses and the rest
certifies. The first part lays the path, unless the user gives other samples for that, and says
where on it exact tests begin: at the strictest level that looks safe, from there towards more
coverage, until one fails.

An accuracy may ask for more than the plain path gives, so a few variations of it (see
`iknow.core.level`) compete for the largest coverage on the part that chooses, and the winner is
certified on the other.

**Mute layers**: in raw pixels of photographs the nearest training sample is often of another class,
simply because it is as dark. Such a layer contradicts most beliefs, right or wrong, and would drag
every level down. We ask how often the samples nearest to a reference sample have its believed
class, a, and how often they would by chance, e. Cohen's kappa, (a - e) / (1 - e), is 0 for a layer
that knows nothing and 1 for one that always agrees. A layer that does not come half way is left
out: its word is closer to chance than to the model's. The truth is not asked, so the choice costs
no label.

Leaves agree with the trees they are from, but beyond the training data everything falls into the
outermost ones: they cannot see how far away a sample is. So one layer besides them is always kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from iknow.core.arrays import Floats, Labels
from iknow.core.level import CLARITY, CONFIDENCE, NEARNESS, Levels, Voice, near_and_clear
from iknow.core.quorum import quorum_of
from iknow.errors import InputError, SelectionError
from iknow.metrics.metric import LEAVES
from iknow.rules import RelativeBall
from iknow.selection.goal import Goal
from iknow.selection.guarantee import (
    STEPS,
    check_enough,
    first_to_test,
    least_samples,
    p_values,
    rank,
    try_in_turn,
)
from iknow.selection.selection import Candidate, Selection, record_choice
from iknow.selection.validation import Validation, count_from, count_shared, match_threshold, split
from iknow.selection.watch import Watch, make_watch

MOST_REFERENCES = 100_000  # that lay a path: more say little more, and every bundle carries them


def lay_path(
    part: Validation,
    layers: Sequence[str],
    *,
    nearness: float = 1.0,
    clarity: bool = True,
    confident: bool = False,
) -> Levels:
    """The path that samples fix. confident: whether the model's confidence is a voice."""
    if len(part) > MOST_REFERENCES:  # drawn without looking at them, so they stay exchangeable
        rows = np.random.default_rng(0).choice(len(part), MOST_REFERENCES, replace=False)
        part = part[rows]
    voices, contrasts = [], part.contrasts
    for layer in layers:
        near, clear = near_and_clear(contrasts[layer])
        voices.append(Voice(NEARNESS, layer, np.sort(near), nearness))
        voices += [Voice(CLARITY, layer, np.sort(clear))] if clarity else []
    if confident and part.confidence is not None:
        voices.append(Voice(CONFIDENCE, None, np.sort(part.confidence)))
    return Levels(tuple(voices), quorum_of(contrasts), part.from_probabilities)


def find_levels(levels: Levels, part: Validation) -> Floats:
    """The level of each sample, of shape (n,)."""
    return np.asarray(levels.ranks(part.contrasts, part.confidence).min(axis=1))


def watch_part(levels: Levels, part: Validation) -> Watch | None:
    """The watch of samples that did not lay the path."""
    said = levels.ranks(part.contrasts, part.confidence)
    return make_watch(said.min(axis=1), part.belief, levels.by_layer(said), levels.layers)


def candidate_at(levels: Levels, level: float) -> Candidate:
    """The setting with which exactly the samples of at least this level are IK."""
    settings, least = levels.at(level)
    rules = {name: RelativeBall(*each, quorum=levels.quorum) for name, each in settings.items()}
    return Candidate(rules, least_confidence=least, level=level)


def choose_level(
    goal: Goal, whole: Validation, reference: Validation | None, classes: Labels | None = None
) -> Selection:
    """Choose a level on the path that reference samples fix.

    reference: further samples that lay the path. Without them it is those that choose, or all.
    """
    confident = goal.model_confidence is True
    laying = whole if reference is None else reference
    if goal.coverage is not None:
        return match_level(whole, laying, goal.coverage, confident)
    if goal.false_alarm is not None:
        if reference is None:  # both parts rank samples, and take as many
            laying, whole = split(whole, goal.random_state, share=2)
        return limit_false_alarm(whole, laying, goal.false_alarm, confident)
    if whole.y_true is None:
        raise InputError("an accuracy needs labels: give y too, or ask for coverage or false_alarm")
    try:
        return certify_level(whole, reference, goal, classes)
    except SelectionError as error:
        if goal.accuracy is not None:
            raise
        return replace(match_level(whole, laying, USUAL_COVERAGE, confident), note=str(error))


def match_level(
    part: Validation, reference: Validation, coverage: float, confident: bool = False
) -> Selection:
    """Choose the level that this share of the samples reaches.

    reference: the samples that lay the path, often the same ones. confident: see `lay_path`.
    """
    levels, left_out = _lay_plain(reference, confident)
    found = find_levels(levels, part)
    if not (found > 0).any():
        raise SelectionError(
            f"none of the {len(part)} validation samples can be IK: each is believed to be of a "
            "class with too few training samples, or lies on top of another class's, or is "
            "stranger than all reference samples. Use more training data or reference samples, or "
            "a smaller quorum"
        )
    level = match_threshold(np.where(found > 0, found, -np.inf), coverage)
    level = min(max(level, float(found[found > 0].min())), float(found.max()))
    apart = reference is not part and not count_shared(part, reference)
    watch = watch_part(levels, part) if apart else None
    chosen = candidate_at(levels, level)
    return record_choice(part, chosen, "matched", levels=levels, left_out=left_out, watch=watch)


def limit_false_alarm(
    part: Validation, reference: Validation, false_alarm: float, confident: bool = False
) -> Selection:
    """Choose the largest level that an ordinary sample falls below with a bounded probability.

    The samples of `part` did not lay the path, so an ordinary sample and they are exchangeable: of
    the n + 1 levels its own is among the j lowest with probability j / (n + 1) at most. The level
    number j of the n is therefore missed with at most that probability, over the draw of all of
    them, without labels and whatever the number of layers. (Testing each u and v by itself would
    cost a factor of their number.)
    """
    if copied := count_shared(part, reference):
        raise InputError(
            f"{copied} of the {len(part)} samples are reference samples too, and a sample ranks "
            "higher among those that include it, so the promise would not hold: give other "
            "samples as reference, or none"
        )
    rank_allowed = int(np.floor(false_alarm * (len(part) + 1) * (1 + 1e-12)))
    if rank_allowed < 1:
        raise SelectionError(
            f"too few samples: a false alarm rate of {false_alarm:.4g} takes at least "
            f"{int(np.ceil(1 / false_alarm)) - 1} samples besides those that lay the path; got "
            f"{len(part)}"
        )
    levels, left_out = _lay_plain(reference, confident)
    level = float(np.sort(find_levels(levels, part))[rank_allowed - 1])
    if level <= 0:
        raise SelectionError(
            f"more than {false_alarm:.4g} of the samples cannot be IK at any level, as their "
            "believed class has too few training samples, or another class lies on top of them, or "
            "they are stranger than all reference samples: ask for a higher rate, or give more "
            "reference samples"
        )
    chosen, watch = candidate_at(levels, level), watch_part(levels, part)
    found = record_choice(part, chosen, "false alarm", levels=levels, left_out=left_out)
    return replace(found, false_alarm=false_alarm, watch=watch)


def _lay_plain(reference: Validation, confident: bool) -> tuple[Levels, dict[str, str]]:
    """The path that samples fix, and the layers that it leaves out, with the reason in words."""
    left_out = find_mute_layers(reference)
    kept = [layer for layer in reference.evidence if layer not in left_out]
    return lay_path(reference, kept, confident=confident), left_out


NEARNESSES = (1.0, 0.5, 0.2, 0.05, 0.01)  # how much nearness may count, for an accuracy
USUAL_COVERAGE = 0.75  # to match if nothing is asked for and nothing can be certified
FEWER_ERRORS = 10  # times less often than the model IK shall be wrong, without a goal


def certify_level(
    whole: Validation, reference: Validation | None, goal: Goal, classes: Labels | None = None
) -> Selection:
    """Choose the largest coverage whose accuracy on IK is certified, along a path.

    goal: without an accuracy to certify, IK shall be wrong ten times less often than the model, as
    judged by the samples that choose. Whether the model's confidence is a voice is decided by what
    it promises, if the goal does not say; but not for that usual goal, which is to hold on strange
    data too, and leaves it out. reference: further samples that lay the path; by default those that
    choose, a fifth.
    """
    first, second = split(whole, goal.random_state)
    laying, heard = first if reference is None else reference, goal.model_confidence
    if usual := goal.accuracy is None:
        # Counting one error more than seen: none seen proves none.
        target = 1 - (int(first.wrong.sum()) + 1) / (len(first) + 2) / FEWER_ERRORS
        goal = replace(goal, accuracy=target)
    least, eligible = check_enough(second, goal)
    path, left_out = _lay_plain(laying, heard is True)
    if goal.each_class:
        settings = [candidate_at(path, level) for level in _grid(path, laying).tolist()]
        candidates = rank(settings, first, eligible, goal.target, least / len(second))
    else:
        paths = [path] if usual else _variations(laying, path.layers, heard)
        judged = [(*_judge(one, laying, first, len(second), goal), one) for one in paths]
        # The path that promises the most coverage, the first of equals.
        _, grid, path = max(judged, key=lambda each: each[0])
        candidates = [candidate_at(path, level) for level in grid.tolist()]
    chosen, certificate = try_in_turn(candidates, second, goal, classes)
    found = record_choice(whole, chosen, "certified", levels=path, left_out=left_out)
    return replace(found, certificate=certificate, watch=watch_part(path, second))


def _variations(laying: Validation, layers: Sequence[str], confident: bool | None) -> list[Levels]:
    """The plain path, and those on which nearness counts for less or the model is heard too."""
    plain, hearing = [(True, False)], [(True, True), (False, True)]
    if laying.confidence is None or confident is False:
        hearing = []
    voices = hearing if hearing and confident else plain + hearing
    return [
        lay_path(laying, layers, nearness=nearness, clarity=clarity, confident=confident)
        for (clarity, confident), nearness in product(voices, NEARNESSES)
    ]


def _grid(levels: Levels, laying: Validation) -> Floats:
    """Levels from the strictest to the most lenient, evenly spaced in coverage."""
    found = np.sort(find_levels(levels, laying))[::-1]
    found = found[found > 0]
    picked = np.linspace(0, max(0, len(found) - 1), STEPS).astype(int)
    return np.unique(found[picked])[::-1] if len(found) else found


def _judge(
    levels: Levels, laying: Validation, first: Validation, n_second: int, goal: Goal
) -> tuple[float, Floats]:
    """The coverage that a path promises, and its levels from the surest to the most lenient.

    Judged on the samples that choose, as if there were as many as certify.
    """
    grid = _grid(levels, laying)
    if not len(grid):
        return 0.0, grid
    found, scale = find_levels(levels, first), n_second / len(first)
    known, errors = count_from(found, grid), count_from(found[first.wrong], grid)
    counts = np.rint(scale * known), np.rint(scale * errors)
    # Those that certify may hold fewer IK samples, by two standard deviations, and need enough.
    fewest = scale * (known - 2 * np.sqrt(known))
    enough = fewest >= least_samples(goal.target, goal.confidence)
    surest = first_to_test(*counts, goal.target, goal.confidence, enough)
    doubts = p_values(counts[1], counts[0], goal.target)
    passing = np.flatnonzero(doubts <= 1 - goal.confidence)
    promise = float(known[passing[-1]] / len(first)) if len(passing) else 0.0
    return promise, grid[surest:]


LEAST_KAPPA = 0.5


def find_mute_layers(reference: Validation) -> dict[str, str]:
    """The layers to leave out, with the reason in words.

    One is always kept, the best; it is not that of leaves if there is another.
    """
    shares = np.bincount(reference.belief) / len(reference)
    chance = float(np.square(shares).sum())
    agreements: dict[str, float] = {}
    for layer, contrast in reference.contrasts.items():
        # A training set smaller than the quorum has no such neighbor, and supports no belief.
        nearest = contrast.neighbor_distance(min(contrast.quorum[0], contrast.n_neighbors))
        # Another class at distance 0 lets nothing be known: coarse leaves may put all in one.
        agreements[layer] = float(np.mean((contrast.own <= nearest) & (contrast.other > 0)))
    best = max(
        [name for name in agreements if name != LEAVES] or [LEAVES], key=agreements.__getitem__
    )
    least = chance + LEAST_KAPPA * (1 - chance)
    return {
        layer: f"nearness means little in it: the nearest training samples have the believed class "
        f"for {agreement:.0%} of the reference samples ({chance:.0%} by chance, {least:.0%} needed)"
        for layer, agreement in agreements.items()
        if agreement < least and layer != best
    }
