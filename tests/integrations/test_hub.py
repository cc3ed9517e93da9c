"""Folders for model hubs: what the card says is what the bundle says, and never markup."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier, as_model
from iknow.core.text import visible
from iknow.errors import BundleError, InputError
from iknow.integrations.hub import make_front_matter, markdown, write_folder
from iknow.models import PrecomputedModel
from iknow.storage.info import describe_bundle
from tests.markup import Page
from tests.storage.making import rewrite_manifest
from tests.storage.test_bundle import make_outputs
from tests.storage.test_info import add_up, widen
from tests.storage.test_saved_levels import make_classifier

RENDER = MarkdownIt("commonmark").enable("table").render
HOSTILE = (
    "<script>alert(1)</script>",
    "![x](http://tracker)",
    "[a](javascript:x)",
    "a | b | c",
    "`code` **bold** _it_ ~~no~~ $x$",
    "# heading",
    "1. list",
    "- list",
    "---",
    "===",
    "&lt;b&gt; &amp; \\* \\",
    "a: b # c {d} 'e' \"f\" %TAG ? - !",
    "    indented code",
    "> quote",
    "<!-- comment",
)


def read_card(folder):
    """The YAML of a card, and its Markdown as a page."""
    _, front, text = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(front), Page(RENDER(text).replace("<hr />", "").replace(" />", ">"))


def folder_of(made, folder, name=None, note=None, **options):
    """The folder of a classifier that is saved for it."""
    with TemporaryDirectory() as place:
        made.save(Path(place) / "it.iknow", name=name, note=note)
        return write_folder(Path(place) / "it.iknow", folder, **options)


@pytest.fixture(scope="module")
def tuned():
    return make_classifier(accuracy=0.98)


def test_a_folder_holds_a_bundle_its_card_and_its_configuration(tuned, tmp_path):
    folder = folder_of(
        tuned, tmp_path / "a" / "b", name="Blobs", note="Three.", license="mit", tags=["blobs"]
    )
    assert folder == tmp_path / "a" / "b"
    assert {file.name for file in folder.iterdir()} == {"README.md", "config.json", "bundle.iknow"}
    loaded = EpistemicClassifier.load(folder / "bundle.iknow")
    assert loaded.neighborhoods_ == tuned.neighborhoods_
    front, page = read_card(folder)
    assert front["library_name"] == "iknow"
    assert front["license"] == "mit"
    assert {"iknow", "blobs"} <= set(front["tags"])
    assert front["metrics"] == ["accuracy", "coverage"]
    words = re.sub(r"\s+", " ", page.words)
    for said in ("Blobs", "Three.", *tuned.selection_.sentences(), "IK (I know)"):
        assert said in words
    assert page.tags.count("h1") == 1
    assert page.tags.count("table") == 3


def test_its_configuration_is_the_description(tuned, tmp_path):
    folder = folder_of(tuned, tmp_path / "x")
    config = json.loads((folder / "config.json").read_text())
    info = describe_bundle(folder / "bundle.iknow")
    expected = json.loads(json.dumps(info.to_dict()))
    assert config["library_name"] == "iknow"
    assert {name: config[name] for name in expected if name != "path"} == {
        name: value for name, value in expected.items() if name != "path"
    }
    assert "path" not in config  # of the machine that wrote it


def test_a_bundle_on_disk_gets_a_folder(tmp_path):
    source = tmp_path / "own.iknow"
    make_classifier(accuracy=0.98).save(source)
    folder = write_folder(source, tmp_path / "x")
    assert (folder / "bundle.iknow").read_bytes() == source.read_bytes()
    assert "Guaranteed with confidence" in read_card(folder)[1].words


@pytest.mark.parametrize("portable", [False, True])
def test_its_code_loads_the_bundle(tmp_path, monkeypatch, portable):
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=500).fit(X[::2], y[::2])
    made = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X[::2], y[::2])
    made.tune(X[1::2], coverage=0.7).save(tmp_path / "own.iknow", onnx=portable)
    folder = write_folder(tmp_path / "own.iknow", tmp_path / "x")
    words = read_card(folder)[1].words
    assert ("The model itself is not part of the bundle" in words) == (not portable)
    assert ("whoever has the bundle has the model" in words) == portable
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    names = {"X": X} if portable else {"model": model, "X": X}
    exec(code, names)
    assert names["ec"].assess(X).reason.tolist() == made.assess(X).reason.tolist()


def test_what_it_needs_and_what_it_holds_is_said(tmp_path):
    X, y = np.random.default_rng(0).normal(2.5, size=(60, 2)), np.arange(60) % 2
    made = EpistemicClassifier(as_model(add_up, embed=widen), rule=Ball(2)).fit(X, y)
    words = read_card(folder_of(made, tmp_path / "x"))[1].words
    assert "embed=..." in words
    assert "up to 32 training inputs" in words
    assert "were given, not tuned" in words
    untuned = EpistemicClassifier(PrecomputedModel()).fit(*make_outputs())
    words = read_card(folder_of(untuned, tmp_path / "y"))[1].words
    assert "nothing by which it could recognize its model" in words
    assert "not tuned yet" in words


# Hostile texts


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_notes_labels_and_layers_are_shown_as_they_are(tmp_path, text):
    (scores, layers), y = make_outputs()
    labels = np.array([text, "b", "c"])[y]
    made = EpistemicClassifier(PrecomputedModel(), rule=Ball(1))
    made.fit((scores, {text: layers["a"]}), labels)
    folder = folder_of(made, tmp_path / "x", name=text, note=f"{text}\n{text}", tags=[text])
    front, page = read_card(folder)
    assert front["tags"][-1] == text
    words = re.sub(r"\s+", " ", page.words)
    assert words.count(re.sub(r"\s+", " ", text.strip())) >= 4  # name, note twice, layer, label
    plain = folder_of(made, tmp_path / "y", name="a", note="b\nc", tags=["d"])
    expected = [tag for tag in read_card(plain)[1].tags if tag]
    assert page.tags == expected  # the same markup, whatever the texts are


@given(st.text(max_size=40))
def test_any_text_survives_markdown(text):
    page = Page(RENDER(markdown(text)).replace(" />", ">"))
    assert set(page.tags) <= {"p"}
    expected = visible(text).strip() or "–"
    assert " ".join(page.words.split()) == " ".join(expected.split())


@given(st.text(min_size=1, max_size=40).filter(lambda text: visible(text) == text))
def test_any_tag_survives_yaml(tag):
    front = make_front_matter(tag, [tag])
    assert yaml.safe_load(front.strip("-\n"))["tags"][-1] == tag
    assert yaml.safe_load(front.strip("-\n"))["license"] == tag


@pytest.mark.parametrize("wrong", ["", "two\nlines", 3, "x" * 101, "\x1b[2J"])
def test_tags_and_licenses_that_are_no_lines_of_text_are_refused(tuned, tmp_path, wrong):
    for option in ({"tags": [wrong]}, {"license": wrong}):
        with pytest.raises(InputError, match="one line of text each"):
            folder_of(tuned, tmp_path / "x", **option)
    with pytest.raises(InputError, match="tags must be a list"):
        folder_of(tuned, tmp_path / "x", tags="one")
    assert not (tmp_path / "x").exists()


# Places


def test_what_exists_is_replaced_only_if_told_to(tuned, tmp_path):
    (tmp_path / "README.md").write_text("my thesis")
    with pytest.raises(InputError, match=r"README\.md exists"):
        folder_of(tuned, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]
    folder_of(tuned, tmp_path, overwrite=True)
    folder_of(tuned, tmp_path, name="second", overwrite=True)
    assert "second" in (tmp_path / "README.md").read_text()


def test_what_is_no_bundle_is_refused(tmp_path):
    (tmp_path / "x.iknow").write_text("hello")
    with pytest.raises(BundleError, match="is not a bundle"):
        write_folder(tmp_path / "x.iknow", tmp_path / "x")
    with pytest.raises(InputError, match="the path of a bundle is needed"):
        write_folder(LogisticRegression(), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_number_that_json_lacks_is_none(tmp_path):
    make_classifier(coverage=0.7).save(tmp_path / "x.iknow")
    rewrite_manifest(
        tmp_path / "x.iknow",
        lambda manifest: manifest["selection"].update(coverage={"float": "inf"}),
    )
    folder = write_folder(tmp_path / "x.iknow", tmp_path / "x")
    config = json.loads((folder / "config.json").read_text(), parse_constant=pytest.fail)
    assert config["selection"]["coverage"] is None
