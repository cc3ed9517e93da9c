"""Peers: other methods that say how far to trust a model's answer.

They are short reference implementations of the papers' formulas, on numpy and iknow's own exact
search. Each learns from `Observed` training and validation data and returns one number per sample:
the higher, the more to be trusted. Each says what it `needs` of a model: its "logits"
(log-probabilities are none), its last "hidden" layer, or neither. A layer is "hidden" or "input";
an index may be one on another device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import distances_for_and_against
from iknow.core.rule import check_k
from iknow.errors import InputError
from iknow.search.cells import CpuIndex
from iknow.search.index import Index, IndexFactory

Layer = Literal["input", "hidden"]
Need = Literal["logits", "hidden"]


@dataclass(frozen=True, eq=False)
class Observed:
    """Inputs, last hidden layer, logits and belief of n samples.

    Attributes:
        inputs: Of shape (n, d).
        hidden: Activations of the last hidden layer, of shape (n, h); None if there is none.
        logits: Of shape (n, n_classes); log-probabilities where a model has no logits.
        belief: The model's answers as class codes, of shape (n,).
        labels: The truth as class codes, of shape (n,), if it is known.
    """

    inputs: NDArray[Any]
    hidden: NDArray[Any] | None
    logits: NDArray[Any]
    belief: Ints
    labels: Ints | None = None

    def __post_init__(self) -> None:
        shapes = {name: np.shape(value) for name, value in vars(self).items() if value is not None}
        flat = {name: 1 if name in ("belief", "labels") else 2 for name in shapes}
        wrong = any(len(shape) != flat[name] for name, shape in shapes.items())
        if wrong or len({shape[0] for shape in shapes.values()}) > 1:
            raise InputError(
                "inputs, hidden and logits must have shape (n, ...), belief and labels (n,), with "
                f"the same n; got {shapes}"
            )

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: Any) -> Observed:
        return Observed(*(None if v is None else v[rows] for v in vars(self).values()))  # type: ignore[arg-type]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that are there."""
        return ("input",) if self.hidden is None else ("input", "hidden")

    def layer(self, name: Layer) -> NDArray[Any]:
        """Return the activations of the layer `name`, of shape (n, n_features)."""
        if name == "input":
            return self.inputs
        if self.hidden is None:
            raise InputError("this model has no hidden layer: use layer='input'")
        return self.hidden

    def truth(self) -> Ints:
        """Return the labels, of shape (n,); an error if they are not known."""
        if self.labels is None:
            raise InputError("labels are needed to fit a peer; got None")
        return self.labels


