"""Methods: iknow's levels, the paper's rules, their peers and magika's own thresholds.

They judge the same answers of the same network.

    iknow             levels in the hidden layer, with iknow's defaults
    paper's balls     in hidden layer and logits; its score is the margin of what is IK, so that a
                      coverage beyond its largest is not reached
    paper's nearest   in the same layers; the k whose coverage of validation data is closest
    magika            its high-confidence mode, the default, has a threshold on the softmax for some
                      types by themselves; its medium-confidence mode has one for all. It says
                      "unknown" or "txt" below it, and where its class is one of random data
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks.magika.network import Said
from benchmarks.magika.table import COVERAGES
from iknow import EpistemicClassifier, Nearest
from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion
from iknow.errors import SelectionError
from iknow.evaluation.peers import Observed, Softmax, default_peers
from iknow.evaluation.risk import Threshold, certify_threshold, match_coverage
from iknow.models import PrecomputedModel
from iknow.selection.validation import split_rows

IKNOW, BALLS, NEAREST = "iknow", "paper's balls", "paper's nearest"
MODES = {"high": "magika, high confidence", "medium": "magika, medium confidence"}
ACCURACY, CONFIDENCE = 0.99, 0.95  # to certify

Labeled = tuple[Said, Ints]  # what the network says of files, and the codes of their types


class Methods:
    """Every method, fitted to files as the network sees them."""

    def __init__(self, training: Labeled, validation: Labeled, config: dict[str, Any]) -> None:
        self.training, self.validation, self.config = training, validation, config
        said, truth = validation
        self.iknow = self._fit(paper=False).tune(_inputs(said), coverage=0.75)
        self.balls = self._fit(paper=True).tune(_inputs(said, paper=True), truth)
        known, held = _observed(*training), _observed(*validation)
        held = held[split_rows(len(held), 0)[0]]
        chosen = [peer for peer in default_peers(known) if "input" not in peer.name]
        self.peers = [peer.fit(known, held) for peer in chosen]
        self.clean = self.score(said)
        self.limits = {name: _limits(scores) for name, scores in self.clean.items()}
        self.nearest = [self._match(coverage) for coverage in COVERAGES]
        self.tuned = dict(self._tune())

    def score(self, said: Said) -> dict[str, Floats]:
        """By method, a score of each answer, of shape (n,): the higher, the more to be trusted."""
        assessed = self.balls.assess(_inputs(said, paper=True), evidence=True)
        margins = np.maximum(assessed.margin, 0.0)
        observed = _observed(said)
        return {
            IKNOW: self.iknow.assess(_inputs(said), evidence=True).level,
            BALLS: np.where(assessed.assertion == Assertion.IK, margins, -np.inf),
            **{peer.name: peer.score(observed) for peer in self.peers},
        }

    def at_equal_coverage(self, said: Said) -> dict[str, list[Floats | None]]:
        """By method and coverage, the probability to assert each answer, of shape (n,).

        All assert the same share of validation data; None where a method cannot.
        """
        asserts: dict[str, list[Floats | None]] = {
            name: [None if limit is None else limit.asserts(scores) for limit in self.limits[name]]
            for name, scores in self.score(said).items()
        }
        asserts[NEAREST] = [_known(each, said, paper=True) for each in self.nearest]
        return asserts

    def as_they_come(self, said: Said) -> dict[str, Floats]:
        """By method, the probability to assert each answer, by the threshold it sets itself."""
        found = {"iknow, " + goal: _known(each, said) for goal, each in self.tuned.items()}
        least = certify_threshold(
            self.clean[Softmax.name], self.validation[0].belief != self.validation[1],
            accuracy=ACCURACY, confidence=CONFIDENCE,
        )  # fmt: skip
        scores = Softmax().score(_observed(said))
        found["softmax, certified"] = (scores >= least).astype(np.float64)
        found[BALLS] = _known(self.balls, said, paper=True)
        for mode, name in MODES.items():
            found[name] = named_by_magika(said, self.config, mode).astype(np.float64)
        return found

    def _fit(self, paper: bool, **settings: Any) -> EpistemicClassifier:
        said, truth = self.training
        make = EpistemicClassifier.paper if paper else EpistemicClassifier
        classes = np.arange(said.logits.shape[1])
        made = make(PrecomputedModel(), classes=classes, progress=False, **settings)
        return made.fit(_inputs(said, paper), truth)

    def _match(self, coverage: float) -> EpistemicClassifier:
        said, truth = self.validation
        made = self._fit(paper=True, rule=Nearest)
        return made.tune(_inputs(said, paper=True), truth, coverage=coverage)

    def _tune(self) -> Iterator[tuple[str, EpistemicClassifier]]:
        said, truth = self.validation
        yield "by default", self._fit(paper=False).tune(_inputs(said), truth)
        try:
            made = self._fit(paper=False)
            yield "certified", made.tune(_inputs(said), truth, accuracy=ACCURACY)
        except SelectionError:  # no coverage qualifies: this run has no such row
            return


def named_by_magika(said: Said, config: dict[str, Any], mode: str) -> Bools:
    """Where magika gives its network's answer, in a mode, of shape (n,)."""
    labels, medium = config["target_labels_space"], config["medium_confidence_threshold"]
    own = config["thresholds"] if mode == "high" else {}
    least = np.array([own.get(label, medium) for label in labels])
    generic = np.isin(labels, list(config["overwrite_map"]))
    belief = said.belief
    sure = softmax(said.logits, axis=1).max(axis=1) >= least[belief]
    named: Bools = sure & ~generic[belief]
    return named


def _limits(scores: Floats) -> list[Threshold | None]:
    """A threshold for each coverage; None where too few can be asserted at all."""
    found = [match_coverage(scores, coverage) for coverage in COVERAGES]
    return [None if limit.value == -np.inf else limit for limit in found]


def _known(classifier: EpistemicClassifier, said: Said, paper: bool = False) -> Floats:
    known = classifier.assess(_inputs(said, paper)).assertion == Assertion.IK
    return np.asarray(known, dtype=np.float64)


def _inputs(said: Said, paper: bool = False) -> tuple[Any, dict[str, Any]]:
    """What `PrecomputedModel` takes: scores, and layers to find support in."""
    layers = {"hidden": said.hidden}
    return said.logits, layers | {"output": said.logits} if paper else layers


def _observed(said: Said, truth: Ints | None = None) -> Observed:
    """What peers take. They look for neighbors in the hidden layer; bytes have no distances."""
    return Observed(said.hidden, said.hidden, said.logits, said.belief, truth)
