"""Methods: iknow's levels, the paper's preset, its peers, and an ensemble of three, on one variant.

All score the answers of the first model, but the ensemble, which answers by itself. The paper's
preset has no score that was meant as one: its margin at the radii of the largest coverage is it,
and what is not IK there is never asserted, so a coverage beyond the largest is not reached.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax, logsumexp

from benchmarks.scoreboard.cells import Variant
from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion
from iknow.errors import SelectionError
from iknow.evaluation.compare import Observer, Scored
from iknow.evaluation.peers import Observed, Softmax, default_peers
from iknow.models.adapt import as_model
from iknow.search.cells import CpuIndex
from iknow.search.index import IndexFactory
from iknow.selection.validation import split_rows

IKNOW, PAPER, ENSEMBLE = "iknow", "paper's preset", "ensemble of three"
COVERAGES = (0.5, 0.75, 0.9)


class Methods:
    """Every method, fitted to a variant."""

    def __init__(self, variant: Variant, n_classes: int, device: str | None, seed: int) -> None:
        (x, y), (x_val, y_val) = variant.training, variant.validation
        self.variant, self._asked = variant, 0
        index = None if device is None else plain_index(device)
        self.settings: dict[str, Any] = {
            "classes": np.arange(n_classes),
            "search": index,
            "progress": False,
        }
        self.iknow = EpistemicClassifier(variant.members[0], **self.settings).fit(x, y)
        self.iknow.tune(x_val, y_val, coverage=0.75)  # levels are the same whatever the coverage
        self.paper = self._tune_paper()
        first = Observer(self.iknow, x)
        self.observers = [first]
        for member in variant.members[1:]:
            other = copy(first)
            other.model, other.transform = as_model(member), np.asarray
            self.observers.append(other)
        known = first.observe(x, y)[0]
        held = first.observe(x_val, y_val)[0][split_rows(len(x_val), seed)[0]]
        peers = default_peers(known, index or CpuIndex)
        self.peers = [peer.fit(known, held) for peer in peers]

    def _tune_paper(self) -> EpistemicClassifier | None:
        paper = EpistemicClassifier.paper(self.variant.members[0], **self.settings)
        try:
            with warnings.catch_warnings():  # it warns of features of unlike scales
                warnings.simplefilter("ignore")
                return paper.fit(*self.variant.training).tune(*self.variant.validation)
        except SelectionError:  # no validation sample can be IK
            return None

    @property
    def names(self) -> tuple[str, ...]:
        return (IKNOW, PAPER, ENSEMBLE, *(peer.name for peer in self.peers))

    def score(self, x: Any, y: Ints | None) -> Scored:
        """Ask every method about samples; without labels no answer is right."""
        with warnings.catch_warnings():  # that samples are strange is what they were made for
            warnings.simplefilter("ignore")
            seen = [observer.observe(x)[0] for observer in self.observers]
            joint: Observed = ensemble(seen)
            scores = [self.iknow.assess(x).level, self._margins(x), Softmax().score(joint)]
        scores += [peer.score(seen[0]) for peer in self.peers]
        wrong = np.ones((len(scores), len(joint)), dtype=bool)
        if y is not None:
            wrong[:] = seen[0].belief != y
            wrong[self.names.index(ENSEMBLE)] = joint.belief != y
        self._asked += 1
        return Scored(str(self._asked), np.stack(scores), wrong)

    def _margins(self, x: Any) -> Floats:
        """Margins of the paper's IK; -inf for the rest."""
        if self.paper is None:
            return np.full(len(x), -np.inf)
        assessed = self.paper.assess(x, evidence=True)
        return np.where(
            assessed.assertion == Assertion.IK, np.maximum(assessed.margin, 0.0), -np.inf
        )

    def certify(self, accuracy: float) -> dict[str, float]:
        """Coverage and accuracy on clean test data after `tune(accuracy=...)`."""
        x, y = self.variant.clean
        try:
            own = copy(self.iknow).tune(*self.variant.validation, accuracy=accuracy)
        except SelectionError:
            return {"coverage": 0.0, "accuracy": 1.0}
        assessed = own.assess(x)
        return share_of(assessed.assertion == Assertion.IK, assessed.belief_codes != y)


def share_of(known: Bools, wrong: Bools) -> dict[str, float]:
    """Coverage and accuracy of what is asserted; both of shape (n,)."""
    right = float((~wrong[known]).mean()) if known.any() else 1.0
    return {"coverage": float(known.mean()), "accuracy": right}


def plain_index(device: str) -> IndexFactory:
    """A search on a device of torch."""
    from benchmarks.scoreboard.torch.plain_index import PlainIndex  # trees need no torch

    return partial(PlainIndex, device=device)


def ensemble(members: Sequence[Observed]) -> Observed:
    """Average the probabilities of networks trained alike: what `members` say of the same samples.

    Lakshminarayanan and others, "Simple and Scalable Predictive Uncertainty Estimation using Deep
    Ensembles" (NeurIPS 2017). The average is a model of its own, whose belief is the class of the
    highest; `Softmax` scores it by that. Its logits are log-probabilities, and it has no hidden
    layer; inputs and labels are those of the first member.
    """
    logs = np.stack([log_softmax(member.logits.astype(np.float64), axis=1) for member in members])
    mean = logsumexp(logs, axis=0) - np.log(len(members))
    return Observed(members[0].inputs, None, mean, mean.argmax(axis=1), members[0].labels)
