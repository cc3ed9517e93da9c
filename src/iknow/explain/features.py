"""Features: which of them the distances between a sample and training samples come from.

A metric whose coordinates each belong to one feature splits the p-th power of a distance into what
each feature adds (`iknow.metrics.metric.contributions`). Few features usually make up most of it,
and they come first. Of words, measured by direction, those that a sample shares with its neighbors
matter as well: a word adds the product of its two weights to their cosine.

Values are those that the layer measured. A category is a code there: its name comes from the
samples, if they are given, or from the model, which knows those that it has read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.rule import promise_of
from iknow.core.text import name
from iknow.metrics.metric import Cosine, contributions
from iknow.metrics.table import A_CATEGORY, A_GAP, Table

MOST_SHOWN = 6  # features, and as many words that are shared
ENOUGH = 0.95  # of a distance: what the features beyond add is not worth a line
MARKED = 0.1  # of a distance
MISSING = "missing"


@dataclass(frozen=True)
class FeatureDifference:
    """One feature of a sample beside the same of the training samples that a layer names.

    Attributes:
        feature: Its name.
        value: That of the sample: a number or a text.
        values: Those of the training samples for, and then of those against.
        marked: Which of these differ so much that it makes a tenth of their distance or more.
        share: What it adds to the p-th power of the distance to the deciding sample, the last one
            for, as a share of it; 0 if the distance is 0.
        unseen: What training never had, in words; empty if there is nothing new.

    Examples:
        >>> print(FeatureDifference("age", 91.0, (40.0, 38.0), (True, True), 0.97))
        age 91 (97%)
    """

    feature: str
    value: float | str
    values: tuple[float | str, ...]
    marked: tuple[bool, ...]
    share: float
    unseen: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """Name, value, values and share as text, * after those that are marked."""
        marks = ("*" if each else "" for each in self.marked)
        others = (told(v) + mark for v, mark in zip(self.values, marks, strict=True))
        return (self.feature, told(self.value), *others, self.unseen or f"{self.share:.0%}")

    def to_dict(self, training: bool) -> dict[str, Any]:
        """Return plain values; `training`: whether to tell those of training samples."""
        hidden = {
            *(() if training else ("values", "marked")),
            *(() if self.unseen else ("unseen",)),
        }
        shown = {name: each for name, each in vars(self).items() if name not in hidden}
        return shown | {"share": round(self.share, 4)}

    def __str__(self) -> str:
        return f"{self.feature} {told(self.value)} ({self.unseen or f'{self.share:.0%}'})"


@dataclass(frozen=True, eq=False)
class Measured:
    """What the layers measured about n samples: enough to split distances into features.

    Attributes:
        activations: By layer, of shape (n_all, n_features); none if they were too large to keep.
        indexes: The training samples of each layer.
        names: Gives the names of a layer's features, None for a layer whose features say nothing.
        model: Knows the names of categories by their codes, and the words of training.
        positions: Of the n samples among all, of shape (n,).
        kept: The numbers of a few training samples, and these samples, as the model takes them.
    """

    activations: Mapping[str, Any]
    indexes: Mapping[str, Any]
    names: Callable[[str], Sequence[str] | None]
    model: Any
    positions: Ints
    kept: tuple[Ints, Any] | None = None

    def __getitem__(self, samples: Any) -> Measured:
        return replace(self, positions=self.positions[samples])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a copy elsewhere has neither the model nor the training samples

    def compare(
        self, layer: str, rows: Sequence[int], deciding: int, raw: Sequence[Any]
    ) -> tuple[FeatureDifference, ...]:
        """The features of the first sample that matter, beside those of training rows.

        deciding: the place among `rows` of the one whose distance is split. raw: the sample and
        those of the rows as they came, None where that is not known.
        """
        names = self.names(layer)
        if names is None or layer not in self.activations or not rows:
            return ()
        index, query = self.indexes[layer], self.activations[layer][self.positions[:1]]
        metric, order = index.metric, np.argsort(rows)
        points = np.empty((len(rows), index.n_features), dtype=np.float32)
        points[order] = index.take(np.asarray(rows)[order])[0]
        point = np.asarray(metric.transform(query))[0]
        added = contributions(metric, point.astype(np.float32), points)
        if added is None or len(names) != added.shape[1]:
            return ()
        if isinstance(metric, Cosine):
            if not query.any():
                return ()
            shown = _most(np.where(query[0] != 0, points[deciding] * point, 0.0))
            here, there = point, points
        else:
            shown, here = [], query[0]
            there = promise_of(metric, "restore", "transform")(points)
        if there is None:  # a metric of the user's
            return ()
        shares = added[deciding] / max(float(added[deciding].sum()), np.finfo(np.float64).tiny)
        news = metric.unseen(query)[0]
        marked, found = added > MARKED * added.sum(axis=1, keepdims=True), []
        for j in dict.fromkeys([*news, *_most(shares), *shown]):  # what is new comes first
            columns = zip([here, *there], raw, strict=True)
            value, *values = (self._read(metric, v, j, each) for v, each in columns)
            more = tuple(marked[:, j].tolist()), float(shares[j]), news.get(j, "")
            found.append(FeatureDifference(name(names[j]), value, tuple(values), *more))
        return tuple(found)

    def rank(self, layer: str, rows: Ints) -> tuple[Sequence[str], Ints, Floats] | None:
        """The features that add most to the distances from n samples to a training row each.

        Returns the names of the layer's features, their places of shape (n, `MOST_SHOWN`), the
        largest share first, filled up with -1, and the shares; None if features say nothing.
        """
        names = self.names(layer)
        if names is None or layer not in self.activations:
            return None
        index, shape = self.indexes[layer], (len(rows), MOST_SHOWN)
        places, shares = np.full(shape, -1), np.zeros(shape)
        for i in np.flatnonzero(rows >= 0):
            query = self.activations[layer][self.positions[[i]]]
            point = np.asarray(index.metric.transform(query), dtype=np.float32)[0]
            added = contributions(index.metric, point, index.take(rows[[i]])[0])
            if added is None or added.shape[1] != len(names):
                return None
            most = _most(added[0])
            places[i, : len(most)], shares[i, : len(most)] = most, added[0, most] / added.sum()
        return names, places, shares

    def find_unknown(self, layer: str, sample: Any) -> tuple[str, ...]:
        """The words of the sample that training never had, if it is a text, or that it has none."""
        words = tuple(self.model.unknown_words(sample)) if isinstance(sample, str) else ()
        of_words = isinstance(self.indexes[layer].metric, Cosine) and self.names(layer)
        if words or not of_words or layer not in self.activations:
            return words
        return () if self.activations[layer][self.positions[0]].any() else ("all that is in it",)

    def _read(self, metric: Any, values: Any, j: int, raw: Any) -> float | str:
        """The value of feature j of a sample."""
        flag = values[len(values) // 2 + j] if isinstance(metric, Table) else 0
        if flag == A_GAP:
            return MISSING
        if flag == A_CATEGORY:
            if raw is not None and len(raw) == len(values) // 2:
                return name(raw.iloc[j] if hasattr(raw, "iloc") else raw[j])
            return str(self.model.categories.get(float(values[j]), "another category"))
        return float(values[j])


def _most(added: Floats) -> list[int]:
    """The largest of what features add, the largest first, until that is enough of the whole."""
    order = np.argsort(-added, kind="stable")[:MOST_SHOWN]
    before = np.cumsum(added[order]) - added[order]
    kept: list[int] = order[(added[order] > 0) & (before < ENOUGH * added.sum())].tolist()
    return kept


def told(value: float | str) -> str:
    """A value as text."""
    return value if isinstance(value, str) else f"{value:.4g}"
