"""Compare: iknow and its peers on the user's own model and data, at equal coverage.

Every method scores the same answers of the same model. Its threshold is chosen on clean validation
data, so that all assert equally much of it (`match_coverage`). Then each meets the test data,
several perturbations of it, and whatever sets the user names, and we count what is asserted and
wrong.

A fifth of the validation data fits what peers fit on labels (a temperature) and lays the sequence
of thresholds to certify; the rest certifies. Labels that certify must not choose the budgets of
voices, so for that figure the same fifth tunes a copy of the classifier.

Peers see the input in the metric that the classifier itself uses there, if it does; the last hidden
layer as it is; and logits, or the logarithms of probabilities where a model gives only those. In a
scikit-learn pipeline the output of the last transformer stands for the input.

How far a figure would move with other samples is told by the bootstrap. The same weights serve
every method, and every perturbation of the same samples, so that what they share cancels in their
differences and does not in their means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from iknow.core.arrays import Bools, Floats
from iknow.core.codes import NO_BELIEF, positions_of
from iknow.core.level import are_probabilities
from iknow.core.text import as_real
from iknow.errors import InputError, LayerError, MissingExtraError
from iknow.evaluation.comparison import OURS, WITH_VIEWS, Comparison
from iknow.evaluation.peers import Observed, Peer, Softmax, default_peers
from iknow.evaluation.perturbations import (
    PERTURBATIONS,
    Perturbation,
    perturb_numbers,
    perturb_table,
)
from iknow.evaluation.risk import (
    RiskCoverage,
    certify_by_mapie,
    certify_threshold,
    match_coverage,
    risk_coverage,
)
from iknow.models import PrecomputedModel
from iknow.models.inputs import as_numbers, as_pandas, cut_batches, take_rows
from iknow.models.model import Model, observe_inputs
from iknow.models.samples import as_labels, as_vector, encode
from iknow.models.sklearn import SklearnModel
from iknow.models.views import with_views
from iknow.selection.validation import split_rows

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
    views: Any = None,
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
        perturbations: What to do to the test data; see `iknow.evaluation.perturbations`. Texts and
            sparse matrices are left as they are.
        peers: Unfitted methods to compare with. Default: all that apply to the model.
        views: Show in a row of its own what views would bring (`as_model`), such as "shift"; it
            takes as many passes of the model more.
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
    observer = Observer(classifier, training[0])
    known, *without = observer.observe(*training, "the labels of training")
    known = known[~np.logical_or(*without)]
    held, *without = observer.observe(*validation, "the labels of validation")
    fitting, _ = split_rows(len(held), random_state)
    held = held[fitting[~np.logical_or(*without)[fitting]]]
    fitted = [peer.fit(known, held) for peer in (default_peers(known) if peers is None else peers)]
    ours = [classifier]
    if views is not None:
        ours.append(copy(classifier))
        ours[1].plan_ = replace(ours[1].plan_, model=with_views(classifier.model_, views))
        labeled = np.isfinite(classifier.selection_.accuracy)  # as it was tuned, with labels or not
        ours[1].recertify(validation[0], validation[1] if labeled else None)
    methods = (OURS, *[WITH_VIEWS] * (views is not None), *(peer.name for peer in fitted))
    if len(set(methods)) < len(methods):
        raise InputError(f"methods need different names; got {', '.join(methods)}")

    def score(name: str, X: Any, truth: Any, own: bool = False) -> Scored:
        observed, absent, unmeasured = observer.observe(X)
        levels: list[Any] = [getattr(each.assess(X, evidence=True), "level", None) for each in ours]
        if levels[0] is None:
            raise InputError(
                "the classifier gives no levels, by which it is compared: tune it to a level, for "
                "example by tune(X_val, y_val, coverage=0.75)"
            )
        rows = [*levels, *(_score(peer, observed, unmeasured) for peer in fitted)]
        right = np.zeros(len(observed), dtype=bool)
        if truth is not None:
            if len(truth) != len(observed):
                raise InputError(f"{name!r} holds {len(observed)} samples and {len(truth)} labels")
            for column in truth.reshape(len(truth), -1).T:
                right |= positions_of(column, classifier.classes_) == observed.belief
        scores = np.where(absent, -np.inf, np.stack(rows))  # no method asserts what is no answer
        return Scored(name, scores, ~right | absent, own)

    clean = score("validation", validation[0], as_vector(validation[1], "y"))
    found = _all_sets(training[0], test, perturbations, sets or {}, random_state)
    scored = [score(*each) for each in found]
    shares = tuple(float(coverage) for coverage in coverages)
    compared = tabulate(methods, clean, scored, shares, accuracy, confidence, random_state)
    if not isinstance(getattr(classifier, "rule", None), type):  # nothing of it is to be chosen
        return compared
    X, y = validation[0], as_vector(validation[1], "y")
    goal: dict[str, Any] = {"accuracy": accuracy, "confidence": confidence}
    certified, wrong = compared.certified.copy(), clean.wrong_of(0)
    for i, each in enumerate(ours):
        with catch_warnings():  # what they say of these samples, they have said of all
            simplefilter("ignore")
            own = copy(each).tune(take_rows(X, fitting), y[fitting], coverage=coverages[0])
        limit = certify_threshold(own.assess(X).level, wrong, **goal, random_state=random_state)
        certified[i] = (own.assess(test[0]).level >= limit).mean()
    return replace(compared, certified=certified)


class _Unmeasured(Observed):
    """Samples without activations, because a value is missing where a layer takes none."""

    def layer(self, name: Any) -> Any:
        raise LayerError(f"these samples have no activations in the layer {name!r}")


def _score(peer: Peer, observed: Observed, unmeasured: Bools) -> Floats:
    """The scores of a peer, of shape (n,); -inf where it needs activations and there are none."""
    scores = np.array(peer.score(observed), dtype=np.float64)
    if unmeasured.any():
        scores[unmeasured] = -np.inf
        with suppress(LayerError):
            bare = _Unmeasured(**vars(observed[unmeasured]))
            scores[unmeasured] = peer.score(bare)
    return scores


def _all_sets(
    training: Any, test: Pair, perturbations: Any, sets: Mapping[str, Pair], random_state: int
) -> list[tuple[str, Any, Any, bool]]:
    """Name, inputs and truth of each set, and whether it is the test data, perturbed or not."""
    X, y = test
    found: list[tuple[str, Any, Any, bool]] = [(TEST, X, as_vector(y, "the labels of test"), True)]
    X, training = as_pandas(X), as_pandas(training)
    is_table, values, background = hasattr(X, "iloc") and X.ndim == 2, X, training
    if perturbations and not is_table:
        try:
            values, background = as_numbers(X, "test"), as_numbers(training, "training")
        except InputError:  # texts, for example, which nothing perturbs
            perturbations = ()
    for each in perturbations:
        rng = np.random.default_rng(random_state)  # adding one must not change another
        perturb = perturb_table if is_table else perturb_numbers
        changed, right = perturb(each, values, found[0][2], background, rng)
        found.append((each.name, changed, right, True))
    for name, (inputs, truth) in sets.items():
        labels = None if truth is None else as_vector(truth, f"the labels of {name!r}")
        found.append((name, inputs, labels, False))
    names = [name for name, *_ in found]
    if len(set(names)) < len(names):
        raise InputError(f"sets need different names; got {', '.join(names)}")
    return found


SMALLEST = 1e-300  # a probability of 0 has no logarithm


class Observer:
    """Asks a fitted classifier's model about samples like X, a few of which say what layers it has.

    input: the layer that stands for the input. hidden: the last hidden layer, if there is one.
    logits: the layer that holds logits; None for the model's scores.
    """

    def __init__(self, classifier: Any, X: Any) -> None:
        model: Model = classifier.model_
        self.model, self.classes = model, classifier.classes_
        if isinstance(model, PrecomputedModel):
            raise InputError(
                "a comparison perturbs inputs, so it needs the model itself; this classifier holds "
                "only a model's outputs: fit it on the model and its inputs"
            )
        few = next(iter(cut_batches(model.prepare(X), 64)))
        layers = reversed(model.layers(few))
        named = {each.role: each.name for each in layers if each.name != "input"}
        self.hidden, self.logits = named.get("hidden"), None
        self.input = "input" if self.hidden else named.get("input", "input")
        # Of a table with gaps or categories the classifier has numbers, in its own metric.
        used = getattr(classifier, "indexes_", {})
        self.input = next((each for each in used if model.role(each) == "table"), self.input)
        try:
            scores = model.observe(few, (self.input,)).scores
        except LayerError:  # that of texts and tokens is no place to measure in
            self.input = self.hidden or str(classifier.layers_[0])
            scores = model.observe(few, (self.input,)).scores
        # Of two classes there is one column of logits.
        several = isinstance(model, SklearnModel) and scores.shape[1] > 2
        if several and named.get("output") == "logits":
            self.logits = "logits"
        index = getattr(classifier, "indexes_", {}).get(self.input)
        self.transform = np.asarray if index is None else index.metric.transform
        self.from_probabilities = are_probabilities(scores)

    def observe(self, X: Any, y: Any = None, what: str = "y") -> tuple[Observed, Bools, Bools]:
        """What the model makes of samples, which it cannot answer, and which have an answer but no
        activations, both of shape (n,).

        y: their labels, if they are known. what: what errors call these.
        """
        layers = [name for name in (self.input, self.hidden, self.logits) if name is not None]
        said = observe_inputs(self.model, self.model.prepare(X), layers)
        logits: Floats = said.scores
        if self.logits is not None:
            logits = said.activations[self.logits].astype(np.float64)
        elif self.from_probabilities:
            logits = np.log(np.maximum(said.scores, SMALLEST))
        inputs = self.transform(said.activations[self.input])
        hidden = None if self.hidden is None else said.activations[self.hidden]
        absent = said.invalid if self.logits is not None else said.belief == NO_BELIEF
        logits, belief = np.where(absent[:, None], 0.0, logits), np.where(absent, 0, said.belief)
        codes = None if y is None else encode(as_labels(y, len(belief), what), self.classes, what)
        return Observed(inputs, hidden, logits, belief, codes), absent, said.invalid & ~absent


RESAMPLES = 200  # enough for the ends of a 95% interval to within a tenth of its width or so


def draw_weights(n_samples: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Floats:
    """How often each resample draws each sample, of shape (resamples, n_samples)."""
    drawn = rng.integers(n_samples, size=(resamples, n_samples))
    return np.stack([np.bincount(row, minlength=n_samples) for row in drawn]).astype(np.float64)


def interval(figures: Any, confidence: float) -> Floats:
    """The percentile interval of resampled figures of shape (resamples, ...): shape (..., 2)."""
    tail = (1 - confidence) / 2
    return np.moveaxis(np.quantile(figures, [tail, 1 - tail], axis=0), 0, -1)


POINTS = 201  # of a curve that is kept


@dataclass(frozen=True, eq=False)
class Scored:
    """A set as every method sees it."""

    name: str
    scores: Floats  # of shape (n_methods, n)
    wrong: Bools  # which answers are, (n,); (n_methods, n) if a method gives answers of its own
    own: bool = False  # whether it is the test data, as it is or perturbed, sample by sample

    def wrong_of(self, method: int) -> Bools:
        """Which answers of a method are wrong, of shape (n,)."""
        wrong: Bools = np.broadcast_to(self.wrong, self.scores.shape)[method]
        return wrong


def tabulate(
    methods: tuple[str, ...],
    clean: Scored,
    scored: Sequence[Scored],
    coverages: tuple[float, ...],
    accuracy: float,
    confidence: float,
    random_state: int,
) -> Comparison:
    """All figures, from scores. clean: the validation data. scored: all sets, the test data first.

    `compare` finds the scores; those who have them already, as the scoreboard does, begin here.
    """
    rng, test = np.random.default_rng(random_state), scored[0]
    limits = [[match_coverage(row, coverage) for coverage in coverages] for row in clean.scores]
    weights = draw_weights(test.scores.shape[1], rng)
    shape = len(methods), len(scored), len(coverages)
    wrong, asserted, areas = np.empty(shape), np.empty(shape), np.empty(shape[:2])
    wrong_drawn = np.empty((RESAMPLES, *shape))
    curves: dict[str, dict[str, RiskCoverage]] = {each.name: {} for each in scored}
    for s, each in enumerate(scored):
        n = each.scores.shape[1]
        drawn = weights if each.own else draw_weights(n, rng)
        parts = [each] if each is test else [test, each]  # each part counts the same
        sizes = [part.scores.shape[1] for part in parts]
        mass = np.concatenate([np.full(size, 1 / size) for size in sizes])
        for m, method in enumerate(methods):
            missed = np.concatenate([part.wrong_of(m) for part in parts])
            taken = np.stack([limit.asserts(each.scores[m]) for limit in limits[m]])
            asserted[m, s] = taken.mean(axis=1)
            taken = taken * each.wrong_of(m)  # (n_coverages, n)
            wrong[m, s] = taken.mean(axis=1)
            wrong_drawn[:, m, s] = drawn @ taken.T / n
            curve = risk_coverage(np.concatenate([part.scores[m] for part in parts]), missed, mass)
            areas[m, s] = curve.area
            curves[each.name][method] = curve.thinned(POINTS)
    goal: Any = {"accuracy": accuracy, "confidence": confidence, "random_state": random_state}
    rows = enumerate(clean.scores)
    certified = [certify_threshold(row, clean.wrong_of(m), **goal) for m, row in rows]
    by_mapie = None
    if Softmax.name in methods:
        m = methods.index(Softmax.name)
        with suppress(MissingExtraError):
            limit = certify_by_mapie(clean.scores[m], clean.wrong_of(m), **goal)
            by_mapie = float((test.scores[m] >= limit).mean())
    return Comparison(
        methods=methods,
        sets=tuple(each.name for each in scored),
        coverages=coverages,
        wrong=wrong,
        wrong_between=interval(wrong_drawn, confidence),
        mean_between=interval(wrong_drawn.mean(axis=2), confidence),
        asserted=asserted,
        augrc=areas,
        certified=(test.scores >= np.array(certified)[:, None]).mean(axis=1),
        certified_by_mapie=by_mapie,
        errors=np.array([each.wrong_of(0).mean() for each in scored]),
        sizes=tuple(each.scores.shape[1] for each in scored),
        accuracy=accuracy,
        confidence=confidence,
        curves=curves,
    )
