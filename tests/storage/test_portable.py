"""Bundles that hold their model: alike the original or refused, and safe to read."""

import hashlib
import os
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import numpy_helper
from sklearn.base import clone
from sklearn.datasets import make_blobs

import iknow.storage.exporting
import iknow.storage.sealed
from iknow import EpistemicClassifier
from iknow.errors import BundleError, ExportError, InputError
from iknow.models import OnnxModel, PrecomputedModel
from iknow.models.export import as_portable
from iknow.models.onnx import PortableModel
from iknow.storage.info import describe_bundle
from tests.models.onnx.graphs import hidden_weights, mlp, parsed
from tests.storage.making import change, rewrite_manifest, unpack
from tests.storage.test_bundle import make_classifier

X, Y = make_blobs(260, 4, centers=3, cluster_std=2.5, random_state=0)
X = X.astype(np.float32)
Y = np.array(["red", "green", "blue"])[Y]
NAMES = ["length", "width", "height", "weight"]
NEW = X[200:]
RECTIFIER = "g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }"


@pytest.fixture(scope="module")
def classifier():
    """A classifier around an ONNX model, which needs nothing to be exported."""
    ec = EpistemicClassifier(mlp(), ["input", "hidden"], progress=False)
    ec.fit(pd.DataFrame(X[:120], columns=NAMES), Y[:120])
    return ec.tune(pd.DataFrame(X[120:200], columns=NAMES), coverage=0.6)


@pytest.fixture
def saved(classifier, tmp_path):
    classifier.save(tmp_path / "x.iknow", onnx=True, name="colors", version="1.3")
    return tmp_path / "x.iknow"


def assert_same_answers(one, other, inputs=NEW):
    before, after = one.assess(inputs), other.assess(inputs)
    for what in ("belief", "assertion", "reason", "level"):
        np.testing.assert_array_equal(getattr(before, what), getattr(after, what))


def test_a_portable_bundle_needs_no_model(classifier, saved):
    loaded = EpistemicClassifier.load(saved)
    assert isinstance(loaded.model_, PortableModel)
    assert_same_answers(classifier, loaded)
    np.testing.assert_array_equal(classifier.predict(NEW), loaded.predict(NEW))
    np.testing.assert_array_equal(classifier.predict_proba(NEW), loaded.predict_proba(NEW))
    assert loaded.feature_names_in_.tolist() == NAMES


def test_the_file_of_an_onnx_model_is_kept_as_it_was(saved):
    assert unpack(saved)["model.onnx"] == mlp().SerializeToString()
    reading = {"scores": None, "layers": {"input": None, "hidden": None}}
    assert describe_bundle(saved).exported["reading"] == reading


def test_a_loaded_bundle_does_what_any_classifier_does(classifier, saved, tmp_path):
    loaded = EpistemicClassifier.load(saved).warm_up()
    assert_same_answers(classifier, pickle.loads(pickle.dumps(loaded)))
    again = clone(loaded).fit(X[:120], Y[:120]).tune(X[120:200], coverage=0.6)
    assert_same_answers(classifier, again)
    again.save(tmp_path / "again.iknow")
    assert_same_answers(classifier, EpistemicClassifier.load(tmp_path / "again.iknow"))


