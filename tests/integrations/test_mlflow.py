"""MLflow: what is logged comes back, answers alike, and serves frames. No network."""

import json
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # a database takes a while to make
mlflow = pytest.importorskip("mlflow")

from iknow import Ball, EpistemicClassifier, as_model  # noqa: E402
from iknow.errors import BundleError, ExportError, InputError  # noqa: E402
from iknow.integrations import answers_of  # noqa: E402
from iknow.integrations import mlflow as iknow_mlflow  # noqa: E402
from iknow.models import PrecomputedModel  # noqa: E402
from iknow.storage.info import describe_bundle  # noqa: E402
from tests.integrations import loading  # noqa: E402
from tests.storage.test_bundle import make_outputs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Operation with range is deprecated")  # MLflow's

FRAME, CODES = load_iris(return_X_y=True, as_frame=True)
LABELS = np.array(["setosa", "versicolor", "virginica"])[CODES]
X = FRAME.to_numpy()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A tracking store in a folder, and an experiment."""
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((folder / "tracking").as_uri())
    mlflow.create_experiment("irises", artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment("irises")
    yield folder
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def irises():
    model = make_pipeline(StandardScaler(), LogisticRegression())
    return EpistemicClassifier(model, progress=False).fit(FRAME, LABELS)


def assert_same_answers(one, other, inputs):
    before, after = one.assess(inputs), other.assess(inputs)
    assert before.reason.tolist() == after.reason.tolist()
    assert before.belief.tolist() == after.belief.tolist()


def test_a_logged_classifier_comes_back_and_serves(store, irises):
    info = iknow_mlflow.log_model(
        irises, name="irises", registered_model_name="flowers", params={"why": "a test"}
    )
    assert_same_answers(iknow_mlflow.load_model(info.model_uri), irises, FRAME)
    assert_same_answers(iknow_mlflow.load_model("models:/flowers/1"), irises, FRAME)
    served = mlflow.pyfunc.load_model(info.model_uri).predict(FRAME)
    expected = irises.assess(FRAME)
    assert list(served) == ["belief", "assertion", "reason", "level", "probability"]
    assert served["belief"].tolist() == expected.belief.tolist()
    assert served["assertion"].tolist() == [each.name for each in expected.assertion]
    assert served["reason"].tolist() == [each.name for each in expected.reason]
    for name in ("level", "probability"):
        np.testing.assert_array_equal(served[name], getattr(expected, name))
    json.dumps(served.to_dict("records"))


def test_its_signature_tells_inputs_and_outputs(store, irises):
    signature = iknow_mlflow.log_model(irises, name="signed").signature
    assert signature.inputs.input_names() == list(FRAME)
    assert signature.inputs.input_types() == [mlflow.types.DataType.double] * 4
    named = ["belief", "assertion", "reason", "level", "probability"]
    assert signature.outputs.input_names() == named
    kinds = [each.name for each in signature.outputs.input_types()]
    assert kinds == ["string"] * 3 + ["double"] * 2


def test_columns_in_another_order_are_put_right_and_missing_ones_refused(store, irises):
    served = mlflow.pyfunc.load_model(iknow_mlflow.log_model(irises, name="ordered").model_uri)
    turned = served.predict(FRAME[FRAME.columns[::-1]])
    pd.testing.assert_frame_equal(turned, served.predict(FRAME))
    with pytest.raises(mlflow.exceptions.MlflowException, match="missing inputs"):
        served.predict(FRAME.drop(columns=FRAME.columns[0]))


def test_what_the_bundle_says_is_in_the_metadata(store, irises, tmp_path):
    iknow_mlflow.save_model(irises, tmp_path / "m", metadata={"owner": "me"})
    metadata = mlflow.models.Model.load(str(tmp_path / "m")).metadata
    assert metadata["owner"] == "me"
    assert metadata["iknow"]["model"] == "Pipeline(StandardScaler, LogisticRegression)"
    assert metadata["iknow"]["selection"]["coverage"] == irises.selection_.coverage
    assert metadata["iknow"]["promises"] == irises.selection_.sentences()


def test_arrays_are_served_as_arrays_and_frames(tmp_path):
    model = FrozenEstimator(LogisticRegression(max_iter=500).fit(X, CODES))
    made = EpistemicClassifier(model, rule=Ball(0.5), progress=False).fit(X, CODES)
    iknow_mlflow.save_model(made, tmp_path / "m")
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    assert served.metadata.signature.inputs.is_tensor_spec()
    answers = served.predict(X)
    assert list(answers) == ["belief", "assertion", "reason"]  # no levels: the ball was given
    pd.testing.assert_frame_equal(answers, served.predict(pd.DataFrame(X)))
    assert answers["belief"].tolist() == made.assess(X).belief.tolist()


def test_an_example_is_kept_only_if_it_is_given(irises, tmp_path):
    iknow_mlflow.save_model(irises, tmp_path / "a")
    assert not list((tmp_path / "a").glob("*example*"))
    iknow_mlflow.save_model(irises, tmp_path / "b", input_example=FRAME.head(2))
    assert (tmp_path / "b" / "input_example.json").exists()
    iknow_mlflow.save_model(irises, tmp_path / "c", signature=False)
    assert mlflow.models.Model.load(str(tmp_path / "c")).signature is None


def test_precomputed_outputs_are_served_by_name(tmp_path):
    outputs, y = make_outputs()
    made = EpistemicClassifier(PrecomputedModel(), rule=Ball(2)).fit(outputs, y)
    example = {"scores": outputs[0], **outputs[1]}
    iknow_mlflow.save_model(
        made, tmp_path / "m", signature=iknow_mlflow.make_signature(made, example)
    )
    assert not (tmp_path / "m" / "model.joblib").exists()
    served = mlflow.pyfunc.load_model(str(tmp_path / "m")).predict(example)
    assert served["reason"].tolist() == [each.name for each in made.assess(outputs).reason]
    with pytest.raises(InputError, match="precomputed outputs need 'scores'; got 'a', 'b'"):
        answers_of(made, outputs[1])


def test_an_onnx_file_goes_along(tmp_path):
    pytest.importorskip("iknow.models.onnx")
    skl2onnx = pytest.importorskip("skl2onnx")
    model = LogisticRegression(max_iter=500).fit(X, CODES)
    converted = skl2onnx.to_onnx(model, X[:1].astype(np.float32), options={"zipmap": False})
    (tmp_path / "own.onnx").write_bytes(converted.SerializeToString())
    inputs = X.astype(np.float32)
    made = EpistemicClassifier(
        str(tmp_path / "own.onnx"), layers=["input"], rule=Ball(0.5), progress=False
    ).fit(inputs, CODES)
    iknow_mlflow.save_model(made, tmp_path / "m")
    (tmp_path / "own.onnx").unlink()
    assert_same_answers(iknow_mlflow.load_model(str(tmp_path / "m")), made, inputs)


def test_a_network_comes_back_as_onnx_and_runs_no_code(tmp_path, monkeypatch):
    inputs = X.astype(np.float32)
    made = EpistemicClassifier(loading.make_network(), rule=Ball(1), progress=False)
    iknow_mlflow.save_model(made.fit(inputs, CODES), tmp_path / "m")
    assert not (tmp_path / "m" / "model.joblib").exists()
    needed = (tmp_path / "m" / "requirements.txt").read_text()
    assert "onnxruntime==" in needed
    assert "torch" not in needed
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    found = iknow_mlflow.load_model(str(tmp_path / "m"))
    assert_same_answers(found, made, inputs)
    iknow_mlflow.save_model(found, tmp_path / "again")
    assert_same_answers(iknow_mlflow.load_model(str(tmp_path / "again")), made, inputs)
    served = mlflow.pyfunc.load_model(str(tmp_path / "m")).predict(inputs)
    assert served["belief"].tolist() == made.predict(inputs).tolist()


def test_a_booster_itself_comes_back(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    inputs = X.astype(np.float32)
    options = {"objective": "multi:softprob", "num_class": 3}
    booster = xgboost.train(options, xgboost.DMatrix(inputs, CODES), 3)
    made = EpistemicClassifier(booster, rule=Ball(1), progress=False).fit(inputs, CODES)
    iknow_mlflow.save_model(made, tmp_path / "m")
    assert_same_answers(iknow_mlflow.load_model(str(tmp_path / "m")), made, inputs)


def test_what_cannot_become_onnx_comes_back_through_a_loader(tmp_path):
    made = EpistemicClassifier(
        as_model(loading.score, embed=loading.square), rule=Ball(1), progress=False
    ).fit(X, CODES)
    with pytest.raises(ExportError, match=r"a function can be any code.*pass a model_loader="):
        iknow_mlflow.save_model(made, tmp_path / "m")
    assert not (tmp_path / "m").exists()
    loader = "tests.integrations.loading:load_function"
    iknow_mlflow.save_model(made, tmp_path / "m", model_loader=loader)
    assert_same_answers(iknow_mlflow.load_model(str(tmp_path / "m")), made, X)
    given = as_model(loading.score, embed=loading.square)
    assert_same_answers(iknow_mlflow.load_model(str(tmp_path / "m"), given), made, X)


def test_a_loader_makes_a_network_of_its_files(tmp_path):
    network, inputs = loading.make_network(), X.astype(np.float32)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    made = EpistemicClassifier(network, rule=Ball(1), progress=False).fit(inputs, CODES)
    how = {
        "model_loader": "tests.integrations.loading:load_network",
        "model_files": [tmp_path / "weights.pt"],
    }
    iknow_mlflow.save_model(made, tmp_path / "m", **how)
    (tmp_path / "weights.pt").unlink()
    assert "torch==" in (tmp_path / "m" / "requirements.txt").read_text()
    assert_same_answers(iknow_mlflow.load_model(str(tmp_path / "m")), made, inputs)
    served = mlflow.pyfunc.load_model(str(tmp_path / "m")).predict(inputs)
    assert served["belief"].tolist() == made.predict(inputs).tolist()


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_keras_model_comes_back_through_a_loader(tmp_path):
    keras = pytest.importorskip("keras")
    inputs = X.astype(np.float32)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(3)])
    model.save(tmp_path / "own.keras")
    made = EpistemicClassifier(model, rule=Ball(1), progress=False).fit(inputs, CODES)
    loader = "tests.integrations.loading:load_keras"
    iknow_mlflow.save_model(
        made, tmp_path / "m", model_loader=loader, model_files=[tmp_path / "own.keras"]
    )
    assert "keras==" in (tmp_path / "m" / "requirements.txt").read_text()
    assert_same_answers(iknow_mlflow.load_model(str(tmp_path / "m")), made, inputs)


@pytest.mark.parametrize(
    "loader",
    ["loading", ":f", "no.such:f", 3]
    + [f"tests.integrations.loading:{name}" for name in ("none", "NOT_A_FUNCTION")],
)
def test_a_loader_that_is_none_is_refused(irises, tmp_path, loader):
    with pytest.raises(InputError, match="model_loader"):
        iknow_mlflow.save_model(irises, tmp_path / "m", model_loader=loader)
    assert not (tmp_path / "m").exists()


def test_files_without_a_loader_are_refused(irises, tmp_path):
    with pytest.raises(InputError, match="model_files are for a model_loader"):
        iknow_mlflow.save_model(irises, tmp_path / "m", model_files=["x"])
    assert not (tmp_path / "m").exists()


def test_a_loader_that_gives_another_model_is_refused_at_once(tmp_path):
    network, inputs = loading.make_network(), X.astype(np.float32)
    with torch.no_grad():
        network[0].weight.mul_(2)
    torch.save(loading.make_network().state_dict(), tmp_path / "weights.pt")
    made = EpistemicClassifier(network, rule=Ball(1), progress=False).fit(inputs, CODES)
    with pytest.raises(BundleError, match="was made with another model"):
        iknow_mlflow.save_model(
            made,
            tmp_path / "m",
            model_loader="tests.integrations.loading:load_network",
            model_files=[tmp_path / "weights.pt"],
        )
    assert not (tmp_path / "m").exists()


def test_inputs_by_name_are_served_by_name(tmp_path):
    rng = np.random.default_rng(0)
    inputs = {
        "input_ids": rng.integers(0, 20, size=(40, 5)),
        "attention_mask": np.ones((40, 5), dtype=np.int64),
    }
    made = EpistemicClassifier(
        loading.Named(), layers=["head"], rule=Ball(0.2), progress=False
    ).fit(inputs, np.arange(40) % 2)
    iknow_mlflow.save_model(made, tmp_path / "m")
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    assert set(served.metadata.signature.inputs.input_names()) == set(inputs)
    assert served.predict(inputs)["belief"].tolist() == made.predict(inputs).tolist()


@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
def test_texts_are_served_as_texts(tmp_path, kind):
    rng = np.random.default_rng(0)
    words = [["sun", "beach", "sea"], ["snow", "ski", "ice"]]
    texts = [" ".join(rng.choice(words[i % 2], 4)) for i in range(80)]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    made = EpistemicClassifier(model, progress=False).fit(kind(texts), np.arange(80) % 2)
    iknow_mlflow.save_model(made, tmp_path / "m")
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    expected = made.predict(kind(texts)).tolist()
    for given in (texts, pd.DataFrame({"text": texts})):
        assert served.predict(given)["belief"].tolist() == expected


def test_a_pickle_is_not_loaded_where_it_is_forbidden_or_needless(irises, tmp_path, monkeypatch):
    iknow_mlflow.save_model(irises, tmp_path / "m")
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    with pytest.raises(BundleError, match="is a pickle, and MLFLOW_ALLOW_PICKLE_DESERIALIZATION"):
        iknow_mlflow.load_model(str(tmp_path / "m"))
    (tmp_path / "m" / "model.joblib").unlink()
    found = iknow_mlflow.load_model(str(tmp_path / "m"), irises.model_.estimator)
    assert_same_answers(found, irises, FRAME)
    other = LogisticRegression(max_iter=500).fit(FRAME, LABELS)
    with pytest.raises(BundleError, match="was made with another model"):
        iknow_mlflow.load_model(str(tmp_path / "m"), other)


def test_the_environment_names_what_is_needed(irises, tmp_path):
    iknow_mlflow.save_model(irises, tmp_path / "m", extra_pip_requirements=["more==1"])
    needed = (tmp_path / "m" / "requirements.txt").read_text().splitlines()
    packages = [each.partition("==")[0] for each in needed]
    assert {"iknow", "scikit-learn", "pandas", "more"} <= set(packages)
    iknow_mlflow.save_model(irises, tmp_path / "n", pip_requirements=["only==1"])
    assert "scikit-learn" not in (tmp_path / "n" / "requirements.txt").read_text()
    for name in ("conda.yaml", "python_env.yaml", "MLmodel"):
        assert (tmp_path / "m" / name).exists()


def test_code_goes_along(tmp_path, monkeypatch):
    (tmp_path / "own_steps.py").write_text("def halve(X):\n    return X / 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_steps

    model = make_pipeline(FunctionTransformer(own_steps.halve), LogisticRegression(max_iter=500))
    made = EpistemicClassifier(model, progress=False).fit(FRAME, LABELS)
    code = [str(tmp_path / "own_steps.py")]
    iknow_mlflow.save_model(made, tmp_path / "m", code_paths=code)
    (tmp_path / "own_steps.py").unlink()
    monkeypatch.delitem(sys.modules, "own_steps")
    assert_same_answers(iknow_mlflow.load_model(str(tmp_path / "m")), made, FRAME)
    assert Path(sys.modules["own_steps"].__file__).parent == tmp_path / "m" / "code"


def test_the_bundle_inside_is_a_bundle(irises, tmp_path):
    iknow_mlflow.save_model(irises, tmp_path / "m")
    assert describe_bundle(tmp_path / "m" / "bundle.iknow").classes == tuple(np.unique(LABELS))
    assert zipfile.is_zipfile(tmp_path / "m" / "bundle.iknow")


def test_what_is_no_classifier_or_no_place_is_refused(irises, tmp_path):
    with pytest.raises(InputError, match="an EpistemicClassifier is needed"):
        iknow_mlflow.save_model(LogisticRegression(), tmp_path / "m")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis").write_text("mine")
    with pytest.raises(InputError, match="is not an empty folder"):
        iknow_mlflow.save_model(irises, tmp_path / "full")
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["thesis"]


def test_a_model_of_another_flavor_is_refused(tmp_path):
    model = mlflow.models.Model()
    model.add_flavor("other", data="x")
    (tmp_path / "m").mkdir()
    model.save(str(tmp_path / "m" / "MLmodel"))
    with pytest.raises(BundleError, match="but not one of iknow"):
        iknow_mlflow.load_model(str(tmp_path / "m"))


def test_an_unknown_way_of_storing_is_refused(irises, tmp_path):
    iknow_mlflow.save_model(irises, tmp_path / "m")
    file = tmp_path / "m" / "MLmodel"
    file.write_text(file.read_text().replace("file: model.joblib", "file: ../../etc"))
    with pytest.raises(BundleError, match="is unknown to this version"):
        iknow_mlflow.load_model(str(tmp_path / "m"))


def test_without_mlflow_the_error_names_the_extra(run_without):
    said = run_without(
        ["mlflow"],
        """
try:
    import iknow.integrations.mlflow
except ImportError as error:
    print(error)
""",
    )
    assert "pip install 'iknow[mlflow]'" in said
