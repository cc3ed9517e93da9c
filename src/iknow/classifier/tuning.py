"""Tuning: from validation samples to neighborhoods, by the goal that the user names.

A promise is about the evidence that it was made for. After a change it is stale, and fresh samples
can renew it: `recertify` chooses the rules again for the same goal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from iknow.classifier import gathering, parameters
from iknow.classifier.applying import make_stale
from iknow.classifier.changing import ChangingMixin
from iknow.classifier.copying import count_copies
from iknow.classifier.gathering import errors_that_name
from iknow.classifier.progress import track
from iknow.classifier.training import as_random_state
from iknow.core.arrays import Bools, Ints
from iknow.core.evidence import stack_evidence
from iknow.core.level import are_probabilities, log_odds
from iknow.core.quorum import Contrast, Quorum, find_contrast, weigh
from iknow.errors import InputError
from iknow.models.labels import check_count, check_trained, encode
from iknow.models.model import Observation
from iknow.models.samples import Samples
from iknow.search.index import Index
from iknow.search.layer import LayerIndex
from iknow.selection import Goal, Selection, check_unseen, choose
from iknow.selection.validation import Validation


def gather_validation(
    observations: Iterable[Observation],
    indexes: Mapping[str, Index],
    k: int,
    quorum: Quorum,
) -> tuple[Validation, Bools]:
    """Search the layers for what tuning needs; and which samples are invalid, of shape (n,)."""
    beliefs, invalid, odds, normalized = [], [], [], []
    parts: dict[str, list[Contrast]] = {layer: [] for layer in indexes}
    for observation in observations:
        belief = observation.belief
        for layer, index in indexes.items():
            with errors_that_name(layer):
                found = index.gather(observation.activations[layer], k, max(quorum))
            parts[layer].append(find_contrast(weigh(found, quorum, belief), belief))
        beliefs.append(belief)
        invalid.append(observation.invalid)
        normalized.append(are_probabilities(observation.scores))
        odds.append([log_odds(observation.scores, belief, each) for each in (False, True)])
    from_probabilities = all(normalized)
    evidence = {layer: stack_evidence(found) for layer, found in parts.items()}
    confidence = np.concatenate([each[from_probabilities] for each in odds])
    seen = Validation(evidence, np.concatenate(beliefs), None, confidence, from_probabilities)
    return seen, np.concatenate(invalid)


class TuningMixin(ChangingMixin):
    """`tune`, for a fitted classifier, and how to look at samples through its model and indexes."""

    def tune(
        self,
        X: Any,
        y: Any = None,
        *,
        accuracy: float | None = None,
        confidence: float = 0.95,
        each_class: bool = False,
        coverage: float | None = None,
        false_alarm: float | None = None,
        reference: Any = None,
        doubt: bool | None = None,
        method: Literal["exact", "grid", "bayes"] = "exact",
        k: int | Sequence[int] | None = None,
        time_limit: float = 60.0,
    ) -> Self:
        """Choose the neighborhoods on validation data.

        Without a goal, choose the largest coverage on which IK is certified, with confidence, to be
        wrong ten times less often than the model. If the samples are too few for that, choose the
        level that three quarters of them reach; `selection_.note` then says how far it got. The
        paper's rules choose the largest coverage.

        Args:
            X: n samples that are not in the training data, or a loader that yields them.
            y: Their labels, of shape (n,), unless the loader yields them; a coverage or a rate of
                false alarms needs none.
            accuracy: Choose the largest coverage whose accuracy on IK is certified to be at least
                this; raises a `SelectionError` if no coverage qualifies.
            confidence: Probability, over the draw of the data, with which that guarantee holds.
            each_class: Certify the accuracy of each class by itself.
            coverage: Match this coverage instead (for `RelativeBall` and `Nearest`).
            false_alarm: Choose the strictest level at which an ordinary sample fails to be IK with
                this probability at most.
            reference: Further samples without labels, not in the training data either, that show
                what is ordinary; otherwise a part of X does.
            doubt: Whether the model's own confidence is one more voice in levels: below its
                threshold a sample is IMK, for DOUBT. It gains on clean data and loses on foreign
                data. Default: only where an accuracy is asked for, and more coverage is certified
                with it.
            method: "grid" and "bayes" are for comparison.
            k: Number of neighbors, or several to try, for rules that use it.
            time_limit: Seconds that the search may take.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train)
            >>> print(f"{ec.tune(X_val, coverage=0.8).selection_.coverage:.2f}")
            0.80
        """
        check_is_fitted(self, "indexes_")
        if parameters.is_fixed(self.rule):
            raise InputError("nothing to tune: rule=... fixes it; give a class, such as rule=Ball")
        goal = Goal(
            method=method,
            accuracy=accuracy,
            confidence=confidence,
            each_class=each_class,
            coverage=coverage,
            false_alarm=false_alarm,
            model_confidence=doubt,
            k=self.k if k is None else k,
            time_limit=time_limit,
            random_state=int(as_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
        )
        return self._select(goal, self._samples(X, y), "validation", reference=reference)

    def _select(
        self,
        goal: Goal,
        samples: Samples,
        what: str,
        positions: Ints | None = None,
        reference: Any = None,
    ) -> Self:
        """Choose neighborhoods for a goal on some samples; positions: see `check_valid`."""
        view = self._view()  # so that all layers show the same evidence
        view._codes(samples)  # before the model does its work, if they are at hand
        seen = view._look(goal, samples, what, positions)
        y_true = view._codes(samples)
        others = None
        if reference is not None:
            others = view._look(goal, self._samples(reference), "reference")
        seen = replace(seen, y_true=y_true)
        if others is not None and others.from_probabilities != seen.from_probabilities:
            # The scores look like probabilities in one set alone, so they rank in neither.
            seen, others = replace(seen, confidence=None), replace(others, confidence=None)
        selection = choose(
            goal, seen, parameters.kind_of(self.rule), view.classes_, reference=others
        )
        with self._alone():
            self._choose(replace(selection, goal=goal), len(view.changes_))
        return self

    def _choose(self, selection: Selection, n_changes: int) -> None:
        """Use a selection, chosen on the evidence after so many changes."""
        if missed := self.changes_[n_changes:]:
            selection = make_stale(selection, missed[0])
        self._put(selection_=selection, neighborhoods_=dict(selection.neighborhoods))

    def _codes(self, samples: Samples) -> Ints | None:
        """The classes of samples, as far as their labels are known, of shape (n,)."""
        if (labels := self._labels(samples)) is None:
            return None
        if samples.n_samples is not None:
            check_count(labels, samples.n_samples)
        codes = encode(labels, self.classes_, "y")
        check_trained(codes, self.indexes_[self.layers_[0]].labels, self.classes_)
        return codes

    def _look(
        self, goal: Goal, samples: Samples, what: str, positions: Ints | None = None
    ) -> Validation:
        """What tuning needs to know about samples."""
        n_rows = self.indexes_[self.layers_[0]].n_rows
        rule = parameters.kind_of(self.rule)
        quorum = parameters.as_quorum(self.quorum, rule)
        seen, invalid = gather_validation(
            self._observe(samples, self.indexes_),
            self.indexes_,
            goal.neighbors_needed(rule, n_rows, quorum),
            quorum,
        )
        gathering.check_valid(invalid, what, positions, self.layers_)
        if positions is None:  # otherwise fit held them out itself
            check_unseen(*count_copies(seen.evidence, self.indexes_))
        return seen

    def _observe(
        self, samples: Samples, indexes: Mapping[str, LayerIndex], *, measuring: bool = False
    ) -> Iterator[Observation]:
        """What the model says about one batch after another, in the layers of some indexes.

        A model on its own device computes the next batch during the search for this one; on the
        same cores the two would only take turns.
        """
        model, layers, n_columns = self.model_, tuple(indexes), self._n_columns

        def observe(batch: Any) -> Observation:
            observation = model.observe(batch, layers)
            gathering.check_columns(observation.scores.shape[1], n_columns)
            return observation

        batches, n = samples.read(measuring=measuring), samples.n_batches
        shown = track(batches, n, "Gathering evidence", enabled=self.progress)
        ahead = n != 1 and model.is_elsewhere
        return gathering.map_ahead(observe, shown) if ahead else map(observe, shown)

    def recertify(self, X: Any, y: Any = None, *, reference: Any = None) -> Self:
        """Choose the neighborhoods again, for the goal that they were chosen for.

        Do this after changes of the evidence, which `selection_.stale` tells. It renews the
        certificate, the bound on false alarms and the watch, or raises a `SelectionError` if these
        samples certify nothing; then everything stays as it is. A watch that `watch` set is not
        renewed: call it again.

        Args:
            X: n fresh samples, as for `tune`: not in the training data, and not those that showed
                which changes to make.
            y: Their labels, of shape (n,), if the goal needs them.
            reference: As for `tune`.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train).tune(X_val, coverage=0.8)
            >>> ec.remove([3]).recertify(X_test).selection_.stale
            ''
        """
        check_is_fitted(self, "indexes_")
        if parameters.is_fixed(self.rule):
            raise InputError("nothing to recertify: rule=... fixes it, and nothing was certified")
        if not hasattr(self, "selection_"):
            raise InputError("recertify belongs to a tuned classifier: call tune first")
        if (goal := self.selection_.goal) is None:
            raise InputError(
                "this selection does not say what it was chosen for: call tune with the goal"
            )
        return self._select(goal, self._samples(X, y), "validation", reference=reference)
