"""Files from outside: damaged, hostile, of a newer version, with weights elsewhere."""

import os
import random
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data

from iknow.errors import IknowError, InputError
from iknow.models import OnnxModel
from iknow.models.onnx.file import UNSAFE, read_file
from iknow.models.onnx.session import CPU, Session
from tests.models.onnx.graphs import hidden_weights, mlp, observe, parsed

X = np.random.default_rng(1).normal(size=(6, 4))
UNUSED = {"training"}  # weights that onnxruntime does not use


def with_weights_at(place, model=None):
    """A graph whose first weights are in another file."""
    model = model or mlp()
    first = model.graph.initializer[0]
    set_external_data(first, place, offset=0, length=len(first.raw_data))
    first.ClearField("raw_data")
    first.data_location = TensorProto.EXTERNAL
    return model


@pytest.fixture(name="folder")
def model_folder(tmp_path):
    """A folder with weights in it, and some beside it."""
    folder = tmp_path / "model"
    (folder / "more").mkdir(parents=True)
    weights = mlp().graph.initializer[0].raw_data
    for place in ("weights.bin", "more/weights.bin", "../outside.bin"):
        (folder / place).write_bytes(weights)
    return folder


def saved(folder, model):
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("place", ["weights.bin", "more/weights.bin"])
def test_weights_beside_the_model_are_read(folder, place, monkeypatch):
    path = saved(folder, with_weights_at(place))
    wanted = observe(mlp(), X, ["hidden"])
    monkeypatch.chdir(folder)
    for given in (path, "model.onnx"):
        found = observe(given, X, ["hidden"])
        np.testing.assert_array_equal(found.scores, wanted.scores)
    model = OnnxModel("model.onnx")
    monkeypatch.chdir("/")  # the path was relative
    np.testing.assert_array_equal(model.observe(X, ["hidden"]).scores, wanted.scores)


@pytest.mark.parametrize(
    "place", ["../outside.bin", "more/../../outside.bin", "/etc/passwd", "..\\outside.bin",
              "C:\\outside.bin", "link.bin", "a\0b", "*/_ORT_MEM_ADDR_/*"],
)  # fmt: skip
def test_weights_outside_the_models_folder_are_not_read(folder, place):
    if hasattr(os, "symlink"):
        os.symlink("../outside.bin", folder / "link.bin")
    with pytest.raises(InputError, match="outside of its own folder"):
        OnnxModel(saved(folder, with_weights_at(place)))


@pytest.mark.parametrize("where", hidden_weights("x", mlp()))
def test_weights_are_checked_wherever_they_are(folder, where):
    model = hidden_weights("../outside.bin", mlp())[where]
    with pytest.raises(InputError, match="outside of its own folder"):
        OnnxModel(saved(folder, model))
    with pytest.raises(InputError, match="give the path of its file"):
        OnnxModel(model)


@pytest.mark.parametrize("where", [each for each in hidden_weights("", mlp()) if "sparse" in each])
def test_sparse_weights_must_be_inside(folder, where):
    """In a function, onnxruntime 1.31 crashes as it reads them."""
    with pytest.raises(InputError, match="sparse tensor in another file"):
        OnnxModel(saved(folder, hidden_weights("weights.bin", mlp())[where]))


@pytest.mark.parametrize("where", sorted(set(hidden_weights("x", mlp())) - UNUSED))
def test_onnxruntime_finds_no_weights_even_if_they_were_not_seen(folder, where, monkeypatch):
    monkeypatch.chdir(folder)
    np.arange(4).tofile("secret.bin")
    hidden = hidden_weights("secret.bin", mlp())[where]
    unseen = replace(read_file(mlp()), content=hidden.SerializeToString())
    with pytest.raises(InputError, match=r"cannot load the ONNX model.*secret\.bin"):
        Session(unseen).run(["scores", "hidden_made"], {"x": X.astype(np.float32)})


@pytest.mark.parametrize("op", sorted(UNSAFE))
def test_operations_that_read_files_or_run_code_are_refused(op):
    model = mlp()
    inside = helper.make_graph([helper.make_node(op, ["x"], ["y"], domain="d")], "g", [], [])
    opsets = [helper.make_opsetid("", 17)]
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=inside)]
    model.functions.append(helper.make_function("own", "f", ["c"], ["y"], nodes, opsets))
    with pytest.raises(InputError, match=f"operation {op}, which may read files or run code"):
        OnnxModel(model)


def test_bytes_are_read_in_the_format_that_was_checked(tmp_path):
    """Bytes can be made to look like an ONNX model and like onnxruntime's own format."""
    options, feeds = onnxruntime.SessionOptions(), {"x": X.astype(np.float32)}
    options.optimized_model_filepath = str(tmp_path / "own.ort")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    onnxruntime.InferenceSession(mlp().SerializeToString(), options, providers=[CPU])
    own = (tmp_path / "own.ort").read_bytes()
    assert onnxruntime.InferenceSession(own, providers=[CPU]).run(["scores"], feeds)
    with pytest.raises(InputError, match="cannot load the ONNX model"):
        Session(replace(read_file(mlp()), content=own)).run(["scores"], feeds)


