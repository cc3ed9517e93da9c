"""Constants of fitted perceptrons against what their activations do."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)

from iknow.errors import InputError, LayerError
from iknow.metrics import spectral_norm
from iknow.metrics.lipschitz import (
    ACTIVATIONS,
    known_transformers,
    sensitivity_of,
)
from iknow.models.sklearn import SklearnModel
from tests.metrics.bounding import mlp_lipschitz

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

TRANSFORMERS = {
    "standard": StandardScaler(),
    "standard without deviation": StandardScaler(with_std=False),
    "min-max": MinMaxScaler((-1, 3)),
    "min-max, clipped": MinMaxScaler(clip=True),
    "max-abs": MaxAbsScaler(),
    "max-abs, clipped": MaxAbsScaler(clip=True),
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


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
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
    constants, slope = mlp_lipschitz(model), ACTIVATIONS[activation][1]
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
    "name",
    sorted({*TRANSFORMERS} - {"nothing", "frozen", "min-max, clipped", "max-abs, clipped"}),
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


def test_what_cannot_be_bounded_is_refused_by_name():
    x, y = data()
    model = make_pipeline(StandardScaler(), network()).fit(x, y)
    with pytest.raises(LayerError, match="'hidden9' must name one layer; the layers are input"):
        mlp_lipschitz(model, ["hidden9"])
    with pytest.raises(InputError, match=r"expected a fitted MLPClassifier.*LogisticRegression"):
        mlp_lipschitz(LogisticRegression().fit(x, y))
    with pytest.raises(InputError, match="expected a fitted MLPClassifier"):
        mlp_lipschitz(network())


@pytest.mark.parametrize("scaler", [MaxAbsScaler(clip=True), MinMaxScaler((-1, 1), clip=True)])
def test_a_scaler_that_clips_is_not_linear(scaler):
    """The layer undoes what comes before the clipping, and only where nothing is clipped."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2)) @ np.array([[1.0, 9.0], [0.0, 5.0]])
    y = (x[:, 0] > 0).astype(int)
    model = make_pipeline(StandardScaler(), PCA(), scaler, network(hidden=(2,))).fit(x, y)
    before = np.linalg.solve(np.column_stack([x, np.ones(200)])[:3], model[:2].transform(x[:3]))[:2]
    last, scale = model.steps[-1][1], model.steps[2][1].scale_
    before = before * scale if isinstance(scaler, MinMaxScaler) else before / scale
    last.coefs_[0] = np.linalg.inv(before)
    last.intercepts_[0] = np.full(2, 100.0)  # so that relu does nothing
    as_linear = spectral_norm(before @ last.coefs_[0])
    constant = mlp_lipschitz(model)["hidden1"]
    ratio = largest_ratios(model, x, ["hidden1"])["hidden1"]
    assert as_linear * 1.5 < ratio <= constant * (1 + 1e-6)


class Louder(StandardScaler):
    def transform(self, X, copy=None):
        return 77 * super().transform(X, copy)


class LouderNetwork(MLPClassifier):
    pass


def with_own_transform(scaler):
    scaler.transform = lambda X: 77 * StandardScaler.transform(scaler, X)
    return scaler


def with_unknown_parameter(scaler):
    scaler.get_params = lambda deep=True: {"copy": True, "log_first": True}
    return scaler


@pytest.mark.parametrize(
    ("transformer", "change", "message"),
    [
        (Louder(), None, r"\(Louder\) cannot be bounded: StandardScaler, .* not their subclasses"),
        (FunctionTransformer(np.square), None, r"\(FunctionTransformer\) cannot be bounded"),
        (make_pipeline(StandardScaler()), None, r"\(Pipeline\) cannot be bounded"),
        (StandardScaler(), with_own_transform, "the instance replaces its method 'transform'"),
        (StandardScaler(), with_unknown_parameter, "the instance replaces its method 'get_params'"),
        (StandardScaler(copy=False), None, "with copy=False it changes its input in place"),
    ],
)
def test_a_step_that_is_not_exactly_what_is_known_is_refused(transformer, change, message):
    x, y = data()
    model = make_pipeline(transformer, network()).fit(x.copy(), y)
    if change is not None:
        change(model.steps[0][1])
    with pytest.raises(LayerError, match=message):
        mlp_lipschitz(model)


def test_a_parameter_of_a_later_version_is_refused_by_name(monkeypatch):
    x, y = data()
    model = make_pipeline(StandardScaler(), network()).fit(x, y)
    monkeypatch.setitem(known_transformers(), StandardScaler, {"copy", "with_mean"})
    with pytest.raises(LayerError, match="its parameter 'with_std' is unknown"):
        mlp_lipschitz(model)


def test_a_network_of_another_type_is_refused():
    x, y = data()
    with pytest.raises(InputError, match=r"expected a fitted MLPClassifier.*LouderNetwork"):
        mlp_lipschitz(LouderNetwork((3,), max_iter=5).fit(x, y))


