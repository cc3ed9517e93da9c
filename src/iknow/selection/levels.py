"""Choosing a level: one threshold along the path that reference samples fix (`iknow.core.level`).

The path is laid before any label of the samples that certify is looked at, so along it

    coverage       is matched by the level that this share of the validation samples reaches
    false alarm    is bounded without labels: see `limit_false_alarm`
    accuracy       is certified by exact tests in turn: see `iknow.selection.level_guarantee`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.level import Levels, refer
from iknow.core.quorum import find_contrast, quorum_of
from iknow.errors import InputError, SelectionError
from iknow.rules import RelativeBall
from iknow.selection.candidates import Candidate, Part
from iknow.selection.copies import LEVEL, chance_of_copies
from iknow.selection.matching import match_threshold
from iknow.selection.meaning import find_meaningless
from iknow.selection.selection import Certificate, Selection, mean_or_nan
from iknow.selection.watch import Watch, make_watch

MOST_REFERENCES = 100_000
"""Samples that lay a path at most: more say little more, and every bundle would carry them."""


def lay_path(
    part: Part,
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
    return Levels(
        {layer: refer(find_contrast(part.evidence[layer], part.belief)) for layer in layers},
        quorum=quorum_of(part.evidence),
        nearness=nearness,
        clarity=clarity,
        confidence=np.sort(part.confidence) if confident and part.confidence is not None else None,
        from_probabilities=part.from_probabilities,
    )


def find_levels(levels: Levels, part: Part) -> Floats:
    """The level of each sample, of shape (n,)."""
    lowest: Floats = _hear(levels, part).min(axis=1)
    return lowest


def watch_part(levels: Levels, part: Part) -> Watch | None:
    """The watch of samples that did not lay the path."""
    voices = _hear(levels, part)
    return make_watch(voices.min(axis=1), part.belief, levels.by_layer(voices), list(levels.layers))


def _hear(levels: Levels, part: Part) -> Floats:
    evidence = {layer: find_contrast(part.evidence[layer], part.belief) for layer in levels.layers}
    return levels.ranks(evidence, part.confidence)


def candidate_at(levels: Levels, level: float) -> Candidate:
    """The setting with which exactly the samples of at least this level are IK."""
    settings, least = levels.at(level)
    rules = {name: RelativeBall(*each, quorum=levels.quorum) for name, each in settings.items()}
    return Candidate(rules, least_confidence=least, level=level)


def match_level(part: Part, reference: Part, coverage: float, confident: bool = False) -> Selection:
    """Choose the level that this share of the samples reaches.

    reference: the samples that lay the path, often the same ones. confident: see `lay_path`.
    """
    if not 0 < coverage <= 1:
        raise InputError(f"a coverage to match must lie in (0, 1]; got {coverage}")
    left_out = find_meaningless(reference)
    levels = lay_path(reference, kept_layers(part, left_out), confident=confident)
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
    apart = reference is not part and not _count_copies(part, reference)
    watch = watch_part(levels, part) if apart else None
    chosen = candidate_at(levels, level)
    return record_level(part, levels, chosen, left_out, "matched", watch=watch)


def limit_false_alarm(
    part: Part, reference: Part, false_alarm: float, confident: bool = False
) -> Selection:
    """Choose the largest level that an ordinary sample falls below with a bounded probability.

    The samples of `part` did not lay the path, so an ordinary sample and they are exchangeable: of
    the n + 1 levels its own is among the j lowest with probability j / (n + 1) at most. The level
    number j of the n is therefore missed with at most that probability, over the draw of all of
    them, without labels and whatever the number of layers. (Testing each u and v by itself would
    cost a factor of their number.)
    """
    if not 0 < false_alarm < 1:
        raise InputError(f"a false alarm rate must lie between 0 and 1; got {false_alarm}")
    _check_apart(part, reference)
    rank_allowed = int(np.floor(false_alarm * (len(part) + 1) * (1 + 1e-12)))
    if rank_allowed < 1:
        raise SelectionError(
            f"too few samples: a false alarm rate of {false_alarm:.4g} takes at least "
            f"{int(np.ceil(1 / false_alarm)) - 1} samples besides those that lay the path; got "
            f"{len(part)}"
        )
    left_out = find_meaningless(reference)
    levels = lay_path(reference, kept_layers(part, left_out), confident=confident)
    level = float(np.sort(find_levels(levels, part))[rank_allowed - 1])
    if level <= 0:
        raise SelectionError(
            f"more than {false_alarm:.4g} of the samples cannot be IK at any level, as their "
            "believed class has too few training samples, or another class lies on top of them, or "
            "they are stranger than all reference samples: ask for a higher rate, or give more "
            "reference samples"
        )
    chosen = candidate_at(levels, level)
    return record_level(
        part,
        levels,
        chosen,
        left_out,
        "false alarm",
        false_alarm=float(false_alarm),
        watch=watch_part(levels, part),
    )


def kept_layers(part: Part, left_out: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(layer for layer in part.evidence if layer not in left_out)


def _check_apart(part: Part, reference: Part) -> None:
    """Refuse samples that are reference samples too, beyond what chance explains."""
    if copied := _count_copies(part, reference):
        raise InputError(
            f"{copied} of the {len(part)} samples are reference samples too, and a sample ranks "
            "higher among those that include it, so the promise would not hold: give other "
            "samples as reference, or none"
        )


def _count_copies(part: Part, reference: Part) -> int:
    """How many samples are reference samples too; 0 if chance explains them.

    Copies have the same distances in every layer.
    """
    ours, others = (_distances_of(each) for each in (part, reference))
    known = Counter(row.tobytes() for row in others)
    copied = sum(row.tobytes() in known for row in ours)
    repeated = sum(count for count in known.values() if count > 1)
    unlikely = chance_of_copies(copied, len(ours), repeated, len(others)) <= LEVEL
    return copied if unlikely else 0


def _distances_of(part: Part) -> Floats:
    contrasts = [find_contrast(each, part.belief) for each in part.evidence.values()]
    columns = [column for each in contrasts for column in (each.own, each.other)]
    return np.column_stack(columns)


def record_level(
    part: Part,
    levels: Levels,
    chosen: Candidate,
    left_out: Mapping[str, str],
    method: str,
    *,
    certificate: Certificate | None = None,
    false_alarm: float | None = None,
    watch: Watch | None = None,
) -> Selection:
    """The record of a chosen level, measured by applying it; accuracies are NaN without labels."""
    known = chosen.find_known(part)
    right = np.empty(0, dtype=bool) if part.y_true is None else ~part.wrong
    inside, outside = (right[known], right[~known]) if len(right) else (right, right)
    return Selection(
        neighborhoods=dict(chosen.neighborhoods),
        coverage=float(known.mean()),
        accuracy=mean_or_nan(inside),
        accuracy_outside=mean_or_nan(outside),
        method=method,
        optimal=False,
        best_possible=1.0,
        n_samples=len(part),
        certificate=certificate,
        knowable=chosen.classes,
        levels=levels,
        level=chosen.level,
        least_confidence=chosen.least_confidence,
        false_alarm=false_alarm,
        left_out=dict(left_out),
        watch=watch,
    )
