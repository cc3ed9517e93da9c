"""Bundles say what they are, and how their models are read."""

import io
import json
import math
import re
import resource
import sys
import warnings
from dataclasses import fields
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris, make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow import Ball, EpistemicClassifier, as_model
from iknow.errors import BundleError, InputError
from iknow.metrics import Minkowski, Weighted
from iknow.models import PrecomputedModel
from iknow.storage.info import describe_bundle, name_model
from iknow.storage.manifest import check_name, check_note
from iknow.version import __version__
from tests.markup import Page
from tests.storage.making import unpack, write_manifest, write_sparse
from tests.storage.test_bundle import make_outputs


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture
def tuned(iris):
    X, y = iris
    model = make_pipeline(StandardScaler(), LogisticRegression())
    return EpistemicClassifier(model, progress=False).fit(X, y)


def test_a_bundle_says_what_it_is(tuned, tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    tuned.save(tmp_path / "x.iknow", name="irises", note="Three kinds,\nfrom 1936.")
    info = describe_bundle(tmp_path / "x.iknow")
    assert (info.name, info.note, info.title) == ("irises", "Three kinds,\nfrom 1936.", "irises")
    assert before <= datetime.fromisoformat(info.created) <= datetime.now(UTC)
    assert info.model == "Pipeline(StandardScaler, LogisticRegression)"
    assert (info.iknow, info.version, info.format) == (__version__, None, 10)
    assert info.n_bytes == (tmp_path / "x.iknow").stat().st_size
    labels = tuned.indexes_["standardscaler"].labels
    assert info.per_class == tuple(np.bincount(labels).tolist())
    assert info.n_samples == sum(info.per_class) == len(labels)
    assert info.classes == ("setosa", "versicolor", "virginica")
    assert info.inputs == {"X": (4,)}
    assert info.feature_names == tuple(load_iris().feature_names)
    assert (info.rule, info.needs, info.recognizes_model) == ("RelativeBall", (), True)
    (layer,) = info.layers
    assert (layer.name, layer.n_features) == ("standardscaler", 4)
    assert layer.rule == repr(tuned.neighborhoods_["standardscaler"])
    assert layer.quorum == (1, 3)
    assert info.selection == tuned.selection_
    assert info.promises == tuned.selection_.sentences()


def test_its_summary_is_plain_values_words_and_markup(tuned, tmp_path):
    tuned.save(tmp_path / "x.iknow", name="<b>irises</b>", note="a & b")
    info = describe_bundle(tmp_path / "x.iknow")
    record = json.loads(json.dumps(info.to_dict(), allow_nan=False))
    assert set(record) == {field.name for field in fields(info)}
    assert record["selection"]["coverage"] == tuned.selection_.coverage
    assert record["layers"][0]["quorum"] == [1, 3]
    said = str(info)
    for each in ("<b>irises</b>", "a & b", info.created, "LogisticRegression", "setosa (38)"):
        assert each in said
    assert info.promises[-1] in said
    page = Page(info._repr_html_())
    assert "<b>irises</b>" in page.words
    assert "a & b" in page.words
    assert page.tags.count("b") == 1  # the heading's own


def test_a_name_and_a_note_are_kept_until_others_are_given(tuned, tmp_path):
    path = tmp_path / "x.iknow"
    model = FrozenEstimator(tuned.model_.estimator)
    tuned.save(path, name="irises", note="first")
    EpistemicClassifier.load(path, model).save(path)
    assert (describe_bundle(path).name, describe_bundle(path).note) == ("irises", "first")
    loaded = EpistemicClassifier.load(path)  # without its model
    loaded.save(path, note="second")
    info = describe_bundle(path)
    assert (info.name, info.note) == ("irises", "second")
    assert info.model == "Pipeline(StandardScaler, LogisticRegression)"
    assert info.inputs == {"X": (4,)}
    EpistemicClassifier.load(path, model).save(path, name="", note="")
    assert (describe_bundle(path).name, describe_bundle(path).note) == (None, "")


def test_a_new_fit_is_about_something_new(iris, tuned, tmp_path):
    X, y = iris
    tuned.save(tmp_path / "x.iknow", name="irises", note="of all kinds")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", FrozenEstimator(tuned.model_.estimator))
    loaded.fit(X, y).save(tmp_path / "x.iknow")
    assert (describe_bundle(tmp_path / "x.iknow").name) is None


def test_the_same_classifier_makes_the_same_file_at_the_same_time(tuned, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    tuned.save(tmp_path / "a.iknow")
    tuned.save(tmp_path / "b.iknow")
    assert (tmp_path / "a.iknow").read_bytes() == (tmp_path / "b.iknow").read_bytes()
    assert describe_bundle(tmp_path / "a.iknow").created == "2023-11-14T22:13:20Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH must be seconds since 1970; it is"):
        tuned.save(tmp_path / "a.iknow")


@pytest.mark.parametrize(
    "wrong", [{"name": "a\nb"}, {"name": 3}, {"name": np.ones(3)}, {"note": 3}, {"note": "\x1b[2J"}]
)
def test_a_name_or_note_that_no_terminal_should_see_is_refused(tuned, tmp_path, wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must be"):
        tuned.save(tmp_path / "x.iknow", **wrong)
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=30))
def test_any_text_is_kept_as_it_is_or_refused(text):
    for check in (check_name, check_note):
        try:
            kept = check(text)
        except InputError:
            assert not text.isprintable()
        else:
            assert (kept or "") == text.replace("\r\n", "\n")
            kept = kept or ""
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", kept)