def test_weights_that_are_missing_or_of_nowhere_are_told(folder):
    with pytest.raises(InputError, match=r"cannot load .*missing\.bin"):
        observe(saved(folder, with_weights_at("missing.bin")), X)
    with pytest.raises(InputError, match="give the path of its file"):
        OnnxModel(with_weights_at("weights.bin"))
    loaded = onnx.load(saved(folder, with_weights_at("weights.bin")))
    np.testing.assert_array_equal(observe(loaded, X).scores, observe(mlp(), X).scores)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "no ONNX model: it has no graph"), (b"\x80PK", "damaged or no ONNX model")],
)
def test_files_that_are_no_models_are_told(tmp_path, content, says):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        OnnxModel(path)


def test_paths_without_a_file_are_told(tmp_path):
    (tmp_path / "folder.onnx").mkdir()
    for name, says in (("nothing.onnx", "No such file"), ("folder.onnx", "cannot be read")):
        with pytest.raises(InputError, match=says):
            OnnxModel(tmp_path / name)
    with pytest.raises(InputError, match=r"the path of a file or an onnx\.ModelProto"):
        OnnxModel(b"model.onnx")


def changed(**fields):
    model = mlp()
    for name, value in fields.items():
        setattr(model, name, value)
    return model


def of_opset(version, op="Relu", domain=""):
    model = parsed("g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }")
    model.opset_import[0].version = version
    model.graph.node[0].op_type, model.graph.node[0].domain = op, domain
    return model


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (changed(ir_version=999), r"IR version.*upgrade onnxruntime"),
        (of_opset(999), r"opset.*lower opset_version"),
        (of_opset(17, op="Nothing"), "Nothing"),
        (of_opset(17, op="Run", domain="com.hostile"), "com.hostile"),
    ],
)
def test_what_this_onnxruntime_does_not_have_is_told(model, says):
    with pytest.raises(InputError, match=rf"(?s)onnxruntime .* cannot load .*{says}"):
        observe(model, X)


def read_layers(model):
    model = OnnxModel(model)
    return model.observe(X, [layer.name for layer in model.layers(X)])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{ y = Relu(z)  z = Relu(y) }", "uses 'z' before it is made"),
        ("{ y = Identity(y) }", "uses 'y' before it is made"),
        ("{ y = ai.onnx.ml.ZipMap() }", "has no tensor 'y'"),
        ("{ c = ai.onnx.ml.TreeEnsembleClassifier()  y = Add(x, c) }", "cannot load"),
        ("{ y, m, s = BatchNormalization <training_mode = 1> (x, W, W, W, W) }", "training mode"),
    ],
)
def test_graphs_that_cannot_be_followed_are_refused(text, says):
    weights = {"W": np.ones(4, dtype=np.float32)}
    with pytest.raises(InputError, match=says):
        read_layers(parsed("g (float[n, 4] x) => (float[n, 4] y) " + text, **weights))


def test_a_name_that_is_no_text_is_refused():
    content = mlp().SerializeToString().replace(b"hidden", b"hid\xffen")
    with pytest.raises(InputError, match="UTF-8"):
        OnnxModel(onnx.ModelProto.FromString(content))


def damage(content, seed):
    """A file cut, with other bytes, without some, or with some too many."""
    rng = random.Random(seed)
    damaged, at = bytearray(content), rng.randrange(len(content))
    noise = rng.randbytes(rng.randrange(1, 20))
    ways = [slice(at, None), slice(at, at + len(noise)), slice(at, at + 30), slice(at, at)]
    damaged[ways[seed % 4]] = noise if seed % 2 else b""
    return bytes(damaged)


@pytest.mark.parametrize("n", [300, pytest.param(3_000, marks=pytest.mark.slow)])
def test_damaged_files_are_errors_that_say_so(tmp_path, n):
    content, refused = mlp().SerializeToString(), 0
    path = tmp_path / "model.onnx"
    for seed in range(n):
        path.write_bytes(damage(content, seed))
        try:
            observe(path, X, ["hidden"])
        except IknowError:
            refused += 1
    assert refused > 2 / 3 * n


@pytest.mark.skipif(sys.platform == "win32", reason="by its file descriptors")
def test_reading_a_model_leaves_nothing_open(tmp_path):
    path = saved(tmp_path, mlp())
    observe(path, X)
    open_files = {os.path.realpath(f"/dev/fd/{number}") for number in os.listdir("/dev/fd")}
    assert str(path) not in open_files
