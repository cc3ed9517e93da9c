"""An accuracy along a path: the level of largest coverage whose accuracy on IK is certified.

As in `iknow.selection.guarantee`, a fifth of the samples chooses and the rest certifies. The first
part lays the path, unless the user gives other samples for that, and says where on it exact tests
begin: at the strictest level that looks safe, from there towards more coverage, until one fails.

An accuracy may ask for more than the plain path gives, so a few variations of it (see
`iknow.core.level`) compete for the largest coverage on the part that chooses, and the winner is
certified on the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.level import Levels
from iknow.errors import SelectionError
from iknow.selection.binomial import least_samples, p_values
from iknow.selection.candidates import Candidate, Part, rank
from iknow.selection.guarantee import check_enough, find_eligible, split, try_in_turn
from iknow.selection.levels import (
    candidate_at,
    find_levels,
    kept_layers,
    lay_path,
    match_level,
    record_level,
    watch_part,
)
from iknow.selection.meaning import find_meaningless
from iknow.selection.selection import Selection

STEPS = 200
"""Levels to test at most, evenly spaced in coverage."""

SAFETY = 5
"""A level looks safe if it is to pass with this much to spare."""

NEARNESSES = (1.0, 0.5, 0.2, 0.05, 0.01)
"""How much nearness may count, for an accuracy."""

USUAL_COVERAGE = 0.75
"""What to match if nothing is asked for and nothing can be certified."""

FEWER_ERRORS = 10
"""Without a goal, IK shall be wrong this many times less often than the model."""


def certify_level(
    whole: Part,
    reference: Part | None,
    *,
    accuracy: float | None,
    confidence: float = 0.95,
    each_class: bool = False,
    confident: bool | None = None,
    classes: Labels | None = None,
    random_state: int = 0,
) -> Selection:
    """Choose the largest coverage whose accuracy on IK is certified, along a path.

    accuracy: to certify; None asks that IK be wrong ten times less often than the model, as judged
    by the samples that choose. reference: further samples that lay the path; by default those that
    choose, a fifth. confident: whether the model's confidence is a voice; None decides by what it
    promises, but for the usual goal, which is to hold on strange data too, and leaves it out.
    """
    first, second = split(whole, random_state)
    laying = first if reference is None else reference
    target = _usual_accuracy(first) if accuracy is None else accuracy
    least = check_enough(second, each_class, target, confidence)
    left_out = find_meaningless(laying)
    layers = kept_layers(whole, left_out)
    plain = lay_path(laying, layers, confident=confident is True)
    if each_class:
        settings = [candidate_at(plain, level) for level in _grid(plain, laying).tolist()]
        eligible = find_eligible(second, least)
        path, candidates = plain, rank(settings, first, eligible, target, least / len(second))
    else:
        paths = [plain] if accuracy is None else _variations(laying, layers, confident)
        path, candidates = _most_promising(paths, laying, first, len(second), target, confidence)
    chosen, certificate = try_in_turn(candidates, second, target, confidence, classes)
    return record_level(
        whole,
        path,
        chosen,
        left_out,
        "certified",
        certificate=certificate,
        watch=watch_part(path, second),
    )


def choose_usual(
    whole: Part,
    reference: Part | None,
    confidence: float,
    confident: bool = False,
    random_state: int = 0,
) -> Selection:
    """Choose without a goal: the largest coverage on which IK is certified to be wrong ten times
    less often than the model.

    If the samples cannot certify that, it is the level that three quarters of them reach, and
    `Selection.note` says how far the certificate got and what to ask for.
    """
    try:
        return certify_level(
            whole,
            reference,
            accuracy=None,
            confidence=confidence,
            confident=confident,
            random_state=random_state,
        )
    except SelectionError as error:
        laying = whole if reference is None else reference
        return replace(match_level(whole, laying, USUAL_COVERAGE, confident), note=str(error))


def _usual_accuracy(first: Part) -> float:
    """One error in ten of the model's, counting one error more than seen: none seen proves none."""
    return 1 - (int(first.wrong.sum()) + 1) / (len(first) + 2) / FEWER_ERRORS


def _variations(laying: Part, layers: Sequence[str], confident: bool | None) -> list[Levels]:
    """The plain path, and those on which nearness counts for less or the model is heard too."""
    voices = [(True, False)] if confident is not True else []
    if laying.confidence is not None and confident is not False:
        voices += [(True, True), (False, True)]
    return [
        lay_path(laying, layers, nearness=nearness, clarity=clarity, confident=confident)
        for (clarity, confident), nearness in product(voices, NEARNESSES)
    ]


def _most_promising(
    paths: Sequence[Levels],
    laying: Part,
    first: Part,
    n_second: int,
    accuracy: float,
    confidence: float,
) -> tuple[Levels, list[Candidate]]:
    """The path that promises the most coverage, the first of equals, and its candidates."""
    judged = [_judge(path, laying, first, n_second, accuracy, confidence) for path in paths]
    best = int(np.argmax([promise for promise, _ in judged]))
    path, grid = paths[best], judged[best][1]
    return path, [candidate_at(path, level) for level in grid.tolist()]


def _grid(levels: Levels, laying: Part) -> Floats:
    """Levels from the strictest to the most lenient, evenly spaced in coverage."""
    found = np.sort(find_levels(levels, laying))[::-1]
    found = found[found > 0]
    picked = np.linspace(0, max(0, len(found) - 1), STEPS).astype(int)
    return np.unique(found[picked])[::-1] if len(found) else found


def _judge(
    levels: Levels, laying: Part, first: Part, n_second: int, accuracy: float, confidence: float
) -> tuple[float, Floats]:
    """The coverage that a path promises, and its levels from the surest to the most lenient.

    Judged on the samples that choose, as if there were as many as certify.
    """
    grid = _grid(levels, laying)
    if not len(grid):
        return 0.0, grid
    found, scale = find_levels(levels, first), n_second / len(first)
    known, errors = _count_from(found, grid), _count_from(found[first.wrong], grid)
    doubts = p_values(np.rint(scale * errors), np.rint(scale * known), accuracy)
    # The strictest that looks safe: the surest of a few samples may fail, and ends the sequence.
    # Those that certify may hold fewer IK samples, by two standard deviations, and need enough.
    fewest = scale * (known - 2 * np.sqrt(known))
    enough = fewest >= least_samples(accuracy, confidence)
    safe = np.flatnonzero(enough & (doubts <= (1 - confidence) / SAFETY))
    surest = int(safe[0] if len(safe) else doubts.argmin())
    passing = np.flatnonzero(doubts <= 1 - confidence)
    promise = float(known[passing[-1]] / len(first)) if len(passing) else 0.0
    return promise, grid[surest:]


def _count_from(found: Floats, grid: Floats) -> Ints:
    """How many levels are at least each of `grid`."""
    return len(found) - np.searchsorted(np.sort(found), grid, side="left")