def test_what_is_not_tuned_promises_nothing(tmp_path):
    X, y = make_outputs()
    metric = {"b": Weighted(np.eye(4)), "a": Minkowski(1)}
    untuned = EpistemicClassifier(PrecomputedModel(), metric=metric).fit(X, y)
    untuned.save(tmp_path / "x.iknow")
    info = describe_bundle(tmp_path / "x.iknow")
    assert "not tuned" in str(info)
    assert info.promises == ["It is not tuned yet: call tune before assess"]
    assert [layer.metric for layer in info.layers] == ["Minkowski(p=1.0)", "Weighted"]
    assert (info.inputs, info.selection, info.recognizes_model) == (None, None, False)
    fixed = EpistemicClassifier(PrecomputedModel(), rule=Ball(1)).fit(X, y)
    fixed.save(tmp_path / "x.iknow")
    assert "were given, not tuned" in describe_bundle(tmp_path / "x.iknow").promises[0]


def test_a_description_leaves_the_large_arrays_on_disk(tmp_path):
    """A sparse file: 8 GB that take no room, and must take none here."""
    X, y = make_outputs()
    EpistemicClassifier(PrecomputedModel(), rule=Ball(1)).fit(X, y).save(tmp_path / "x")
    manifest = json.loads(unpack(tmp_path / "x")["manifest.json"])
    n = 1 << 20
    manifest["settings"]["about"]["per_class"] = [n, 0, 0]
    contents = [("manifest.json", write_manifest(manifest), 0)]
    for name, dtype, shape in (
        ("labels.npy", "<i8", (n,)),
        ("rows.npy", "<i8", (n,)),
        ("layers/a/activations.npy", "<f4", (n, 2000)),
        ("layers/b/activations.npy", "<f4", (n, 4)),
    ):
        header = io.BytesIO()
        fields_of = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, fields_of)
        contents.append((name, header.getvalue(), int(dtype[2]) * math.prod(shape)))
    write_sparse(tmp_path / "x", contents)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    info = describe_bundle(tmp_path / "x")
    assert (info.n_samples, info.layers[0].n_features) == (n, 2000)
    assert info.n_bytes > 8e9
    if sys.platform.startswith("linux"):
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # in kB


def test_a_file_that_is_no_bundle_is_not_described(tmp_path):
    (tmp_path / "x.iknow").write_text("hello")
    with pytest.raises(BundleError, match="is not a bundle"):
        describe_bundle(tmp_path / "x.iknow")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (LogisticRegression(), "LogisticRegression"),
        (FrozenEstimator(LogisticRegression()), "LogisticRegression"),
        (make_pipeline(LogisticRegression()), "Pipeline(LogisticRegression)"),
        ("/data/models/signs.onnx", "ONNX file signs.onnx"),
        (make_outputs, "function make_outputs"),
        (torch.nn.Sequential(), "Sequential"),
        (SimpleNamespace(steps=[1, 2]), "SimpleNamespace"),
        (PrecomputedModel(), "PrecomputedModel"),
    ],
)
def test_models_have_short_names(model, name):
    assert name_model(model) == name


# How a model is read


def add_up(batch):
    return np.stack([-(batch[:, 0] ** 2), -((batch[:, 0] - 5) ** 2)], axis=1)


def widen(batch):
    return np.hstack([batch, batch**2])


