"""Scenes: what a model says about ordinary samples, and about samples after a change.

In each a class is kept from training, and comes back as the new class. The path of levels is laid
by validation samples, so ordinary samples (the others, which neither trained nor tuned) are
exchangeable given the path, and any part of them may serve as reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.ndimage import rotate
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Floats, Floats32, Ints
from iknow.core.level import log_odds
from iknow.serve.monitor import watch_scores
from reproduction.data.datasets import read_grid_stability_12, read_gtsrb, read_mnist
from reproduction.setups import find_setup

ANGLES = np.arange(0, 46)
EACH_ANGLE = 250
MOST_CHANGED = 4_000


@dataclass(frozen=True, eq=False)
class Scores:
    """What detectors see of n samples. level, confidence, belief: (n,). layers: (n, n_layers)."""

    level: Floats
    layers: Floats
    belief: Ints
    confidence: Floats

    def __len__(self) -> int:
        return len(self.level)

    def __getitem__(self, rows: Any) -> Scores:
        return Scores(*(getattr(self, name)[rows] for name in FIELDS))


FIELDS = ("level", "layers", "belief", "confidence")


def join(parts: list[Scores]) -> Scores:
    return Scores(*(np.concatenate([getattr(each, name) for each in parts]) for name in FIELDS))


@dataclass(frozen=True, eq=False)
class Scene:
    """Scores of ordinary samples and, by the name of the change, of changed ones.

    rotated: by angle in degrees, for pictures.
    """

    name: str
    about: str
    classes: tuple[str, ...]
    layers: tuple[str, ...]
    ordinary: Scores
    changed: Mapping[str, Scores]
    rotated: tuple[Scores, ...] = ()


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples without the class that was kept, and those of that class."""

    train: tuple[Floats32, Ints]
    val: tuple[Floats32, Ints]
    fresh: Floats32
    unseen: Floats32


def _part(X: Floats32, y: Ints, unseen: int, sizes: tuple[int, int, int], seed: int = 0) -> Samples:
    """Samples in random order, cut into training, validation and fresh ones."""
    order = np.random.default_rng(seed).permutation(len(X))
    X, y = X[order], y[order]
    known, cuts = y != unseen, np.cumsum(sizes)
    inside, codes = X[known], np.unique(y[known], return_inverse=True)[1]
    parts = [slice(0, cuts[0]), slice(cuts[0], cuts[1]), slice(cuts[1], cuts[2])]
    return Samples(
        train=(inside[parts[0]], codes[parts[0]]),
        val=(inside[parts[1]], codes[parts[1]]),
        fresh=inside[parts[2]],
        unseen=X[~known][:MOST_CHANGED],
    )


def _assess(ec: EpistemicClassifier, X: Floats32) -> Scores:
    a = ec.assess(X)
    level, belief, layers = watch_scores(a)
    probabilities = a.levels is not None and a.levels.from_probabilities
    return Scores(level, layers, belief, log_odds(a.scores, belief, probabilities))


def _scene(
    name: str, about: str, ec: EpistemicClassifier, samples: Samples, noisy: Floats32
) -> Scene:
    ec.tune(samples.val[0], coverage=0.75)
    layers = ec.assess(samples.val[0][:2]).answers.watched_layers
    changed = {"noise": _assess(ec, noisy), "new class": _assess(ec, samples.unseen)}
    classes = tuple(str(label) for label in ec.classes_)
    return Scene(name, about, classes, layers, _assess(ec, samples.fresh), changed)


def _network(name: str, samples: Samples, epochs: int) -> tuple[EpistemicClassifier, str]:
    from reproduction.torch import measure_accuracy, one_thread, train_network

    setup = find_setup(name)
    training = replace(setup.training, epochs=epochs, until=None, least=0.0, batch=64)
    n_classes = int(samples.train[1].max()) + 1
    with one_thread():
        network, _ = train_network(
            setup.architecture, training, samples.train, samples.val, n_classes, 0
        )
        right = measure_accuracy(network, *samples.val)
    ec = EpistemicClassifier(network, progress=False).fit(*samples.train)
    return ec, f"the paper's network, {epochs} epochs, right on {right:.1%} of validation samples"


