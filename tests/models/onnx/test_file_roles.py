"""Where scores, labels and features are, against scikit-learn and graphs written out by hand."""

import numpy as np
import pytest
import skl2onnx
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from iknow import EpistemicClassifier
from iknow.errors import InputError, LayerError
from iknow.models import OnnxModel
from tests.choosing import level_layers, paper_layers
from tests.models.onnx.graphs import observe, parsed

X, CODES = load_iris(return_X_y=True)
X = X.astype(np.float32)
TEXT = np.array(["rose", "iris", "lily"])[CODES]
WHOLE = np.array([30, 10, 20])[CODES]

ESTIMATORS = {
    "logistic": LogisticRegression(max_iter=1000),
    "forest": RandomForestClassifier(9, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=3),
    "tree": DecisionTreeClassifier(max_depth=3),
    "network": MLPClassifier((9,), max_iter=50, random_state=0),
    "votes": SVC(),
    "decisions": LinearSVC(),
    "gradient": SGDClassifier(random_state=0),
    "bayes": GaussianNB(),
    "neighbors": KNeighborsClassifier(),
    "calibrated": CalibratedClassifierCV(LinearSVC(), cv=2),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
}
FEATURES = {"network": "next_activations"}  # all others work on the input itself


@pytest.mark.filterwarnings("ignore")  # of the converter and of solvers stopped early
@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("y", [TEXT, WHOLE], ids=["text", "whole"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_labels_and_scores_are_those_of_scikit_learn(kind, y, zipmap):
    estimator = ESTIMATORS[kind].fit(X, y)
    options = {} if zipmap or kind == "decisions" else {"options": {"zipmap": False}}
    graph = skl2onnx.to_onnx(estimator, X[:1], **options)
    model = OnnxModel(graph)
    found = model.observe(X, ())
    assert model.classes.tolist() == estimator.classes_.tolist()
    said = estimator.predict(X)
    agree = model.classes[found.belief] == said
    assert agree.mean() > 0.99  # single precision may decide a tie otherwise
    if hasattr(estimator, "predict_proba"):
        close = np.isclose(found.scores, estimator.predict_proba(X), atol=1e-4)
        assert close.all(axis=1).mean() > 0.98
    features = FEATURES.get(kind)
    assert level_layers(model, X) == (("input", features) if features else ("input",))
    assert paper_layers(model, X) == (features or "input", "output")


def test_labels_that_are_codes_may_be_named():
    estimator = RandomForestClassifier(9, random_state=0).fit(X, CODES)
    graph = skl2onnx.to_onnx(estimator, X[:1])
    names = ["rose", "iris", "lily"]
    ec = EpistemicClassifier(graph, classes=names, progress=False).fit(X, TEXT)
    assert ec.predict(X).tolist() == [names[code] for code in estimator.predict(X)]
    assert EpistemicClassifier(graph, progress=False).fit(X, CODES).classes_.tolist() == [0, 1, 2]


def test_text_and_maps_are_no_layers():
    graph = skl2onnx.to_onnx(LogisticRegression(max_iter=1000).fit(X, TEXT), X[:1])
    with pytest.raises(LayerError, match="'output_label' must hold real numbers"):
        observe(graph, X, ["output_label"])
    with pytest.raises(LayerError, match=r"output_probability.* is a sequence or a map"):
        observe(graph, X, ["output_probability"])
    with pytest.raises(LayerError, match=r"output_probability.* is a sequence or a map"):
        observe(graph, X[:5], ["output_probability"])


def test_several_labels_per_sample_are_refused():
    graph = parsed(
        """g (float[n, 4] x) => (int64[n, 2] label, float[n, 3] y) {
        y = MatMul(x, W)  first = ArgMax <axis = 1> (y)  two = Concat <axis = 1> (first, first)
        listed = ai.onnx.ml.ArrayFeatureExtractor(names, two)  label = Reshape(listed, shape)
        }""",
        names=np.array([10, 20, 30]),
        shape=np.array([-1, 2]),
        W=WEIGHTS["W"],
    )
    with pytest.raises(InputError, match=r"one label per sample; got shape \(5, 2\)"):
        observe(graph, X[:5])


def test_a_binary_decision_says_what_it_means():
    estimator = LinearSVC().fit(X, CODES > 0)
    graph = skl2onnx.to_onnx(estimator, X[:1])
    with pytest.raises(InputError, match=r"looks like class scores.*'probabilities'.*'logit'"):
        OnnxModel(graph)
    found = observe(graph, X, scores="logit")
    assert found.scores.shape == (150, 2)
    assert (found.belief == estimator.predict(X)).mean() > 0.99
    same = observe(graph, X, scores=("probabilities", "logit"))
    np.testing.assert_array_equal(same.scores, found.scores)


def test_columns_one_by_one_are_put_together_by_a_function():
    estimator = LogisticRegression(max_iter=1000).fit(X, TEXT)
    graph = skl2onnx.to_onnx(estimator, X[:1], options={"zipmap": "columns"})
    by_name = [output.name for output in graph.graph.output][1:]
    found = observe(graph, X, scores=lambda all_: np.column_stack([all_[k] for k in by_name]))
    np.testing.assert_allclose(found.scores, estimator.predict_proba(X), atol=1e-5)
    inside = observe(graph, X, scores="probabilities")
    np.testing.assert_array_equal(inside.scores, found.scores)


@pytest.mark.parametrize("n", [5, 200])
def test_a_function_gets_the_outputs_with_a_row_per_sample(n):
    seen = []

    def scores(outputs):
        seen.append(sorted(outputs))
        return outputs["shares"]

    inputs = np.random.default_rng(0).normal(size=(n, 4))
    found = observe(heads("loss", "shares", "risk"), inputs, scores=scores)
    assert seen == [["risk", "shares"]]
    wanted = observe(heads("shares"), inputs)
    np.testing.assert_array_equal(found.scores, wanted.scores)
    with pytest.raises(InputError, match=rf"one row for each of {n} samples; got \(3, 3\)"):
        observe(heads("shares"), inputs, scores=lambda outputs: outputs["shares"][:3])


HEADS = """g (float[n, 4] x) => ({outputs}) {{
    embedding = Relu(x)  logits = MatMul(embedding, W)  shares = Softmax(logits)
    risk = ReduceSum(shares, one)  loss = ReduceSum <keepdims = 0> (x)
}}"""
DECLARED = {
    "embedding": "float[n, 4] embedding",
    "logits": "float[n, 3] logits",
    "shares": "float[n, 3] shares",
    "risk": "float[n, 1] risk",
    "loss": "float loss",
}
WEIGHTS = {
    "W": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32),
    "one": np.array([1]),
}


def heads(*outputs):
    listed = ", ".join(DECLARED[name] for name in outputs)
    return parsed(HEADS.format(outputs=listed), **WEIGHTS)


@pytest.mark.parametrize(
    ("outputs", "option", "wanted"),
    [
        (["logits"], None, "logits"),
        (["shares", "logits"], None, "logits"),  # by its name
        (["shares", "embedding"], None, "shares"),  # the embedding feeds it
        (["embedding", "shares", "risk", "loss"], None, "shares"),
        (["logits", "shares"], 1, "shares"),
        (["logits", "shares"], -1, "shares"),
        (["risk"], "logits", "logits"),  # any tensor
    ],
)
def test_scores_are_found(outputs, option, wanted):
    inputs = X[:5]
    logits = np.maximum(inputs, 0) @ WEIGHTS["W"]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = observe(heads(*outputs), inputs, scores=option)
    np.testing.assert_allclose(found.scores, {"logits": logits, "shares": shares}[wanted], 1e-4)


@pytest.mark.parametrize(
    ("outputs", "option", "says"),
    [
        (["risk", "loss"], None, r"'risk' \(float32 of shape \(\?, 1\)\)"),
        (["logits"], "nothing", "no tensor 'nothing'.*'logits'"),
        (["logits"], 1, "no output 1"),
        (["logits"], "logit", "no output of the ONNX model holds one number"),
        (["logits"], 0.5, "scores must be"),
    ],
)
def test_scores_that_are_not_there_are_told(outputs, option, says):
    with pytest.raises(InputError, match=says):
        OnnxModel(heads(*outputs), scores=option)


def test_scores_without_columns_are_told_when_they_come():
    with pytest.raises(InputError, match="one number per sample"):
        observe(heads("logits", "risk"), X, scores="risk")


def test_products_of_two_tensors_are_no_features():
    attention = parsed(
        """g (float[n, 2, 4] x) => (float[n, 3] y) {
        turned = Transpose <perm = [0, 2, 1]> (x)
        pooled = ReduceMean <axes = [1], keepdims = 0> (x)
        dropped = Dropout(pooled)  scaled = DequantizeLinear(W, scale)  y = MatMul(dropped, scaled)
        looks = MatMul(x, turned)
        }""",
        W=np.ones((4, 3), dtype=np.int8),
        scale=np.array(0.5, dtype=np.float32),
    )
    assert level_layers(OnnxModel(attention), np.ones((5, 2, 4))) == ("input", "pooled")


def test_a_tensor_called_output_is_not_taken_for_the_scores():
    graph = parsed(
        "g (float[n, 4] x) => (float[n, 4] output, float[n, 3] y) "
        "{ output = Relu(x)  y = MatMul(output, W) }",
        W=WEIGHTS["W"],
    )
    model = OnnxModel(graph)
    assert paper_layers(model, X) == ("output", "y")
    found = model.observe(X[:5], ["output", "y"]).activations
    np.testing.assert_array_equal(found["output"], np.maximum(X[:5], 0))
    assert found["y"].shape == (5, 3)