@pytest.fixture
def blobs():
    return make_blobs(60, 2, centers=[[0, 0], [5, 5]], random_state=0)


def test_a_function_must_be_passed_again(blobs, tmp_path):
    path = tmp_path / "x.iknow"
    fitted = EpistemicClassifier(as_model(add_up, embed=widen), rule=Ball(2)).fit(*blobs)
    fitted.save(path)
    info = describe_bundle(path)
    assert (info.model, info.needs) == ("function add_up", ("embed",))
    assert "embed=..., a function: pass it to load" in str(info)
    with pytest.raises(BundleError, match=r"was made with embed given as a function.*embed=\.\.\."):
        EpistemicClassifier.load(path, add_up)
    loaded = EpistemicClassifier.load(path, as_model(add_up, embed=widen))
    assert loaded.model.options == {"embed": widen}
    queries = blobs[0] + 0.1
    assert loaded.assess(queries).reason.tolist() == fitted.assess(queries).reason.tolist()
    with pytest.raises(BundleError, match="was made with another model"):
        EpistemicClassifier.load(
            path, as_model(add_up, embed=lambda batch: np.hstack([batch, batch**3]))
        )


def test_without_its_model_a_bundle_still_knows_how_to_read_it(blobs, tmp_path):
    path = tmp_path / "x.iknow"
    EpistemicClassifier(as_model(add_up, embed=widen), rule=Ball(2)).fit(*blobs).save(path)
    loaded = EpistemicClassifier.load(path)
    assert not loaded.model.options
    loaded.save(path)
    assert describe_bundle(path).needs == ("embed",)


def adapt(model, *, device=None, **options):
    """Outputs that were computed before, with the options of a model that computes them."""
    made = PrecomputedModel()
    made.options = options
    return made


@pytest.mark.parametrize(
    ("option", "value", "stored"),
    [
        ("pool", "mean", "mean"),
        ("pool", {"a": "mean", "b": "cls"}, {"a": "mean", "b": "cls"}),
        ("scores", "logits", "logits"),
        ("scores", np.int64(1), 1),
    ],
)
def test_plain_options_come_back(tmp_path, monkeypatch, option, value, stored):
    """Whatever the adapters of today take: the bundle keeps any plain value."""
    monkeypatch.setattr("iknow.storage.saving.as_model", adapt)
    fitted = EpistemicClassifier(adapt(add_up, **{option: value}), rule=Ball(2))
    fitted.fit(*make_outputs()).save(tmp_path / "x.iknow")
    assert describe_bundle(tmp_path / "x.iknow").reading[option] == stored
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # outputs of a model cannot identify it
        loaded = EpistemicClassifier.load(tmp_path / "x.iknow", add_up)
    assert loaded.model.options[option] == stored
    assert f"{option}={stored!r}" in str(describe_bundle(tmp_path / "x.iknow"))


class Pooled(torch.nn.Module):
    """A small network whose scores have a name, and whose layer has places."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(1, 6, 3)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, images):
        hidden = self.conv(images).relu()
        return {"hidden": hidden, "logits": self.head(hidden.mean((2, 3)))}


def test_a_network_is_read_as_before(tmp_path):
    network = Pooled().eval()
    X = np.random.default_rng(0).normal(size=(60, 1, 8, 8)).astype(np.float32)
    made = EpistemicClassifier(
        as_model(network, pool="mean", scores="logits"), layers=["conv"], rule=Ball(1)
    ).fit(X, np.arange(60) % 3)
    made.save(tmp_path / "x.iknow")
    info = describe_bundle(tmp_path / "x.iknow")
    assert (info.inputs, info.layers[0].n_features) == ({"X": (1, 8, 8)}, 6)
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", network)
    assert loaded.model.options == {"pool": "mean", "scores": "logits"}
    assert loaded.assess(X).reason.tolist() == made.assess(X).reason.tolist()
    with pytest.raises(BundleError, match="was made with another model"):
        EpistemicClassifier.load(
            tmp_path / "x.iknow", as_model(network, pool=lambda each: each[:, :, 0, 0])
        )


def test_a_mapping_with_a_function_in_it_must_be_passed_again(tmp_path):
    fitted = EpistemicClassifier(adapt(add_up, pool={"a": "mean", "b": np.max}), rule=Ball(2))
    fitted.fit(*make_outputs()).save(tmp_path / "x.iknow")
    assert describe_bundle(tmp_path / "x.iknow").needs == ("pool",)
