"""Watching: fresh samples for an alarm to compare a stream with.

`tune` sets samples apart for this where it can (`iknow.selection.watch`). Where it cannot, as with
the paper's rules or a coverage to match, or where the stream differs from the validation data for a
known reason, give fresh samples here: no labels are needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from iknow.classifier.copying import count_copies
from iknow.classifier.predicting import PredictingMixin
from iknow.core.level import CLARITY, NEARNESS, Levels, near_and_clear
from iknow.core.quorum import find_contrast, weigh
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.monitor.scores import watch_scores, watched_layers
from iknow.search.layer import LayerIndex
from iknow.selection import check_unseen, make_watch
from iknow.selection.validation import LEVEL, chance_of_copies


class WatchingMixin(PredictingMixin):
    """`watch`, for a tuned classifier."""

    def watch(self, X: Any) -> Self:
        """Take fresh samples as what is ordinary, for `iknow.monitor.DriftAlarm` to compare with.

        They take the place of those that `tune` set apart, in `selection_.watch`, and are saved
        with the classifier: not the samples, but their levels, of at most 20,000 of them.

        Args:
            X: n samples like those to come, which have neither trained the model nor tuned the
                classifier, or a loader that yields them.

        Raises:
            InputError: They are training samples, or those that tuned, as far as that shows.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train).tune(X_val, coverage=0.8)
            >>> len(ec.watch(X_test).selection_.watch) == len(X_test)
            True
        """
        check_is_fitted(self, "indexes_")
        if not hasattr(self, "selection_"):
            raise InputError(
                "watch belongs to a tuned classifier: call tune first; with fixed neighborhoods "
                "an alarm compares the stream with its own beginning"
            )
        assessed: Assessment = self.assess(X, evidence=True)  # type: ignore[attr-defined]
        indexes = {layer: self.indexes_[layer] for layer in assessed.evidence}
        check_unseen(*count_copies(assessed.evidence, indexes))
        if assessed.levels is not None:
            _check_apart(assessed, assessed.levels, indexes)
        watch = make_watch(*watch_scores(assessed), watched_layers(assessed))
        if watch is None:
            raise InputError("watch needs at least one sample; got none")
        with self._alone():  # a change meanwhile must not be forgotten
            self.selection_ = replace(self.selection_, watch=watch)
        return self


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
