"""Choosing a level: one threshold along the path that reference samples fix (`iknow.core.level`).

The path is laid, with the budgets of its voices (`iknow.selection.budgets`), before any label of
the samples that certify is looked at, so along it

    coverage       is matched by the level that this share of the validation samples reaches
    false alarm    is bounded without labels: see `limit_false_alarm`
    accuracy       is certified by exact tests in turn: see `certify_level`

**An accuracy**: as in `iknow.selection.guarantee`, a fifth of the samples chooses and the rest
certifies. The first part lays the path, unless the user gives other samples for that. Exact tests
then go from the surest level towards more coverage, until one fails. So that one early error does
not end them, the first test comes where as many errors are allowed as fit into a fifth of the
samples that certify: a number that depends on how many there are, and on the goal, alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import rankdata

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.level import (
    CONFIDENCE,
    FAMILIARITY,
    IN_LAYERS,
    NEARNESS,
    NEIGHBORS,
    Levels,
    Voice,
    value_of,
)
from iknow.core.quorum import quorum_of
from iknow.errors import InputError, SelectionError, warn
from iknow.rules import RelativeBall
from iknow.selection.budgets import (
    FEWEST_ERRORS,
    OF_CLASS,
    Speaker,
    augrc,
    chances_of_error,
    choose_budgets,
    expected_losses,
)
from iknow.selection.goal import Goal
from iknow.selection.guarantee import (
    STEPS,
    check_enough,
    first_to_test,
    rank,
    try_in_turn,
)
from iknow.selection.probability import learn
from iknow.selection.selection import Candidate, Selection, record_choice
from iknow.selection.validation import (
    Validation,
    count_from,
    count_shared,
    match_threshold,
    split,
)
from iknow.selection.watch import Watch, make_watch

LOUD = 0.5  # the budget of nearness beyond which familiarity adds nothing but ties at the end
MUCH_FARTHER = 1.25  # at most so far must nearness let a sample be, beside familiarity
MUCH_BETTER = 0.8  # the price of another quorum, beside that of the usual one
FEWEST_TO_COMPARE = 100  # samples, to tell which of two quorums is better
MOST_REFERENCES = 100_000  # that lay a path: more say little more, and every bundle carries them


def lay_path(part: Validation, premium: float, accuracy: float | None = None) -> Levels:
    """The path that samples fix; their labels, if they have any, help to choose the budgets.

    accuracy: the one to certify on it.
    """
    if len(part) > MOST_REFERENCES:  # drawn without looking at them, so they stay exchangeable
        rows = np.random.default_rng(0).choice(len(part), MOST_REFERENCES, replace=False)
        part = part[rows]
    contrasts = part.contrasts
    values: dict[Speaker, Floats] = {
        (layer, name): value_of(name, contrast)
        for layer, contrast in contrasts.items()
        for name in IN_LAYERS
        if name != FAMILIARITY or contrast.n_neighbors >= NEIGHBORS  # else too few training samples
    }
    if part.confidence is not None:
        values[None, CONFIDENCE] = part.confidence
    sorted_values = {speaker: np.sort(each) for speaker, each in values.items()}
    ranks = {
        speaker: np.searchsorted(sorted_values[speaker], each, side="right") / len(part)
        for speaker, each in values.items()
    }
    wrong = None if part.y_true is None else part.wrong
    about = part.confidence, wrong, len(part)
    losses, chances = expected_losses(*about), chances_of_error(*about)
    budgets = choose_budgets(ranks, losses, tuple(contrasts), premium, accuracy, chances)
    for layer, contrast in contrasts.items():
        # What nothing is near is far from its class too, and there that is heard as well.
        if budgets.get((layer, NEARNESS), 0.0) >= LOUD and (layer, FAMILIARITY) in budgets:
            farthest = contrast.neighbor_distance(NEIGHBORS).max()
            if contrast.own.max() <= MUCH_FARTHER * farthest:
                del budgets[layer, FAMILIARITY]
    voices = tuple(
        Voice(name, layer, sorted_values[layer, name], budgets[layer, name])
        for layer, name in values
        if (layer, name) in budgets
    )
    return Levels(voices, quorum_of(contrasts), part.from_probabilities, part.views)


def choose_quorum(seen: Sequence[Validation], rows: Ints) -> Validation:
    """Of what several quorums make of the same labeled samples, the one whose classes tell most.

    seen: that of the usual quorum first. rows: of the samples that may choose. Another quorum must
    rank these much better by nearness and clarity in the last layer: for what was never seen, small
    quorums are the better ones, and samples of the classes in training do not show it.
    """
    usual, *others = seen
    if not others or usual.y_true is None or len(rows) < FEWEST_TO_COMPARE:
        return usual

    def price(part: Validation) -> float:
        contrast = list(part.contrasts.values())[-1]
        ranks = [rankdata(value_of(name, contrast), "max") for name in OF_CLASS]
        known = np.where(np.isinf(contrast.own), 0, np.minimum(*ranks))
        found = augrc(known, expected_losses(part.confidence, part.wrong, len(part)))
        return max(found, FEWEST_ERRORS / len(part))  # less cannot be told from chance

    best = min(others, key=lambda each: price(each[rows]))
    return best if price(best[rows]) <= MUCH_BETTER * price(usual[rows]) else usual


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
    rules = {name: RelativeBall(**each, quorum=levels.quorum) for name, each in settings.items()}
    return Candidate(rules, least_confidence=least, level=level)


def choose_level(
    goal: Goal, whole: Validation, reference: Validation | None, classes: Labels | None = None
) -> Selection:
    """Choose a level on the path that reference samples fix.

    reference: further samples that lay the path. Without them it is those that choose, or all.
    """
    found = _serve(goal, whole, reference, classes)
    if whole.y_true is not None and found.levels is not None:
        warn_if_outranked(found.levels, whole)
    return found


def _serve(
    goal: Goal, whole: Validation, reference: Validation | None, classes: Labels | None
) -> Selection:
    laying = whole if reference is None else reference
    if goal.coverage is not None:
        return match_level(whole, laying, goal.coverage, goal.premium)
    if goal.false_alarm is not None:
        if reference is None:  # both parts rank samples, and take as many
            laying, whole = split(whole, goal.random_state, share=2)
        return limit_false_alarm(whole, laying, goal.false_alarm, goal.premium)
    if whole.y_true is None:
        raise InputError("an accuracy needs labels: give y too, or ask for coverage or false_alarm")
    try:
        return certify_level(whole, reference, goal, classes)
    except SelectionError as error:
        if goal.accuracy is not None:
            raise
        return replace(match_level(whole, laying, USUAL_COVERAGE, goal.premium), note=str(error))


def warn_if_outranked(levels: Levels, part: Validation) -> None:
    """Warn if the levels of labeled samples tell right from wrong worse than the model itself."""
    if part.confidence is None:
        return
    losses = part.wrong.astype(np.float64)
    ours, theirs = augrc(find_levels(levels, part), losses), augrc(part.confidence, losses)
    if ours > OUTRANKED * theirs and (ours - theirs) * len(part) > FEWEST_LOST:
        warn(
            f"by levels {ours:.2%} of the validation samples are asserted and wrong on average "
            f"over all coverages, by the model's own confidence alone {theirs:.2%}: on ordinary "
            "data a threshold on that is the better judge. A smaller premium comes closer to it; "
            "what levels add is that they are silent about what they have never seen"
        )


def match_level(
    part: Validation, reference: Validation, coverage: float, premium: float
) -> Selection:
    """Choose the level that this share of the samples reaches.

    reference: the samples that lay the path, often the same ones.
    """
    levels = lay_path(reference, premium)
    found = find_levels(levels, part)
    if not (found > 0).any():
        raise SelectionError(
            f"none of the {len(part)} validation samples can be IK: each is believed to be of a "
            "class with too few training samples, or is stranger than all reference samples. Use "
            "more training data or reference samples, or a smaller quorum"
        )
    level = match_threshold(np.where(found > 0, found, -np.inf), coverage)
    level = min(max(level, float(found[found > 0].min())), float(found.max()))
    apart = reference is not part and not count_shared(part, reference)
    watch = watch_part(levels, part) if apart else None
    chosen = candidate_at(levels, level)
    return record_choice(
        part, chosen, "matched", levels=levels, watch=watch, calibration=learn(levels, part)
    )


def limit_false_alarm(
    part: Validation, reference: Validation, false_alarm: float, premium: float
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
    levels = lay_path(reference, premium)
    level = float(np.sort(find_levels(levels, part))[rank_allowed - 1])
    if level <= 0:
        raise SelectionError(
            f"more than {false_alarm:.4g} of the samples cannot be IK at any level, as their "
            "believed class has too few training samples, or "
            "they are stranger than all reference samples: ask for a higher rate, or give more "
            "reference samples"
        )
    chosen, watch = candidate_at(levels, level), watch_part(levels, part)
    found = record_choice(part, chosen, "false alarm", levels=levels)
    return replace(found, false_alarm=false_alarm, watch=watch, calibration=learn(levels, part))


USUAL_COVERAGE = 0.75  # to match if nothing is asked for and nothing can be certified
OUTRANKED = 1.2  # so many times as much asserted and wrong is worse
FEWEST_LOST = 2.0  # if it is so many samples more
FEWER_ERRORS = 10  # times less often than the model IK shall be wrong, without a goal


def certify_level(
    whole: Validation, reference: Validation | None, goal: Goal, classes: Labels | None = None
) -> Selection:
    """Choose the largest coverage whose accuracy on IK is certified, along a path.

    goal: without an accuracy to certify, IK shall be wrong ten times less often than the model, as
    judged by the samples that choose. reference: further samples that lay the path; by default
    those that choose, a fifth.
    """
    first, second = split(whole, goal.random_state)
    laying = first if reference is None else reference
    if goal.accuracy is None:
        # Counting one error more than seen: none seen proves none.
        target = 1 - (int(first.wrong.sum()) + 1) / (len(first) + 2) / FEWER_ERRORS
        goal = replace(goal, accuracy=target)
    least, eligible = check_enough(second, goal)
    path = lay_path(laying, goal.premium, goal.target)
    grid = _grid(path, laying)
    if goal.each_class:
        settings = [candidate_at(path, level) for level in grid.tolist()]
        candidates = rank(settings, first, eligible, goal.target, least / len(second))
    else:
        counts = count_from(find_levels(path, laying), grid)
        sizes = len(laying), len(second)
        start = first_to_test(counts, *sizes, goal.target, goal.confidence) if len(grid) else 0
        candidates = [candidate_at(path, level) for level in grid[start:].tolist()]
    chosen, certificate = try_in_turn(candidates, second, goal, classes)
    found = record_choice(whole, chosen, "certified", levels=path)
    watch, calibration = watch_part(path, second), learn(path, second)
    return replace(found, certificate=certificate, watch=watch, calibration=calibration)


def _grid(levels: Levels, laying: Validation) -> Floats:
    """Levels from the strictest to the most lenient, evenly spaced in coverage."""
    found = np.sort(find_levels(levels, laying))[::-1]
    found = found[found > 0]
    picked = np.linspace(0, max(0, len(found) - 1), STEPS).astype(int)
    return np.unique(found[picked])[::-1] if len(found) else found
