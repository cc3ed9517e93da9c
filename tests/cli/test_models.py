"""Models of every kind, named by their files."""

import csv

import numpy as np
import pytest
from sklearn.datasets import load_iris

FEATURES = ["--drop", "id", "--label", "kind"]
KINDS = ["setosa", "versicolor", "virginica"]


@pytest.fixture
def irises_as_codes(irises):
    """The training labels as codes of the classes in order."""
    y = np.load("train_labels.npy")
    return np.load("train.npy"), np.searchsorted(load_iris().target_names, y)


def run(iknow, model, *more, ending="csv", classes=True):
    """Fit and assess; the beliefs that were written."""
    named = [word for kind in KINDS for word in ("--class", kind)] if classes else []
    fit = ["--validation", f"val.{ending}", "--coverage", "0.5", "-o", "new.iknow"]
    iknow("fit", f"train.{ending}", *FEATURES, "--model", model, *fit, *named, *more)
    iknow("assess", "new.iknow", f"test.{ending}", *FEATURES, "--model", model, "-o", "out.csv")
    with open("out.csv", newline="") as file:
        return [row["belief"] for row in csv.DictReader(file)]


def as_kinds(codes):
    return [KINDS[code] for code in codes]


def make_net(torch):
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    return torch.nn.Sequential(*layers).eval()


def codes_of(net, torch):
    with torch.no_grad():
        return net(torch.tensor(np.load("test.npy"), dtype=torch.float32)).argmax(1).tolist()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torch_modules_torchscript_and_exported_programs(irises, iknow):
    torch = pytest.importorskip("torch")
    net, example = make_net(torch), torch.zeros(2, 4)
    torch.save(net, "net.pt")
    torch.jit.trace(net, example).save("script.pt")
    rows = {0: torch.export.Dim("rows")}
    torch.export.save(torch.export.export(net, (example,), dynamic_shapes=(rows,)), "net.pt2")
    expected = as_kinds(codes_of(net, torch))
    assert run(iknow, "net.pt") == expected
    assert run(iknow, "script.pt", "--layer", "input") == expected
    assert run(iknow, "net.pt2", "--layer", "input") == expected


def test_onnx_graphs(irises, iknow):
    pytest.importorskip("onnxruntime")
    joblib, skl2onnx = pytest.importorskip("joblib"), pytest.importorskip("skl2onnx")
    model = joblib.load("model.joblib")
    graph = skl2onnx.to_onnx(model, np.zeros((1, 4), dtype=np.float32), options={"zipmap": False})
    (irises / "m.onnx").write_bytes(graph.SerializeToString())
    expected = model.predict(np.load("test.npy").astype(np.float32)).tolist()
    assert run(iknow, "m.onnx", "--layer", "input", classes=True) == expected


@pytest.mark.slow
def test_boosters_of_xgboost(irises, iknow, irises_as_codes):
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(irises_as_codes[0], irises_as_codes[1])
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 3}, data, 5)
    expected = booster.predict(xgboost.DMatrix(np.load("test.npy"))).argmax(1)
    for name in ("m.json", "m.ubj"):
        booster.save_model(name)
        assert run(iknow, name) == as_kinds(expected)


def test_boosters_of_lightgbm(irises, iknow, irises_as_codes):
    lightgbm = pytest.importorskip("lightgbm")
    data = lightgbm.Dataset(*irises_as_codes)
    how = {"objective": "multiclass", "num_class": 3, "verbose": -1, "min_data_in_leaf": 2}
    booster = lightgbm.train(how, data, 5)
    booster.save_model("m.txt")
    assert run(iknow, "m.txt") == as_kinds(booster.predict(np.load("test.npy")).argmax(1))


def test_models_of_catboost_keep_their_labels(irises, iknow):
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(iterations=5, verbose=False, allow_writing_files=False)
    model.fit(np.load("train.npy"), np.load("train_labels.npy")).save_model("m.cbm")
    expected = model.predict(np.load("test.npy")).ravel().tolist()
    assert run(iknow, "m.cbm", classes=False) == expected


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_keras_models(irises, iknow, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    layers = keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)
    model = keras.Sequential(layers)
    model.save("m.keras")
    expected = model.predict(np.load("test.npy"), verbose=0).argmax(1)
    assert run(iknow, "m.keras") == as_kinds(expected)


@pytest.mark.parametrize(
    "name", ["m.pt", "m.pth", "m.pt2", "m.onnx", "m.keras", "m.json", "m.ubj", "m.txt", "m.cbm"]
)
@pytest.mark.parametrize("content", [b"", b"junk", b"\0" * 1000, b"PK\x03\x04", b"{}", b"tree\n"])
def test_a_file_that_is_no_model_is_told_in_a_line(irises, iknow, name, content):
    (irises / name).write_bytes(content)
    fit = ["fit", "train.csv", *FEATURES, "--model", name, "--hold-out", "0.3", "-o", "c.iknow"]
    said = iknow.fail(*fit)
    assert "bug" not in said
    (irises / name).unlink()
    assert f"no such model file: {name}" in iknow.fail(*fit)


def test_text_is_a_category_for_trees(tmp_path, monkeypatch, iknow):
    lightgbm = pytest.importorskip("lightgbm")
    joblib, pd = pytest.importorskip("joblib"), pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    color = rng.choice(["red", "green", "blue"], 300)
    size = rng.normal(size=300)
    y = np.where((color == "red") | (size > 1), "yes", "no")
    pd.DataFrame({"color": color, "size": size, "y": y}).to_csv("t.csv", index=False)
    frame = pd.DataFrame({"color": pd.Categorical(color), "size": size})
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(frame[:200], y[:200])
    joblib.dump(model, "m.joblib")
    words = ["t.csv", "--label", "y", "--model", "m.joblib"]
    iknow("fit", *words, "--hold-out", "0.3", "--coverage", "0.5", "-o", "b.iknow",
          "--layer", "output")  # fmt: skip
    right = model.score(frame, y)
    assert f"300 samples, accuracy {100 * right:.1f}%" in iknow("assess", "b.iknow", *words)


def test_models_of_other_kinds_are_compared_too(irises, iknow):
    lightgbm = pytest.importorskip("lightgbm")
    joblib = pytest.importorskip("joblib")
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, min_child_samples=2)
    joblib.dump(model.fit(np.load("train.npy"), np.load("train_labels.npy")), "m.joblib")
    files = ["train.jsonl", "val.parquet", "test.arrow"]
    said = iknow("compare", "m.joblib", *files, "--label", "kind", "--drop", "id")
    assert "iknow" in said
