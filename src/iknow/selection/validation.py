"""Validation: samples that trained nothing, as selection sees them.

A part of the samples chooses and the rest certifies, drawn at random.

**Seen before?** A copy of a training sample, at distance 0 in every layer, proves nothing by
itself, as data may repeat itself. But after a random split a validation sample has a copy in the
training set as often as a training sample has one among the others. So we compare the two shares by
Fisher's exact test.

Training samples that are alike come at least in pairs, and both count, so the test takes half as
many independent observations. (With pairs that is exact: given that a pair is not both in the
validation set, it is divided with probability n / (n + N / 2).) Validation samples that are alike
are not independent either: all of them have a copy, or none. If a quarter of the training samples
or more have copies, validation samples count as no more than the training set; if fewer, as
something in between.

A network's activations for one input vary slightly with the batch size, so two samples count as
copies if they are at most a hundred-thousandth of the layer's size apart, validation samples and
training samples alike. Leaves of trees say nothing here: a tree grows until it tells its training
samples apart, and every other sample shares a leaf with one.

Of the samples that laid a path of levels only their distances and ratios are known, each sorted by
itself: a copy finds its own everywhere among them.

**Of the same kind?** If validation samples have another unit, or were prepared otherwise, strange
samples are ordinary from then on, and nothing is IDK any more. So we compare, in what enters the
model, how far they and training samples are from the nearest other training sample, and from the
middle of the training data. Draws from the same source exceed the 98th percentile of training
samples about twice in a hundred. We tell if more than a quarter do, by a binomial test: that is no
drift, but another kind of data. In layers that the model has learned, training samples are nearer
to one another than any others, so these say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import binom, hypergeom

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.evidence import Evidence
from iknow.core.level import Levels, value_of
from iknow.core.quorum import Contrast, ValidationEvidence, find_contrast, weigh
from iknow.errors import InputError, warn

SHARE_TO_CHOOSE = 5  # one in five chooses: a bound takes many samples and a choice few


@dataclass(frozen=True, eq=False)
class Validation:
    """What is known about n validation samples.

    Attributes:
        evidence: By layer.
        belief: What the model believes, as class codes of shape (n,).
        y_true: The truth, as class codes of shape (n,); None where labels are not needed.
        confidence: The model's, see `iknow.core.level.log_odds`, of shape (n,), if known.
        from_probabilities: Whether the model's scores are probabilities, as there.
        views: Kinds of views of each sample over which the confidence is averaged.

    Examples:
        >>> len(Validation(evidence, belief, y_true))
        75
    """

    evidence: ValidationEvidence
    belief: Ints
    y_true: Ints | None
    confidence: Floats | None = None
    from_probabilities: bool = False
    views: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n_true = len(self.belief if self.y_true is None else self.y_true)
        n_found = [len(layer) for layer in self.evidence.values()]
        if {len(self.belief), *n_found} != {n_true} or not n_found:
            raise InputError(
                "evidence of at least one layer, belief and truth must be about the same samples; "
                f"got {len(self.belief)} beliefs, {n_true} truths and evidence about {n_found}"
            )

    def __len__(self) -> int:
        return len(self.belief)

    def __getitem__(self, rows: Ints) -> Validation:
        contrasts = {layer: each[rows] for layer, each in self.contrasts.items()}
        truth = None if self.y_true is None else self.y_true[rows]
        confidence = None if self.confidence is None else self.confidence[rows]
        return replace(
            self,
            evidence=contrasts,
            belief=self.belief[rows],
            y_true=truth,
            confidence=confidence,
        )

    @property
    def contrasts(self) -> dict[str, Contrast]:
        """What each layer says for and against the beliefs."""
        return {layer: find_contrast(each, self.belief) for layer, each in self.evidence.items()}

    @property
    def wrong(self) -> Bools:
        """Mask of shape (n,) of the wrong beliefs."""
        if self.y_true is None:
            raise InputError("an accuracy needs labels: give y too")
        return np.asarray(self.belief != self.y_true)


def split(whole: Validation, random_state: int, share: int = SHARE_TO_CHOOSE) -> list[Validation]:
    """The samples that choose, one in `share`, and those that certify, drawn at random."""
    return [whole[rows] for rows in split_rows(len(whole), random_state, share)]


def split_rows(n: int, random_state: int, share: int = SHARE_TO_CHOOSE) -> tuple[Ints, Ints]:
    """The rows of the samples that choose, and of those that certify, both ascending."""
    order = np.random.default_rng(random_state).permutation(n)
    cut = max(1, n // share)
    return np.sort(order[:cut]), np.sort(order[cut:])


def count_from(found: Floats, grid: Floats) -> Ints:
    """How many levels are at least each of `grid`."""
    return len(found) - np.searchsorted(np.sort(found), grid, side="left")


def match_threshold(confidence: Floats, coverage: float) -> float:
    """Return the threshold t for which the fraction of `confidence >= t` is closest to `coverage`.

    `confidence`: such as the highest scores, of shape (n,).

    Examples:
        >>> match_threshold(np.array([0.5, 0.7, 0.8, 0.9]), 0.5)
        0.8
    """
    candidates = np.append(np.unique(confidence), np.inf)
    fractions = 1 - np.searchsorted(np.sort(confidence), candidates) / len(confidence)
    return float(candidates[np.abs(fractions - coverage).argmin()])


LEVEL = 1e-4  # of honest random splits, at most this share is refused
SUSPICIOUS = 1e-2  # and this share warned about: few copies or training samples prove no more
TOLERANCE = 1e-5  # of the typical length of a layer's points: so far apart are copies at most
SAMPLES_MEASURED = 4096  # of the training samples
ROWS_AT_ONCE = 512
FEWEST_TRAINED = 50  # samples, to compare others with
MOST_COMPARED = 200  # training samples
BEYOND = 0.02  # of training samples are farther, or nearer
STRANGE = 0.25  # of validation samples

Indexes = Mapping[str, Any]  # the training samples by layer, as `iknow.search.layer.LayerIndex`


def check_unseen(evidence: ValidationEvidence, indexes: Indexes) -> None:
    """Refuse samples that fit has seen, or warn. indexes: of the layers of the evidence."""
    check_copies(*count_copies(evidence, indexes))


def count_copies(evidence: ValidationEvidence, indexes: Indexes) -> tuple[int, int, int, int]:
    """Count the copies and all samples, then the same for the training samples.

    Training samples are checked only if there is a copy, at most `SAMPLES_MEASURED` of them.
    """
    n_samples = max(map(len, evidence.values()))
    n_rows = next(iter(indexes.values())).n_rows
    step = -(-n_rows // SAMPLES_MEASURED)
    rows, limits = np.arange(0, n_rows, step), dict[str, Any]()
    for layer, index in indexes.items():
        if index.metric.p != 0:
            some = index.points[::step]
            squares = np.einsum("ij,ij->", some, some, dtype=np.float64)
            limits[layer] = TOLERANCE * np.sqrt(squares / len(rows))

    def copies(nearest: Callable[[str], Floats]) -> int:
        close = [nearest(layer) <= limit for layer, limit in limits.items()]
        return int(np.logical_and.reduce(close).sum())

    def nearest_other(layer: str) -> Floats:
        """From training samples: each is its own nearest neighbor, so the other comes second."""
        parts = (rows[at : at + ROWS_AT_ONCE] for at in range(0, len(rows), ROWS_AT_ONCE))
        found = [indexes[layer].gather_among(part, 2).neighbor_distance(2) for part in parts]
        return np.concatenate(found)

    if not limits or not (copied := copies(lambda layer: distance_to_any(evidence[layer]))):
        return 0, n_samples, 0, n_rows
    return copied, n_samples, copies(nearest_other), len(rows)


def distance_to_any(found: Contrast | Evidence) -> Floats:
    """The distance to the nearest sample of all, which a quorum may not count, of shape (n,)."""
    return found.neighbor_distance(1) if found.n_neighbors > 0 else found.nearest_distance()


def warn_of_strangers(
    index: Any, found: Contrast | Evidence, ours: Floats, training: Floats, what: str
) -> None:
    """Warn of samples that look unlike the training data.

    index: the training samples, as `iknow.search.layer.LayerIndex`. found: what it found about the
    others. ours, training: sketches of both. what: the samples, in words.
    """
    if len(training) < FEWEST_TRAINED:
        return
    some = np.linspace(0, len(training) - 1, min(len(training), MOST_COMPARED)).astype(np.int64)
    to_others = index.gather_among(some, 2).neighbor_distance(2)  # each is nearest to itself
    center = training.mean(axis=0)
    theirs, usual = (np.linalg.norm(each - center, axis=1) for each in (ours, training[some]))
    for values, typical, words in (
        (distance_to_any(found), to_others, "farther from the nearest training sample"),
        (theirs, usual, "farther from the middle of the training data"),
        (-theirs, -usual, "nearer to the middle of the training data"),
    ):
        n_strange = int((values > np.quantile(typical, 1 - BEYOND)).sum())
        if binom.sf(n_strange - 1, len(values), STRANGE) <= LEVEL:
            warn(
                f"{n_strange:,} of the {len(values):,} {what} samples are {words} than "
                f"{1 - BEYOND:.0%} of the training samples are, so they are another kind of data, "
                "and tuning takes what is like them for ordinary: check units, scaling and "
                "preprocessing, or give samples like those that you will assess"
            )
            return


def check_not_tuned(
    evidence: Mapping[str, Evidence], belief: Ints, path: Levels, indexes: Indexes
) -> None:
    """Refuse samples that laid a path, as far as that shows; whole numbers agree by chance."""
    telling = [layer for layer in path.layers if indexes[layer].metric.p != 0]
    copied, repeated = np.full(len(belief), bool(telling)), path.n_samples
    for layer in telling:
        contrast = find_contrast(weigh(evidence[layer], path.quorum, belief), belief)
        for voice in (each for each in path.voices if each.layer == layer):
            ours = value_of(voice.name, contrast)
            copied &= np.isin(ours, voice.reference) & np.isfinite(ours)
            counts = np.unique(voice.reference, return_counts=True)[1]
            repeated = min(repeated, int(counts[counts > 1].sum()))
    n = int(copied.sum())
    if chance_of_copies(n, len(belief), repeated, path.n_samples) <= LEVEL:
        raise InputError(
            f"{n} of the {len(belief)} samples are among those that tuned the classifier, and seem "
            "more ordinary than new ones: give fresh samples to watch"
        )


def check_copies(n_copied: int, n_samples: int, n_repeated: int, n_training: int) -> None:
    """Refuse validation data with more copies than a random split explains, or warn.

    Of the `n_samples` validation samples, `n_copied` have a copy in the training set; of the
    `n_training` training samples, `n_repeated` have one among the others.
    """
    chance = chance_of_copies(n_copied, n_samples, n_repeated, n_training)
    if chance > SUSPICIOUS:
        return
    message = (
        f"{n_copied} of the {n_samples} validation samples are copies of training samples, while "
        f"{n_repeated} of {n_training} training samples have a copy among the others: a random "
        f"split gives that with a probability of {max(chance, 1e-99):.0e}. What you choose or "
        "certify on samples that fit has seen says nothing about new ones: give others, or leave "
        "the copies out"
    )
    if chance <= LEVEL:
        raise InputError(message)
    warn(message)


def chance_of_copies(n_copied: int, n_samples: int, n_repeated: int, n_training: int) -> float:
    """An upper bound on the probability that a random split gives `n_copied` copies or more."""
    pairs, independent = n_repeated // 2, n_training // 2
    repeating = min(1.0, 4 * n_repeated / max(n_training, 1))
    n_told = int((1 - repeating) * n_samples + repeating * min(n_samples, independent))
    copied = n_copied * n_told // max(n_samples, 1)
    return float(hypergeom.sf(copied - 1, independent + n_told, pairs + copied, n_told))


def count_shared(part: Validation, reference: Validation) -> int:
    """How many samples are reference samples too; 0 if chance explains them.

    Copies have the same distances in every layer.
    """
    ours, others = (
        np.column_stack(
            [side for each in one.contrasts.values() for side in (each.own, each.other)]
        )
        for one in (part, reference)
    )
    known = Counter(row.tobytes() for row in others)
    copied = sum(row.tobytes() in known for row in ours)
    repeated = sum(count for count in known.values() if count > 1)
    unlikely = chance_of_copies(copied, len(ours), repeated, len(others)) <= LEVEL
    return copied if unlikely else 0