@pytest.mark.parametrize(
    ("transformer", "parameters"),
    [
        (StandardScaler(), {"with_std": False}),
        (StandardScaler(), {"with_mean": False}),
        (RobustScaler(), {"with_scaling": False, "with_centering": False}),
        (PCA(3), {"whiten": True}),
        (MaxAbsScaler(), {"clip": True}),
    ],
)
def test_parameters_count_as_they_are_now_not_as_they_were_fitted(transformer, parameters):
    x, y = data()
    model = make_pipeline(transformer, network()).fit(x, y)
    model.steps[0][1].set_params(**parameters)
    name = model.steps[0][0]
    constants = mlp_lipschitz(model)
    for layer, ratio in largest_ratios(model, x, list(constants)).items():
        assert 0 < ratio <= constants[layer] * (1 + 1e-6)
    inside = x / 1000 if "clip" in parameters else x
    transformed = model.steps[0][1].transform(inside)
    stored = SklearnModel(model).observe(inside, [name]).activations[name]
    off = np.linalg.norm(transformed - stored, axis=1)
    sensitivity = sensitivity_of(model, name, x.dtype, x.shape[1])
    lengths = np.linalg.norm(inside, axis=1)
    assert (off <= sensitivity.rounding + sensitivity.rounding_per_length * lengths).all()


# Rounding, against the same in long doubles


def in_long_doubles(model, x):
    """Every layer's values as real arithmetic has them, nearly: 2048 times finer than float64."""
    values, found = x.astype(np.longdouble), {"input": x.astype(np.longdouble)}

    def wide(array):
        return np.asarray(array).astype(np.longdouble)

    for name, step in model.steps[:-1]:
        if isinstance(step, StandardScaler):
            values = (values - wide(step.mean_)) / wide(step.scale_)
        elif isinstance(step, MinMaxScaler):
            values = values * wide(step.scale_) + wide(step.min_)
            values = np.clip(values, *step.feature_range) if step.clip else values
        else:
            values = (values - wide(step.mean_)) @ wide(step.components_).T
            values = values / np.sqrt(wide(step.explained_variance_)) if step.whiten else values
        found[name] = values
    network = model.steps[-1][1]
    functions = {
        "relu": lambda v: np.maximum(v, 0), "tanh": np.tanh, "identity": lambda v: v,
        "logistic": lambda v: 1 / (1 + np.exp(-v)),
    }  # fmt: skip
    for i, (weights, bias) in enumerate(zip(network.coefs_, network.intercepts_, strict=True)):
        values = values @ wide(weights) + wide(bias)
        last = i == len(network.coefs_) - 1
        values = values if last else functions[network.activation](values)
        found["logits" if last else f"hidden{i + 1}"] = values
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_what_is_stored_is_as_near_to_real_arithmetic_as_is_promised(dtype, activation):
    x, y = data()
    x = (x + 1000).astype(dtype)  # an offset that scalers must take off again costs digits
    chains = [[StandardScaler()], [PCA(4, whiten=True), MinMaxScaler(clip=True)], [MinMaxScaler()]]
    for chain in chains:
        model = make_pipeline(*chain, network(activation)).fit(x, y)
        model.steps[-1][1].coefs_[0] *= 100
        exact = in_long_doubles(model, x)
        stored = SklearnModel(model).observe(x, list(exact)).activations
        lengths = np.linalg.norm(x.astype(float), axis=1)
        for layer, values in exact.items():
            sensitivity = sensitivity_of(model, layer, x.dtype, x.shape[1])
            off = np.linalg.norm((stored[layer] - values).astype(float), axis=1)
            allowed = sensitivity.rounding + sensitivity.rounding_per_length * lengths
            assert (off.max() > 0) == (layer != "input" or dtype is np.float64)
            assert (off <= allowed).all()
            if dtype is np.float64 and layer == "input":  # that of storing, and no more
                assert (allowed <= 2.0**-24 * lengths * (1 + 1e-6)).all()


def test_a_step_with_the_name_of_a_hidden_layer_counts():
    x, y = data()
    inner = network().fit(StandardScaler().fit_transform(x), y)
    named, plain = (
        Pipeline([(name, StandardScaler().fit(x)), ("network", inner)]) for name in ("hidden1", "s")
    )
    found, wanted = (sensitivity_of(m, "logits", x.dtype, 6) for m in (named, plain))
    assert found == wanted
    with pytest.raises(LayerError, match="'hidden1' names more than one layer"):
        SklearnModel(named).observe(x, ["hidden1"])


def test_in_half_precision_no_scaler_is_bounded():
    x, y = data()
    model = make_pipeline(StandardScaler(), network()).fit(x, y)
    with pytest.raises(LayerError, match="float16 inputs: convert them to float64"):
        sensitivity_of(model, "standardscaler", np.dtype(np.float16), 6)
    assert sensitivity_of(model, "input", np.dtype(np.float16), 6).lipschitz == 1
    model.steps[0][1].scale_ = np.array([1e-40, 1, 1, 1, 1, 1])
    with pytest.raises(LayerError, match="beyond float32's range"):
        sensitivity_of(model, "logits", np.dtype(np.float32), 6)
    assert sensitivity_of(model, "logits", np.dtype(np.float64), 6).lipschitz > 1e39


@pytest.mark.parametrize("size", [1e120, 1e80])
def test_a_network_that_may_overflow_is_refused(size):
    """By one weight, or by two layers: where a tanh follows, an infinity would look like a 1."""
    x, y = data()
    model = network("relu").fit(x, y)
    model.coefs_[0] *= size
    model.coefs_[1] *= size
    with pytest.raises(LayerError, match="may overflow"):
        sensitivity_of(model, "logits", x.dtype, 6)
