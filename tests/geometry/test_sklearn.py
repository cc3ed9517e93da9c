"""Constants of fitted perceptrons against what their activations do."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

from iknow.errors import InputError, LayerError
from iknow.geometry import propagate_radius, spectral_norm
from iknow.geometry.bounds import ACTIVATION_LIPSCHITZ
from iknow.geometry.sklearn import mlp_lipschitz
from iknow.models.sklearn import SklearnModel

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

TRANSFORMERS = {
    "standard": StandardScaler(),
    "standard without deviation": StandardScaler(with_std=False),
    "min-max": MinMaxScaler((-1, 3)),
    "min-max, clipped": MinMaxScaler(clip=True),
    "max-abs": MaxAbsScaler(),
    "robust": RobustScaler(),
    "robust without scaling": RobustScaler(with_scaling=False),
    "pca": PCA(4),
    "whitening pca": PCA(4, whiten=True),
    "frozen": FrozenEstimator(StandardScaler()),
    "nothing": "passthrough",
}


def data(seed=0):
    x, y = make_classification(120, 6, n_classes=3, n_informative=4, random_state=seed)
    return x * np.array([0.01, 0.1, 1, 1, 10, 100]), y


def network(activation="relu", hidden=(9, 7)):
    return MLPClassifier(hidden, activation=activation, max_iter=15, random_state=0)


def largest_ratios(model, x, layers, seed=0):
    """The largest stretch in each layer over pairs of samples and over small steps."""
    rng = np.random.default_rng(seed)
    pairs = [(x, x[rng.permutation(len(x))])]
    spread = x.std(axis=0)
    pairs += [(x, x + size * spread * rng.standard_normal(x.shape)) for size in (1e-4, 0.1, 3)]
    pairs += [(x, x + 0.01 * spread[j] * np.eye(x.shape[1])[j]) for j in range(x.shape[1])]
    largest = dict.fromkeys(layers, 0.0)
    for a, b in pairs:
        distance = np.linalg.norm(a - b, axis=1)
        kept = distance > 0
        left, right = SklearnModel(model).observe(a, layers), SklearnModel(model).observe(b, layers)
        for layer in layers:
            moved = np.float64(left.activations[layer]) - right.activations[layer]
            # Activations are float32: their rounding is not the function's doing.
            size = np.abs(left.activations[layer]).max() * np.sqrt(moved.shape[1])
            lengths = np.maximum(0, np.linalg.norm(moved, axis=1) - 2e-7 * size)
            largest[layer] = max(largest[layer], (lengths[kept] / distance[kept]).max())
    return largest


@pytest.mark.parametrize("activation", sorted(ACTIVATION_LIPSCHITZ))
def test_a_networks_bound_is_never_violated(activation):
    x, y = data()
    model = network(activation).fit(x, y)
    constants = mlp_lipschitz(model)
    assert list(constants) == ["input", "hidden1", "hidden2", "logits"]
    assert constants["input"] == 1
    for layer, ratio in largest_ratios(model, x, list(constants)).items():
        assert 0 < ratio <= constants[layer] * (1 + 1e-6)


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic"])
def test_constants_are_the_papers_product(activation):
    model = network(activation).fit(*data())
    constants, slope = mlp_lipschitz(model), ACTIVATION_LIPSCHITZ[activation]
    first, second, last = (spectral_norm(weight) for weight in model.coefs_)
    assert constants["hidden1"] == pytest.approx(slope * first)
    assert constants["hidden2"] == pytest.approx(slope**2 * first * second)
    assert constants["logits"] == pytest.approx(slope**2 * first * second * last)


def test_a_linear_network_is_bounded_as_one_matrix():
    model = network("identity").fit(*data())
    product = np.linalg.multi_dot(model.coefs_)
    assert mlp_lipschitz(model)["logits"] == pytest.approx(np.linalg.norm(product, 2))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_pipelines_bound_is_never_violated(name):
    x, y = data()
    transformer = TRANSFORMERS[name]
    if isinstance(transformer, FrozenEstimator):
        transformer = FrozenEstimator(StandardScaler().fit(x))
    model = make_pipeline(transformer, network()).fit(x, y)
    constants = mlp_lipschitz(model)
    assert list(constants) == ["input", model.steps[0][0], "hidden1", "hidden2", "logits"]
    for layer, ratio in largest_ratios(model, x, list(constants)).items():
        assert 0 < ratio <= constants[layer] * (1 + 1e-6)


@pytest.mark.parametrize(
    "name", sorted({*TRANSFORMERS} - {"nothing", "frozen", "min-max, clipped"})
)
def test_a_transformers_constant_is_attained(name):
    x, y = data()
    model = make_pipeline(TRANSFORMERS[name], network()).fit(x, y)
    transformer = model.steps[0][1]
    origin = transformer.transform(np.zeros((1, 6)))
    matrix = transformer.transform(np.eye(6)) - origin
    found = mlp_lipschitz(model, layers=[model.steps[0][0]])
    assert found == {model.steps[0][0]: pytest.approx(np.linalg.norm(matrix, 2))}


def test_a_chain_of_transformers_inside_other_wrapping():
    x, y = data()
    inner = make_pipeline(StandardScaler(), PCA(3, whiten=True), MinMaxScaler(), network())
    search = GridSearchCV(inner, {"pca__n_components": [2, 3]}, cv=2).fit(x, y)
    constants = mlp_lipschitz(FrozenEstimator(search))
    assert list(constants)[:4] == ["input", "standardscaler", "pca", "minmaxscaler"]
    for layer, ratio in largest_ratios(search, x, list(constants)).items():
        assert 0 < ratio <= constants[layer] * (1 + 1e-6)


def test_constants_from_a_later_layer():
    x, y = data()
    model = make_pipeline(PolynomialFeatures(2), StandardScaler(), network()).fit(x, y)
    with pytest.raises(
        LayerError, match=r"step 'polynomialfeatures' \(PolynomialFeatures\) cannot"
    ):
        mlp_lipschitz(model)
    constants = mlp_lipschitz(model, start="standardscaler")
    weights = model.steps[-1][1].coefs_
    assert constants["standardscaler"] == 1
    assert constants["hidden1"] == pytest.approx(spectral_norm(weights[0]))
    assert mlp_lipschitz(model, ["logits"], start="hidden2") == {
        "logits": pytest.approx(spectral_norm(weights[2]))
    }
    assert propagate_radius(2.0, constants)["standardscaler"] == 2.0


def test_what_cannot_be_bounded_is_refused_by_name():
    x, y = data()
    model = make_pipeline(StandardScaler(), network()).fit(x, y)
    with pytest.raises(LayerError, match="'hidden9' must name one layer; the layers are input"):
        mlp_lipschitz(model, ["hidden9"])
    with pytest.raises(LayerError, match="'input' comes before 'hidden1'"):
        mlp_lipschitz(model, ["input"], start="hidden1")
    with pytest.raises(InputError, match=r"expected a fitted MLPClassifier.*LogisticRegression"):
        mlp_lipschitz(LogisticRegression().fit(x, y))
    with pytest.raises(InputError, match="expected a fitted MLPClassifier"):
        mlp_lipschitz(network())