@pytest.mark.slow
def test_loading_imports_no_framework(saved):
    code = (
        "import sys, numpy as np\n"
        "from iknow import EpistemicClassifier\n"
        f"ec = EpistemicClassifier.load({os.fspath(saved)!r})\n"
        "print(len(ec.assess(np.ones((3, 4))).level))\n"
        "wrong = {'torch', 'skl2onnx', 'onnxscript'} & set(sys.modules)\n"
        "assert not wrong, wrong\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_the_file_says_how_it_was_compared(classifier, saved):
    info = describe_bundle(saved)
    assert (info.version, info.name, info.is_portable) == ("1.3", "colors", True)
    assert info.exported["samples"] == 32
    assert set(info.exported["layers"]) == {"input", "hidden"}
    for found in (info.exported["scores"], *info.exported["layers"].values()):
        assert 0 <= found["difference"] <= found["tolerance"]
    assert "in the bundle as ONNX, compared on 32 samples" in str(info)
    assert "1.3" in str(info)
    with zipfile.ZipFile(saved) as file:
        assert file.namelist()[-1] == "model.onnx"
        onnx.checker.check_model(file.read("model.onnx"))


def test_the_checksum_of_a_bundle_is_that_of_its_manifest(classifier, saved, tmp_path, monkeypatch):
    with zipfile.ZipFile(saved) as file:
        wanted = hashlib.sha256(file.read("manifest.json")).hexdigest()
    assert describe_bundle(saved).sha256 == wanted
    assert EpistemicClassifier.load(saved).plan_.bundled["sha256"] == wanted
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    sums = set()
    for name, note in (("a", ""), ("b", ""), ("c", "another")):
        classifier.save(tmp_path / name, onnx=True, note=note)
        sums.add(describe_bundle(tmp_path / name).sha256)
    assert len(sums) == 2


def test_a_bundle_saved_again_keeps_its_model(classifier, saved, tmp_path):
    loaded = EpistemicClassifier.load(saved)
    loaded.save(tmp_path / "y.iknow")
    assert unpack(tmp_path / "y.iknow")["model.onnx"] == unpack(saved)["model.onnx"]
    one, other = describe_bundle(saved), describe_bundle(tmp_path / "y.iknow")
    assert (one.exported, one.model, one.name) == (other.exported, other.model, other.name)
    assert other.version is None  # it is another bundle
    assert_same_answers(classifier, EpistemicClassifier.load(tmp_path / "y.iknow"))


def test_a_model_that_is_given_comes_first(saved, tmp_path):
    loaded = EpistemicClassifier.load(saved, mlp())
    assert isinstance(loaded.model_, OnnxModel)
    loaded.save(tmp_path / "y.iknow")
    assert not describe_bundle(tmp_path / "y.iknow").is_portable
    assert isinstance(EpistemicClassifier.load(tmp_path / "y.iknow").model_, PrecomputedModel)


def test_a_table_is_matched_by_name(classifier, saved):
    loaded = EpistemicClassifier.load(saved)
    table = pd.DataFrame(NEW, columns=NAMES)
    wanted = classifier.assess(table).level
    np.testing.assert_array_equal(loaded.assess(table[NAMES[::-1]]).level, wanted)
    for other in (table.rename(columns={"width": "depth"}), table.assign(extra=1.0)):
        with pytest.raises(InputError, match=r"depth|extra"):
            loaded.assess(other)


def changed_weights(content, by):
    """The same graph with one weight changed."""
    model = onnx.ModelProto.FromString(content)
    weights = next(each for each in model.graph.initializer if each.name.endswith("W2"))
    values = numpy_helper.to_array(weights).copy()
    values[0, 0] += by
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    return model.SerializeToString()


def change_export(monkeypatch, edit):
    """Let the exporter make something else."""
    exporter = iknow.storage.exporting.find_exporter

    def other(model):
        def export(*arguments):
            content, reading = exporter(model)(*arguments)
            return edit(content), reading

        return export

    monkeypatch.setattr(iknow.storage.exporting, "find_exporter", other)


def test_a_model_that_differs_is_refused_and_the_sample_named(classifier, tmp_path, monkeypatch):
    change_export(monkeypatch, lambda content: changed_weights(content, 0.05))
    with pytest.raises(ExportError, match=r"differs on training input \d+: the scores are .* away"):
        classifier.save(tmp_path / "x.iknow", onnx=True)
    assert not list(tmp_path.iterdir())


def test_answers_must_be_the_same_however_small_the_difference(classifier, tmp_path, monkeypatch):
    """Whatever is allowed of scores and activations."""
    monkeypatch.setattr(iknow.storage.exporting, "find_tolerance", lambda _: np.inf)
    allowed = dict.fromkeys(classifier.probe_.tolerances, np.inf)
    lax = replace(classifier.probe_, tolerances=allowed)
    monkeypatch.setattr(classifier, "plan_", replace(classifier.plan_, probe=lax))
    change_export(monkeypatch, lambda content: changed_weights(content, 30.0))
    before = classifier.assess(NEW)
    with pytest.raises(ExportError, match=r"on training input \d+: it believes \w+, the"):
        classifier.save(tmp_path / "x.iknow", onnx=True)
    monkeypatch.setattr(classifier, "plan_", replace(classifier.plan_, probe="none is kept"))
    with pytest.raises(ExportError) as refused:
        classifier.save(tmp_path / "x.iknow", onnx=True, samples=NEW)
    row = int(str(refused.value).split("on sample ")[1].split(":")[0])
    model = OnnxModel(onnx.ModelProto.FromString(changed_weights(mlp().SerializeToString(), 30.0)))
    believed = model.observe(NEW, ()).belief
    assert row == np.flatnonzero(classifier.classes_[believed] != before.belief)[0]


def test_levels_and_assertions_are_compared(classifier, tmp_path, monkeypatch):
    assess = EpistemicClassifier.assess

    def nudged(self, inputs, **options):
        said = assess(self, inputs, **options)
        if isinstance(self.model_, PortableModel):
            level = said.level.copy()
            level[5] = np.nextafter(level[5], 2.0)
            vars(said)["level"] = level
        return said

    monkeypatch.setattr(EpistemicClassifier, "assess", nudged)
    with pytest.raises(ExportError, match="training input 5: it has the level"):
        classifier.save(tmp_path / "x.iknow", onnx=True)


def test_a_classifier_around_the_exported_model_is_exact(classifier, tmp_path):
    model = as_portable(classifier.model_, classifier.layers_, X[:10])
    ec = EpistemicClassifier(model, progress=False).fit(X[:120], Y[:120])
    ec.tune(X[120:200], coverage=0.6).save(tmp_path / "x.iknow", onnx=True, samples=X)
    compared = describe_bundle(tmp_path / "x.iknow").exported
    assert [each["difference"] for each in compared["layers"].values()] == [0.0, 0.0]
    assert_same_answers(ec, EpistemicClassifier.load(tmp_path / "x.iknow"), X)


def test_without_real_samples_nothing_is_exported(classifier, tmp_path):
    classifier.save(tmp_path / "x.iknow", probe=False)
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", mlp(), check_model=False)
    with pytest.raises(ExportError, match="nothing to compare the exported model on"):
        loaded.save(tmp_path / "y.iknow", onnx=True)
    loaded.save(tmp_path / "y.iknow", onnx=True, samples=NEW[:7])
    assert describe_bundle(tmp_path / "y.iknow").exported["samples"] == 7
    assert_same_answers(classifier, EpistemicClassifier.load(tmp_path / "y.iknow"))


def test_outputs_alone_cannot_be_exported(tmp_path):
    with pytest.raises(ExportError, match="no model to export"):
        make_classifier().save(tmp_path / "x.iknow", onnx=True)
    with pytest.raises(InputError, match="say onnx=True too"):
        make_classifier().save(tmp_path / "x.iknow", samples=NEW)


def test_an_untuned_classifier_is_exported_too(tmp_path):
    ec = EpistemicClassifier(mlp(), ["hidden"], progress=False).fit(X[:120], Y[:120])
    ec.save(tmp_path / "x.iknow", onnx=True)
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow").tune(X[120:200], coverage=0.6)
    assert_same_answers(ec.tune(X[120:200], coverage=0.6), loaded)


@pytest.mark.parametrize("version", ["a b", "../x", ".", "-1", "ä", "x" * 65, 3, "1\n", "a/b"])
def test_a_version_is_a_part_of_an_address(classifier, tmp_path, version):
    with pytest.raises(InputError, match="version must be"):
        classifier.save(tmp_path / "x.iknow", version=version)
    classifier.save(tmp_path / "x.iknow")

    def put(manifest):
        manifest["settings"]["about"]["version"] = version

    rewrite_manifest(tmp_path / "x.iknow", put)
    with pytest.raises(BundleError, match=r"version must be|settings\.about\.version"):
        describe_bundle(tmp_path / "x.iknow")


def test_a_damaged_model_is_refused(saved):
    size = len(unpack(saved)["model.onnx"])
    change(saved, "model.onnx", lambda text: text[: size // 2] + b"\xff" + text[size // 2 + 1 :])
    with pytest.raises(BundleError, match=r"model\.onnx does not match its checksum"):
        EpistemicClassifier.load(saved)
    EpistemicClassifier.load(saved, mlp())  # which does not use it
    with pytest.raises(BundleError, match=r"model\.onnx does not match its checksum"):
        EpistemicClassifier.load(saved, mlp(), verify="now")


def reseal(path, content):
    """Put another model into a bundle, as an attacker can."""
    change(path, "model.onnx", lambda _: content)
    checksum = hashlib.sha256(content).hexdigest()
    rewrite_manifest(path, lambda manifest: manifest["model"].update(sha256=checksum))


def test_a_hostile_model_is_refused(saved, tmp_path):
    onnx.save(mlp(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    other = OnnxModel(mlp())
    for content, says in (
        ((tmp_path / "m.onnx").read_bytes(), "are in other files"),
        (b"", "no ONNX model"),
        (b"\x80PK", "damaged or no ONNX model"),
        (parsed(RECTIFIER).SerializeToString(), "has no layer 'hidden'"),
        (changed_weights(unpack(saved)["model.onnx"], 0.5), "answers differently here"),
    ):
        reseal(saved, content)
        with pytest.raises(BundleError, match=says):
            EpistemicClassifier.load(saved)
    assert other.observe(NEW, ()).scores.shape == (60, 3)


@pytest.mark.parametrize("where", hidden_weights("secret.bin", mlp()))
def test_a_forged_bundle_reads_no_file(saved, tmp_path, monkeypatch, where):
    """Not even one in the folder that the program runs in, however deep its name is hidden."""
    monkeypatch.chdir(tmp_path)
    np.arange(4).tofile("secret.bin")
    model = onnx.ModelProto.FromString(unpack(saved)["model.onnx"])
    reseal(saved, hidden_weights("secret.bin", model)[where].SerializeToString())
    with pytest.raises(BundleError, match=r"other files \('secret\.bin'\)"):
        EpistemicClassifier.load(saved, verify="now")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("samples", 0),
        ("samples", True),
        ("scores", {"tolerance": 1.0}),
        ("scores", {"tolerance": float("inf"), "difference": 0.0}),
        ("layers", {}),
        ("layers", {"input": None, "hidden": None}),
        ("reading", {"scores": None}),
        ("reading", {"scores": None, "layers": ["hidden"]}),
        ("reading", 1),
        ("sha256", 5),
        ("more", 1),
    ],
)
def test_a_wrong_record_is_refused(saved, key, value):
    rewrite_manifest(saved, lambda manifest: manifest["model"].update({key: value}))
    with pytest.raises(BundleError, match=r"manifest\.json"):
        EpistemicClassifier.load(saved)
    with pytest.raises(BundleError):
        describe_bundle(saved)


@pytest.mark.parametrize(
    ("reading", "says"),
    [
        (None, "has no tensor 'scores'|does not give layer 'input'"),
        ({"scores": None, "layers": {"input": None}}, "does not give layer 'hidden'"),
        ({"scores": "nothing", "layers": {}}, "has no tensor 'nothing'"),
        ({"scores": ["scores", {}], "layers": {}}, "scores must be the name"),
        ({"scores": 7, "layers": {}}, "has no output 7"),
        ({"scores": None, "layers": {"hidden": "os.system"}}, "pool must be"),
        ({"scores": None, "layers": {"nothing": None}}, "'nothing'"),
    ],
)
def test_a_wrong_reading_is_refused(saved, reading, says):
    rewrite_manifest(saved, lambda manifest: manifest["model"].update(reading=reading))
    with pytest.raises(BundleError, match=says):
        EpistemicClassifier.load(saved)


def test_a_model_without_a_record_does_not_belong(saved):
    rewrite_manifest(saved, lambda manifest: manifest.update(model=None))
    with pytest.raises(BundleError, match=r"model\.onnx does not belong in it"):
        EpistemicClassifier.load(saved)


@pytest.fixture
def mapped(monkeypatch):
    monkeypatch.setattr(iknow.storage.sealed, "COPIED_UP_TO", 0)


def test_a_bundle_replaced_in_use_goes_on(classifier, saved, tmp_path, mapped):
    loaded = EpistemicClassifier.load(saved)
    make_classifier().save(tmp_path / "other.iknow")
    os.replace(tmp_path / "other.iknow", saved)
    assert_same_answers(classifier, loaded)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_bundle_truncated_in_use_is_refused(saved, mapped, keep):
    loaded = EpistemicClassifier.load(saved)
    loaded.assess(NEW)
    os.truncate(saved, int(keep * saved.stat().st_size))
    with pytest.raises(BundleError, match="was changed after it was loaded"):
        loaded.assess(NEW)
    with pytest.raises(BundleError):
        EpistemicClassifier.load(saved)
    assert len(loaded.predict(NEW)) == len(NEW)  # the model was copied