def _noisy(name: str, X: Floats32) -> Floats32:
    """The paper's normal noise."""
    noise = find_setup(name).noise
    assert noise.limits is not None
    moved = X + noise.gaussian * np.random.default_rng(1).standard_normal(X.shape)
    return np.clip(moved, *noise.limits).astype(np.float32)


def _rotated(ec: EpistemicClassifier, X: Floats32, side: int) -> tuple[Scores, ...]:
    """Scores by angle, of square pictures: of shape (n, side²) or (n, channels, side, side)."""
    rng, found = np.random.default_rng(2), []
    for angle in ANGLES.tolist():
        some = X[rng.choice(len(X), EACH_ANGLE, replace=False)]
        pictures = some.reshape(EACH_ANGLE, -1, side, side)
        turned = rotate(pictures, angle, axes=(3, 2), reshape=False, order=1, mode="nearest")
        found.append(_assess(ec, turned.reshape(some.shape).astype(np.float32)))
    return tuple(found)


def mnist() -> Scene:
    """Digits, without the nine."""
    data = read_mnist()
    X = np.concatenate([data.train.X, data.test.X]) if data.test is not None else data.train.X
    y = np.concatenate([data.train.y, data.test.y]) if data.test is not None else data.train.y
    samples = _part(X.astype(np.float32), y, unseen=9, sizes=(20_000, 2_000, 20_000))
    ec, about = _network("mnist", samples, epochs=12)
    some = samples.fresh[:MOST_CHANGED]
    scene = _scene("MNIST", about, ec, samples, _noisy("mnist", some))
    return replace(scene, rotated=_rotated(ec, some, 28))


def gtsrb() -> Scene:
    """Groups of traffic signs, without one of them.

    The pictures of a training track are alike, so fresh samples are of the published test part.
    """
    data = read_gtsrb()
    assert data.test is not None
    train = _part(data.train.X.astype(np.float32), data.train.y, 1, (10_000, 0, 0))
    test = _part(data.test.X.astype(np.float32), data.test.y, 1, (0, 2_000, 9_000))
    samples = replace(test, train=train.train)
    ec, about = _network("gtsrb", samples, epochs=4)
    some = samples.fresh[:MOST_CHANGED]
    scene = _scene("GTSRB", about, ec, samples, _noisy("gtsrb", some))
    return replace(scene, rotated=_rotated(ec, some, 32))


def _forest(
    name: str, X: Floats32, y: Ints, unseen: int | None, sizes: tuple[int, int, int]
) -> Scene:
    samples = _part(X, y, -1 if unseen is None else unseen, sizes)
    forest = RandomForestClassifier(100, random_state=0).fit(*samples.train)
    ec = EpistemicClassifier(forest, progress=False).fit(*samples.train)
    rng, spread = np.random.default_rng(1), samples.train[0].std(axis=0)
    noisy = samples.fresh + 0.3 * spread * rng.standard_normal(samples.fresh.shape)
    if unseen is None:  # with two classes there is none to keep: each feature from another sample
        mixed = [rng.permutation(column) for column in samples.fresh.T]
        samples = replace(samples, unseen=np.column_stack(mixed)[:MOST_CHANGED])
    return _scene(name, "a random forest", ec, samples, noisy.astype(np.float32))


def grid() -> Scene:
    """The power grid: two classes, so instead of a new class features that do not fit together."""
    part = read_grid_stability_12().train
    codes = np.unique(part.y, return_inverse=True)[1]
    return _forest("Grid", part.X.astype(np.float32), codes, None, (2_500, 1_000, 6_500))


def made() -> Scene:
    """A made-up table of twenty features and five classes."""
    x, y = make_classification(
        12_000, 20, n_informative=6, n_redundant=4, n_classes=5, n_clusters_per_class=1,
        flip_y=0.02, class_sep=1.2, random_state=0,
    )  # fmt: skip
    return _forest("made", x.astype(np.float32), y, 4, (2_500, 1_000, 6_000))


DESIGN: dict[str, Callable[[], Scene]] = {"grid": grid, "made": made}
HELD_OUT: dict[str, Callable[[], Scene]] = {"mnist": mnist, "gtsrb": gtsrb}


def make_scenes(names: list[str]) -> Iterator[Scene]:
    for name in names:
        yield (DESIGN | HELD_OUT)[name]()
