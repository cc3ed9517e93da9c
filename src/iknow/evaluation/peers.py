"""Peers: other methods that say how far to trust a model's answer.

They are short reference implementations of the papers' formulas, on numpy and iknow's own exact
search, so that a comparison needs no other package. Each learns from `Observed` training and
validation data and returns one number per sample: the higher, the more to be trusted. A layer is
"hidden" or "input"; an index may be one on another device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import distances_for_and_against
from iknow.core.rule import check_k
from iknow.errors import InputError
from iknow.search.cells import CpuIndex
from iknow.search.index import Index, IndexFactory

Layer = Literal["input", "hidden"]


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
    Out-of-Distribution Examples in Neural Networks" (ICLR 2017). The answer is almost always the
    class of highest probability; where it is not (a support vector machine votes), the answer's own
    counts. Probabilities near 1 round to 1, so the score is the logarithm, which orders samples the
    same way and keeps confident answers apart:

        log p_g = -log(1 + Σ_{c ≠ g} exp(l_c - l_g))
    """

    name = "softmax"

    def score(self, observed: Observed) -> Floats:
        return log_probability(observed.logits, observed.belief)


def log_probability(logits: NDArray[Any], belief: Ints) -> Floats:
    """The logarithm of the probability of each answer, of shape (n,)."""
    rows = np.arange(len(logits))
    leads = np.asarray(logits, dtype=np.float64) - logits[rows, belief][:, None]
    leads[rows, belief] = -np.inf
    # logaddexp(0, x) is log(1 + exp(x)), exact for very small and very large x.
    return -np.logaddexp(0.0, logsumexp(leads, axis=1))


RANGE = (np.log(1e-2), np.log(1e3))  # of log T: an overfit network asks for 2 or 3


class TemperatureSoftmax:
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

    def score(self, observed: Observed) -> Floats:
        return np.asarray(logsumexp(observed.logits.astype(np.float64), axis=1))


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


class ViM:
    """Scores an answer by its energy minus what its features have that training data hardly uses.

    Wang and others, "ViM: Out-Of-Distribution with Virtual-logit Matching" (CVPR 2022). With logits
    W h + b, features are centered at o = -W⁺ b; the principal subspace is spanned by the first D
    eigenvectors of their second moments on training data, and r(h) is what h - o has outside of it:

        score = log Σ_c exp(l_c) - α |r(h)|,    α = mean of max_c l_c / mean of |r|, in training

    The paper takes a `dimension` D = 1000 of 2048 features and 512 of 768; here it is half of them
    by default. Without the weights of the last layer, least squares of logits on features finds
    them: exactly, as the logits are linear in the features, except for what no training sample
    ever shows.
    """

    name = "ViM"

    def __init__(self, dimension: int | None = None) -> None:
        self.dimension = dimension

    def fit(self, training: Observed, validation: Observed) -> Self:
        hidden = training.layer("hidden").astype(np.float64)
        design = np.column_stack([hidden, np.ones(len(hidden))])
        solution = np.linalg.lstsq(design, training.logits.astype(np.float64), rcond=None)[0]
        weights, bias = solution[:-1].T, solution[-1]  # of the last layer
        self._origin = -np.linalg.pinv(weights, rcond=LEAST_SINGULAR) @ bias
        centered = hidden - self._origin
        _, vectors = np.linalg.eigh(centered.T @ centered)  # ascending
        kept = hidden.shape[1] // 2 if self.dimension is None else self.dimension
        self._residual: Floats = vectors[:, : hidden.shape[1] - kept]
        # Without any residual on training data there is no virtual logit to match.
        mean = float(np.linalg.norm(centered @ self._residual, axis=1).mean())
        self._alpha = float(training.logits.max(axis=1).mean()) / mean if mean else 0.0
        return self

    def score(self, observed: Observed) -> Floats:
        residual = (observed.layer("hidden") - self._origin) @ self._residual
        energy = logsumexp(observed.logits.astype(np.float64), axis=1)
        return np.asarray(energy - self._alpha * np.linalg.norm(residual, axis=1))


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


class DkNN:
    """Scores an answer by how many neighbors in all layers are of other classes, negated.

    Papernot and McDaniel, "Deep k-Nearest Neighbors" (2018). The nonconformity of a sample with a
    class is the number of its k nearest training samples, summed over the layers, that are of other
    classes. The credibility of an answer is the share of calibration samples whose nonconformity
    with their true class is at least as large: a conformal p-value.

    The paper's classifier answers with the most credible class; we score the model's own answer.
    Credibility falls in steps as nonconformity rises, so we return minus the nonconformity, which
    ranks samples the same way but tells some apart that are equally credible, and needs no
    calibration. `k` = 75 is the paper's choice; with fewer training samples it is their number.
    Samples tied with the k-th neighbor all count, so the order of the training set does not matter.
    `index`: what searches.
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


def _of_one_class(index: IndexFactory, points: NDArray[Any]) -> Index:
    """An index of rows whose classes do not matter."""
    return index(points, np.zeros(len(points), dtype=np.int64), 1)


def default_peers(training: Observed, index: IndexFactory = CpuIndex) -> list[Peer]:
    """List the peers that apply to a model, unfitted, by what it says about `training`.

    Energy and ViM need logits, and log-probabilities are none; ViM needs a hidden layer. Without a
    hidden layer Mahalanobis and k-NN distance use the input. `index` searches for neighbors.

    Examples:
        >>> [peer.name for peer in default_peers(training)][:2]
        ['softmax', 'softmax, temperature']
    """
    has_logits = not np.allclose(logsumexp(training.logits, axis=1), 0.0, atol=1e-6)
    last = training.layers[-1]
    peers: list[Peer] = [Softmax(), TemperatureSoftmax()]
    if has_logits:
        peers.append(Energy())
    peers += [Mahalanobis(last), KNNDistance(layer=last, index=index)]
    if has_logits and training.hidden is not None:
        peers.append(ViM())
    trust = (TrustScore(layer, index=index) for layer in training.layers)
    return [*peers, *trust, DkNN(index=index)]