@runtime_checkable
class Peer(Protocol):
    """A method that scores a model's answers: the higher, the more to be trusted.

    Examples:
        >>> KNNDistance(k=5).fit(training, validation).score(test).shape == test.belief.shape
        True
    """

    needs: tuple[Need, ...] = ()
    """What a model must have for the method to apply."""

    @property
    def name(self) -> str:
        """What tables call it."""

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Learn from `training` and `validation` samples, both labeled; by default, nothing."""
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""


class Softmax(Peer):
    """Scores an answer by the logarithm of its softmax probability.

    The baseline of Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and
    Out-of-Distribution Examples in Neural Networks" (ICLR 2017), of the answer's own class where
    that is not the most probable (a support vector machine votes). Probabilities near 1 round to 1;
    their logarithms keep apart:

        log p_g = -log(1 + Σ_{c ≠ g} exp(l_c - l_g))
    """

    name = "softmax"

    def score(self, observed: Observed) -> Floats:
        return log_probability(observed.logits, observed.belief)


def log_probability(logits: NDArray[Any], belief: Ints) -> Floats:
    """The logarithm of the probability of each answer, of shape (n,)."""
    # logaddexp(0, x) is log(1 + exp(x)), exact for very small and very large x.
    return -np.logaddexp(0.0, _against(logits, belief))


def _against(logits: NDArray[Any], belief: Ints) -> Floats:
    """log((1 - p) / p) of the probability p of each answer, of shape (n,)."""
    rows = np.arange(len(logits))
    leads = np.asarray(logits, dtype=np.float64) - logits[rows, belief][:, None]
    leads[rows, belief] = -np.inf
    return np.asarray(logsumexp(leads, axis=1))


RANGE = (np.log(1e-2), np.log(1e3))  # of log T: an overfit network asks for 2 or 3


class TemperatureSoftmax(Peer):
    """Scores an answer by its softmax after one number has made the probabilities honest.

    Guo and others, "On Calibration of Modern Neural Networks" (ICML 2017), divide the logits by the
    temperature T > 0 that minimizes the negative log-likelihood of the validation labels.

    Attributes:
        temperature_: The temperature that `fit` chose.
    """

    name = "softmax, temperature"
    temperature_: float

    def fit(self, training: Observed, validation: Observed) -> Self:
        truth = validation.truth()

        def loss(log_temperature: float) -> float:
            scaled = validation.logits / np.exp(log_temperature)
            return -float(log_probability(scaled, truth).mean())

        self.temperature_ = float(np.exp(minimize_scalar(loss, bounds=RANGE).x))
        return self

    def score(self, observed: Observed) -> Floats:
        return log_probability(observed.logits / self.temperature_, observed.belief)


class Energy(Peer):
    """Scores an answer by the negative free energy of its logits: how large they are in all.

    Liu and others, "Energy-based Out-of-distribution Detection" (NeurIPS 2020), with T = 1:

        score = log Σ_c exp(l_c)

    It takes logits: of log-probabilities the sum is 1 for every sample.
    """

    name = "energy"
    needs = ("logits",)

    def score(self, observed: Observed) -> Floats:
        return np.asarray(logsumexp(observed.logits.astype(np.float64), axis=1))


class GEN(Peer):
    """Scores an answer by the generalized entropy of its largest probabilities, negated.

    Liu, Lochman and Zach, "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection"
    (CVPR 2023), with `gamma` γ and the `largest` M of the paper; if there are fewer classes, all:

        score = -Σ p_c^γ (1 - p_c)^γ,    over the M largest p_c

    Probabilities near 0 and 1 matter most, so both factors are computed from logarithms.
    """

    name = "GEN"

    def __init__(self, gamma: float = 0.1, largest: int = 100) -> None:
        self.gamma, self.largest = gamma, largest

    def score(self, observed: Observed) -> Floats:
        logs = np.sort(log_softmax(observed.logits.astype(np.float64), axis=1), axis=1)
        rest = logs[:, :-1]  # at most 1/2 each, so 1 - p is exact
        against = np.column_stack([np.log1p(-np.exp(rest)), logsumexp(rest, axis=1)])
        terms = np.exp(self.gamma * (logs + against))[:, -self.largest :]
        return np.asarray(-terms.sum(axis=1))


class Mahalanobis:
    """Scores an answer by the squared distance to the nearest class mean, negated.

    Lee and others, "A Simple Unified Framework for Detecting Out-of-Distribution Samples and
    Adversarial Attacks" (NeurIPS 2018), on one `layer`, and without their input preprocessing:

        score = -min_c (h - μ_c)ᵀ Σ⁺ (h - μ_c)

    with the class means μ_c and one covariance Σ of all samples around their class's mean. Σ⁺ is
    the pseudoinverse, as in the authors' code: dead pixels and dead units have no say.
    """

    def __init__(self, layer: Layer = "hidden") -> None:
        self.layer: Layer = layer
        self.needs = _needs_of(layer)
        self.name = "Mahalanobis" if layer == "hidden" else f"Mahalanobis ({layer})"

    def fit(self, training: Observed, validation: Observed) -> Self:
        points, truth = training.layer(self.layer).astype(np.float64), training.truth()
        present, codes = np.unique(truth, return_inverse=True)
        means = np.stack([points[truth == code].mean(axis=0) for code in present])
        residuals = points - means[codes]
        values, vectors = np.linalg.eigh(residuals.T @ residuals / len(residuals))
        # The usual cutoff of a pseudoinverse: what is below it is rounding.
        real = values > values.max() * len(values) * np.finfo(np.float64).eps
        self._whiten = vectors[:, real] / np.sqrt(values[real])  # W Wᵀ = Σ⁺
        self._centers = means @ self._whiten
        return self

    def score(self, observed: Observed) -> Floats:
        white = observed.layer(self.layer).astype(np.float64) @ self._whiten
        squares = [((white - center) ** 2).sum(axis=1) for center in self._centers]
        return np.asarray(-np.min(squares, axis=0))


LEAST_SINGULAR = 1e-6  # share of the largest: below it is rounding, as networks use float32


def find_head(training: Observed) -> tuple[Floats, Floats]:
    """The weights W, (n_classes, h), and bias b, (n_classes,), of the layer after the hidden one.

    Least squares of logits on features find them: exactly, as logits are linear in the features,
    except for what no training sample ever shows.
    """
    hidden = training.layer("hidden").astype(np.float64)
    design = np.column_stack([hidden, np.ones(len(hidden))])
    solution = np.linalg.lstsq(design, training.logits.astype(np.float64), rcond=None)[0]
    return solution[:-1].T, solution[-1]


class Residual:
    """The length of what features have that training data hardly uses.

    With logits W h + b, features are centered at o = -W⁺ b. The principal subspace is spanned by
    the first `dimension` eigenvectors of their second moments on training data, by default half of
    them; the residual of h is the length of what h - o has outside of it.
    """

    def __init__(self, training: Observed, dimension: int | None) -> None:
        weights, bias = find_head(training)
        self._origin = -np.linalg.pinv(weights, rcond=LEAST_SINGULAR) @ bias
        centered = training.layer("hidden").astype(np.float64) - self._origin
        _, vectors = np.linalg.eigh(centered.T @ centered)  # ascending
        width = len(vectors)
        self._outside = vectors[:, : width - (width // 2 if dimension is None else dimension)]

    def of(self, observed: Observed) -> Floats:
        """The residual of each sample, of shape (n,)."""
        centered = observed.layer("hidden") - self._origin
        return np.asarray(np.linalg.norm(centered @ self._outside, axis=1))


class ViM(Peer):
    """Scores an answer by its energy minus what its features have that training data hardly uses.

    Wang and others, "ViM: Out-Of-Distribution with Virtual-logit Matching" (CVPR 2022), with r(h)
    of `Residual`:

        score = log Σ_c exp(l_c) - α r(h),    α = mean of max_c l_c / mean of r, in training

    The paper takes a `dimension` D = 1000 of 2048 features and 512 of 768; here it is half of them
    by default.
    """

    name = "ViM"
    needs = ("logits", "hidden")

    def __init__(self, dimension: int | None = None) -> None:
        self.dimension = dimension

    def fit(self, training: Observed, validation: Observed) -> Self:
        self._residual = Residual(training, self.dimension)
        # Without any residual on training data there is no virtual logit to match.
        mean = float(self._residual.of(training).mean())
        self._alpha = float(training.logits.max(axis=1).mean()) / mean if mean else 0.0
        return self

    def score(self, observed: Observed) -> Floats:
        energy = logsumexp(observed.logits.astype(np.float64), axis=1)
        return np.asarray(energy - self._alpha * self._residual.of(observed))


class SIRC:
    """Scores an answer by its softmax probability p, and lower where its features are strange.

    Xia and Bouganis, "Augmenting Softmax Information for Selective Classification with
    Out-of-Distribution Data" (ACCV 2022). `second` says so: s = -r(h) of `Residual`, with its
    `dimension`, or the norm s = |h|_1, which is small where a network recognizes nothing:

        score = -log(1 - p) - log(1 + exp(-b (s - a))),    a = mean - 3 std,    b = 1 / std

    with mean and std of s in training. Ordinary features lie far above a and change nothing. The
    paper's score is -(1 - p) (1 + exp(-b (s - a))), which orders samples the same way.
    """

    def __init__(
        self, second: Literal["residual", "norm"] = "residual", dimension: int | None = None
    ) -> None:
        self.second, self.dimension = second, dimension
        self.needs: tuple[Need, ...] = ("logits", "hidden") if second == "residual" else ("hidden",)
        self.name = f"SIRC ({second})"

    def fit(self, training: Observed, validation: Observed) -> Self:
        self._residual = Residual(training, self.dimension) if self.second == "residual" else None
        values = self._values(training)
        self._mean, self._std = float(values.mean()), float(values.std())
        return self

    def _values(self, observed: Observed) -> Floats:
        if self._residual is not None:
            return -self._residual.of(observed)
        return np.asarray(np.abs(observed.layer("hidden").astype(np.float64)).sum(axis=1))

    def score(self, observed: Observed) -> Floats:
        # log(1 - p), where log p would round to 0.
        doubt = -np.logaddexp(0.0, -_against(observed.logits, observed.belief))
        # Without any spread in training there is nothing to compare with.
        below = (self._mean - self._values(observed)) / self._std if self._std else -np.inf
        return np.asarray(-doubt - np.logaddexp(0.0, below - 3))


class FDBD(Peer):
    """Scores an answer by how far its features are from the boundaries to all other classes.

    Liu and Qin, "Fast Decision Boundary based Out-of-Distribution Detector" (ICML 2024). With the
    head's weights w_c, the logits l_c and the mean μ of the training features, a sample of belief g

        score = mean over c ≠ g of |l_g - l_c| / |w_g - w_c|, divided by |h - μ|

    Classes of equal weights have no boundary between them and add 0. At h = μ the score is inf.
    """

    name = "fDBD"
    needs = ("logits", "hidden")

    def fit(self, training: Observed, validation: Observed) -> Self:
        weights, _ = find_head(training)
        self._between = np.linalg.norm(weights[:, None] - weights[None], axis=2)
        self._mean = training.layer("hidden").astype(np.float64).mean(axis=0)
        return self

    def score(self, observed: Observed) -> Floats:
        logits, between = observed.logits.astype(np.float64), self._between[observed.belief]
        leads = np.abs(logits[np.arange(len(logits)), observed.belief][:, None] - logits)
        apart = np.divide(leads, between, out=np.zeros_like(leads), where=between > 0)
        with np.errstate(divide="ignore"):
            spread = np.linalg.norm(observed.layer("hidden") - self._mean, axis=1)
            return np.asarray(apart.sum(axis=1) / (logits.shape[1] - 1) / spread)


class NNGuide(Peer):
    """Scores an answer by its energy, times that of the training samples most like it.

    Park, Jung and Teoh, "Nearest Neighbor Guidance for Out-of-Distribution Detection" (ICCV 2023).
    With E = log Σ_c exp(l_c) and u = h / |h|, over the k training samples i of the largest terms

        score = E · mean of E_i (u_i · u)

    `k` = 10 is the default of the authors' code, whose bank may be a part of the training samples;
    here it is all of them. The largest products are the nearest neighbors of (u, 0) among the rows
    (E_i u_i, √(M² - E_i²)), all of length M = max |E_i|: their squared distance is
    1 + M² - 2 E_i (u_i · u). So an `index` finds them.
    """

    name = "NNGuide"
    needs = ("logits", "hidden")

    def __init__(self, k: int = 10, *, index: IndexFactory = CpuIndex) -> None:
        self.k, self.index = check_k(k), index

    def fit(self, training: Observed, validation: Observed) -> Self:
        energies = logsumexp(training.logits.astype(np.float64), axis=1)
        self._square = float((energies**2).max())
        units = _unit(training.layer("hidden")) * energies[:, None]
        rows = np.column_stack([units, np.sqrt(self._square - energies**2)])
        self._index = _of_one_class(self.index, rows)
        self._k = min(self.k, len(training))
        return self

    def score(self, observed: Observed) -> Floats:
        units = _unit(observed.layer("hidden"))
        squares = (units**2).sum(axis=1) + self._square  # 0 of a row of zeros
        queries = np.column_stack([units, np.zeros(len(units))])
        distances = self._index.gather(queries, self._k).neighbor_distances[:, : self._k]
        guidance = (squares - (distances**2).mean(axis=1)) / 2
        return np.asarray(guidance * logsumexp(observed.logits.astype(np.float64), axis=1))


class KNNDistance:
    """Scores an answer by the distance to the k-th nearest training sample of any class, negated.

    Sun and others, "Out-of-Distribution Detection with Deep Nearest Neighbors" (ICML 2022), with
    activations of a `layer` scaled to length 1. `k` = 50 is the paper's choice for the 50,000
    images of CIFAR-10; with fewer training samples it is their number. `index`: what searches.
    """

    def __init__(
        self, k: int = 50, layer: Layer = "hidden", *, index: IndexFactory = CpuIndex
    ) -> None:
        self.k = check_k(k)
        self.layer: Layer = layer
        self.index = index
        self.needs = _needs_of(layer)
        self.name = "k-NN distance" if layer == "hidden" else f"k-NN distance ({layer})"

    def fit(self, training: Observed, validation: Observed) -> Self:
        self._index = _of_one_class(self.index, _unit(training.layer(self.layer)))
        self._k = min(self.k, len(training))
        return self

    def score(self, observed: Observed) -> Floats:
        evidence = self._index.gather(_unit(observed.layer(self.layer)), self._k)
        return -evidence.neighbor_distance(self._k)


def _unit(points: NDArray[Any]) -> Floats:
    """Rows scaled to length 1; a row of zeros stays."""
    lengths = np.linalg.norm(points.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(points / np.maximum(lengths, 1e-12))


class TrustScore:
    """Scores an answer by d_¬g / d_g: how much nearer its class is than any other.

    Jiang and others, "To Trust Or Not To Trust A Classifier" (NeurIPS 2018). Each class is all its
    training samples, as by the authors' default, which leaves no share α of lowest density out. At
    d_g = 0 the score is inf if d_¬g > 0, else 1: the authors add 1e-12 to d_g, which differs only
    there. Distances are those of a `layer`, by an `index`.
    """

    def __init__(self, layer: Layer = "hidden", *, index: IndexFactory = CpuIndex) -> None:
        self.layer: Layer = layer
        self.index = index
        self.needs = _needs_of(layer)
        self.name = f"Trust Score ({layer})"

    def fit(self, training: Observed, validation: Observed) -> Self:
        points, n_classes = training.layer(self.layer), training.logits.shape[1]
        self._index = self.index(points, training.truth(), n_classes)
        return self

    def score(self, observed: Observed) -> Floats:
        evidence = self._index.gather(observed.layer(self.layer))
        own, other = distances_for_and_against(evidence, observed.belief)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = other / own
        return np.where((own == 0) & (other == 0), 1.0, np.where(np.isinf(own), 0.0, ratio))


class DkNN(Peer):
    """Scores an answer by how many neighbors in all layers are of other classes, negated.

    Papernot and McDaniel, "Deep k-Nearest Neighbors" (2018). The nonconformity of a sample with a
    class is the number of its k nearest training samples, summed over the layers, that are of other
    classes. The credibility of an answer is the share of calibration samples whose nonconformity
    with their true class is at least as large: a conformal p-value.

    We score the model's own answer by minus the nonconformity, which ranks samples as credibility
    does but tells some apart that are equally credible, and needs no calibration. `k` = 75 is the
    paper's choice; with fewer training samples it is their number. Samples tied with the k-th
    neighbor all count. `index`: what searches.
    """

    name = "DkNN"

    def __init__(self, k: int = 75, *, index: IndexFactory = CpuIndex) -> None:
        self.k = check_k(k)
        self.index = index

    def fit(self, training: Observed, validation: Observed) -> Self:
        truth = training.truth()
        self._k, self._sizes = min(self.k, len(truth)), np.bincount(truth).tolist()
        self._layers = {}
        for name in training.layers:
            points = training.layer(name)
            by_class = {
                code: _of_one_class(self.index, points[truth == code])
                for code in np.unique(truth).tolist()
            }
            self._layers[name] = _of_one_class(self.index, points), by_class
        return self

    def score(self, observed: Observed) -> Floats:
        others = np.full(len(observed), float(self._k * len(self._layers)))
        for name, (whole, by_class) in self._layers.items():
            queries = observed.layer(name)
            # Two searches may measure the same distance in another order.
            reach = whole.gather(queries, self._k).neighbor_distance(self._k) * (1 + 1e-9)
            for code, index in by_class.items():
                rows = np.flatnonzero(observed.belief == code)
                near = index.gather(queries[rows], min(self._k, self._sizes[code]))
                others[rows] -= (near.neighbor_distances <= reach[rows, None]).sum(axis=1)
        return -others


def _needs_of(layer: Layer) -> tuple[Need, ...]:
    return ("hidden",) if layer == "hidden" else ()


def _of_one_class(index: IndexFactory, points: NDArray[Any]) -> Index:
    """An index of rows whose classes do not matter."""
    return index(points, np.zeros(len(points), dtype=np.int64), 1)


def default_peers(training: Observed, index: IndexFactory = CpuIndex) -> list[Peer]:
    """List the peers that apply to a model, unfitted, by what it says about `training`.

    Without a hidden layer Mahalanobis and k-NN distance use the input. `index` searches for
    neighbors.

    Examples:
        >>> [peer.name for peer in default_peers(training)][:2]
        ['softmax', 'softmax, temperature']
    """
    last = training.layers[-1]
    peers: list[Peer] = [
        Softmax(), TemperatureSoftmax(), GEN(), Energy(), Mahalanobis(last),
        KNNDistance(layer=last, index=index), ViM(), SIRC("residual"), SIRC("norm"), FDBD(),
        NNGuide(index=index), *(TrustScore(layer, index=index) for layer in training.layers),
        DkNN(index=index),
    ]  # fmt: skip
    there = {"hidden"} if training.hidden is not None else set()
    if not np.allclose(logsumexp(training.logits, axis=1), 0.0, atol=1e-6):
        there.add("logits")  # and no log-probabilities
    return [peer for peer in peers if there.issuperset(peer.needs)]
