"""Which role a layer has."""

from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow.classifier.default_metrics import role_of
from iknow.models import PrecomputedModel, SklearnModel


def test_the_role_of_a_layer():
    X, y = load_iris(return_X_y=True)
    network = MLPClassifier((9, 8), max_iter=300, tol=0.1, random_state=0)
    model = SklearnModel(make_pipeline(StandardScaler(), network).fit(X, y))
    roles = {
        "input": "input", "standardscaler": "input", "hidden1": "hidden", "hidden2": "hidden",
        "logits": "output",
    }  # fmt: skip
    assert {layer: role_of(layer, model) for layer in roles} == roles
    assert role_of("output", SklearnModel(LogisticRegression(max_iter=1000).fit(X, y))) == "output"
    outside = PrecomputedModel()
    assert [role_of(name, outside) for name in ("input", "relu2", "output")] == [
        "input", "hidden", "output"
    ]  # fmt: skip
