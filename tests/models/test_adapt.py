"""Finding the adapter, without loading a framework that is not used."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from iknow.errors import InputError
from iknow.models import PrecomputedModel
from iknow.models.adapt import as_model, is_estimator, is_torch_module
from iknow.models.sklearn import SklearnModel
from iknow.models.torch import TorchModel

X, Y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])


class Own(nn.Module):
    pass


@pytest.mark.parametrize("module", [nn.Linear(2, 2), nn.Sequential(), Own()])
def test_a_torch_module_gets_its_adapter(module):
    adapter = as_model(module)
    assert isinstance(adapter, TorchModel)
    assert adapter.module is module
    assert is_torch_module(module)
    assert not is_estimator(module)


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression().fit(X, Y),
        make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y),
        FrozenEstimator(RandomForestClassifier(2).fit(X, Y)),
    ],
    ids=["classifier", "pipeline", "frozen"],
)
def test_a_fitted_classifier_gets_its_adapter(estimator):
    adapter = as_model(estimator)
    assert isinstance(adapter, SklearnModel)
    assert adapter.classes.tolist() == [0, 1]
    assert is_estimator(estimator)
    assert not is_torch_module(estimator)


@pytest.mark.parametrize(
    "model",
    [PrecomputedModel(), TorchModel(nn.Linear(2, 2)), SklearnModel(LogisticRegression().fit(X, Y))],
    ids=lambda model: type(model).__name__,
)
def test_a_model_is_its_own_adapter(model):
    assert as_model(model) is model


def test_a_torch_module_with_the_methods_of_a_model_is_a_model_by_itself_only_if_wrapped():
    class Both(nn.Linear):
        classes = prepare = layers = observe = predict = get_params = None

    assert isinstance(as_model(Both(2, 2)), TorchModel)


@pytest.mark.parametrize("given", [nn.Linear, LogisticRegression, PrecomputedModel, TorchModel])
def test_a_class_in_place_of_an_instance_is_refused(given):
    with pytest.raises(InputError, match=r"a model must be .*; got <class .* of type"):
        as_model(given)
    assert not is_torch_module(given)
    assert not is_estimator(given)


@pytest.mark.parametrize("given", [None, "model", 3, X, StandardScaler(), object()])
def test_nonsense_is_refused_with_what_a_model_may_be(given):
    with pytest.raises(InputError) as caught:
        as_model(given)
    message = str(caught.value)
    assert "torch.nn.Module, a Keras model, a scikit-learn" in message
    assert "PrecomputedModel takes the outputs of any other framework" in message
    assert message.endswith(f"of type {type(given).__name__}")


def test_an_unfitted_classifier_is_refused():
    with pytest.raises(InputError, match="LogisticRegression is not a fitted classifier"):
        as_model(LogisticRegression())


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_torch_is_not_loaded_for_models_that_are_not_torch_modules():
    ran = run(
        "import sys\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "from iknow.models.adapt import as_model, is_torch_module\n"
        "from iknow.models import PrecomputedModel\n"
        "model = LogisticRegression().fit([[0], [1]], [0, 1])\n"
        "assert [is_torch_module(m) for m in (model, None, 3)] == [False] * 3\n"
        "assert type(as_model(model)).__name__ == 'SklearnModel'\n"
        "as_model(PrecomputedModel())\n"
        "assert 'torch' not in sys.modules\n"
        "from torch import nn\n"
        "assert is_torch_module(nn.Linear(1, 2))\n"
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""


def test_finding_an_adapter_does_not_load_torch():
    ran = run("import sys, iknow.models.adapt; print('torch' in sys.modules)")
    assert ran.stdout == "False\n", ran.stderr
