"""Compare: iknow and its peers on the user's own model and data, at equal coverage.

Every method scores the same answers of the same model. Its threshold is chosen on clean validation
data, so that all assert equally much of it (`match_coverage`). Then each meets the test data,
several perturbations of it, and whatever sets the user names, and we count what is asserted and
wrong.

A fifth of the validation data fits what peers fit on labels (a temperature) and lays the sequence
of thresholds to certify; the rest certifies. Thresholds at equal coverage need no labels and use
all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Floats
from iknow.core.codes import positions_of
from iknow.core.text import as_real
from iknow.errors import InputError
from iknow.evaluation.certified import split_validation
from iknow.evaluation.comparison import OURS, Comparison
from iknow.evaluation.observing import find_observer
from iknow.evaluation.peers import Observed, Peer, default_peers
from iknow.evaluation.perturbations import PERTURBATIONS, Perturbation
from iknow.evaluation.tabulating import Scored, tabulate
from iknow.models.labels import as_labels, as_vector, encode
from iknow.models.numbers import as_numbers

Pair = tuple[Any, Any]
TEST = "test"


def compare(
    classifier: Any,
    training: Pair,
    validation: Pair,
    test: Pair,
    *,
    sets: Mapping[str, Pair] | None = None,
    coverages: Sequence[float] = (0.6, 0.75, 0.9),
    perturbations: Sequence[Perturbation] = PERTURBATIONS,
    peers: Sequence[Peer] | None = None,
    accuracy: float = 0.99,
    confidence: float = 0.95,
    random_state: int = 0,
) -> Comparison:
    """Compare iknow with other methods on one model's answers.

    Args:
        classifier: A tuned `EpistemicClassifier`; it stays as it is.
        training: The (X, y) that it was fitted on.
        validation: (X, y) that neither it nor its model was trained on.
        test: Further (X, y), as clean as the validation data.
        sets: Other data, by name: (X, y), or (X, None) where no answer can be right, such as
            foreign data. Labels that the model does not know are wrong whatever it says.
        coverages: Shares of clean data to assert.
        perturbations: What to do to the test data; see `iknow.evaluation.perturbations`.
        peers: Unfitted methods to compare with. Default: all that apply to the model.
        accuracy: The accuracy to certify on what is asserted.
        confidence: Confidence of certificates and intervals.
        random_state: Seed for perturbations, splits and resampling.

    Examples:
        >>> comparison = compare(ec, (X_train, y_train), (X_val, y_val), (X_test, y_test))
        >>> comparison.methods[:2]
        ('iknow', 'softmax')
    """
    for value, what in ((accuracy, "accuracy"), (confidence, "confidence")):
        as_real(value, what, "lie between 0 and 1, both excluded", lambda number: 0 < number < 1)
    asker = _Asker(classifier, training, validation, peers, random_state)
    clean = asker.score("validation", validation[0], as_vector(validation[1], "y"))
    scored = [
        asker.score(name, X, truth, own=own)
        for name, X, truth, own in _all_sets(training[0], test, perturbations, sets, random_state)
    ]
    return tabulate(
        asker.methods,
        clean,
        scored,
        coverages=tuple(float(coverage) for coverage in coverages),
        accuracy=accuracy,
        confidence=confidence,
        random_state=random_state,
    )


class _Asker:
    """Every method, fitted and ready to score a set."""

    def __init__(
        self,
        classifier: Any,
        training: Pair,
        validation: Pair,
        peers: Sequence[Peer] | None,
        random_state: int,
    ) -> None:
        self.classifier = classifier
        self.observer = find_observer(classifier, training[0])
        known, valid = self._observe_known(*training, "training")
        known = known[valid]
        held, valid = self._observe_known(*validation, "validation")
        fitting, _ = split_validation(len(held), random_state)
        held = held[fitting[valid[fitting]]]
        chosen = default_peers(known) if peers is None else peers
        self.peers = [peer.fit(known, held) for peer in chosen]
        self.methods = (OURS, *(peer.name for peer in self.peers))
        if len(set(self.methods)) < len(self.methods):
            raise InputError(f"methods need different names; got {', '.join(self.methods)}")

    def score(self, name: str, X: Any, truth: Any, own: bool = False) -> Scored:
        """The scores of all methods, and which answers are wrong."""
        observed, invalid = self.observer.observe(X)
        rows = [self._levels(X), *(peer.score(observed) for peer in self.peers)]
        right = np.zeros(len(observed), dtype=bool)
        if truth is not None:
            if len(truth) != len(observed):
                raise InputError(f"{name!r} holds {len(observed)} samples and {len(truth)} labels")
            for column in truth.reshape(len(truth), -1).T:
                right |= positions_of(column, self.classifier.classes_) == observed.belief
        scores = np.where(invalid, -np.inf, np.stack(rows))  # no method asserts what is no answer
        return Scored(name, scores, ~right | invalid, own)

    def _levels(self, X: Any) -> Floats:
        level = getattr(self.classifier.assess(X, evidence=True), "level", None)
        if level is None:
            raise InputError(
                "the classifier gives no levels, by which it is compared: tune it to a level, for "
                "example by tune(X_val, y_val, coverage=0.75)"
            )
        return np.asarray(level, dtype=np.float64)

    def _observe_known(self, X: Any, y: Any, what: str) -> tuple[Observed, Bools]:
        """Labeled samples, and which the model can answer: peers learn from those."""
        observed, invalid = self.observer.observe(X)
        labels = as_labels(y, len(observed), f"the labels of {what}")
        codes = encode(labels, self.classifier.classes_, f"the labels of {what}")
        return replace(observed, labels=codes), ~invalid


def _all_sets(
    training: Any,
    test: Pair,
    perturbations: Sequence[Perturbation],
    sets: Mapping[str, Pair] | None,
    random_state: int,
) -> list[tuple[str, Any, Any, bool]]:
    """Name, inputs and truth of each set, and whether it is the test data, perturbed or not."""
    X, y = test
    found: list[tuple[str, Any, Any, bool]] = [(TEST, X, as_vector(y, "the labels of test"), True)]
    if perturbations:
        values, background = as_numbers(X, "test"), as_numbers(training, "training")
        for each in perturbations:
            rng = np.random.default_rng(random_state)  # adding one must not change another
            changed, truth = each(values, found[0][2], background, rng)
            found.append((each.name, _like_inputs(changed, X), truth, True))
    for name, (inputs, truth) in (sets or {}).items():
        labels = None if truth is None else as_vector(truth, f"the labels of {name!r}")
        found.append((name, inputs, labels, False))
    names = [name for name, *_ in found]
    if len(set(names)) < len(names):
        raise InputError(f"sets need different names; got {', '.join(names)}")
    return found


def _like_inputs(values: NDArray[Any], X: Any) -> Any:
    """Perturbed values in the form of the inputs: a data frame keeps the names of its columns."""
    return type(X)(values, columns=X.columns) if hasattr(X, "iloc") else values
