"""Bundles that earlier versions wrote answer as they did then.

`earlier` holds bundles written by the versions with formats 2 to 6, about the outputs that
`make_queries` makes, and the answers that those versions gave.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from iknow import Assertion, Ball, BallElseNearest, EpistemicClassifier, RelativeBall
from iknow.errors import BundleError
from iknow.storage.manifest import read_manifest
from iknow.storage.reading_record import AS_USUAL
from tests.storage.test_bundle import make_outputs, rewrite_manifest, unpack

EARLIER = Path(__file__).parent / "earlier"
ANSWERS = json.loads((EARLIER / "answers.json").read_text())
FORMATS = (2, 3, 4, 5, 6)


def make_queries():
    (scores, layers), _ = make_outputs(60, seed=5)
    rng = np.random.default_rng(7)
    return scores, {name: values + rng.normal(size=values.shape) for name, values in layers.items()}


def path_of(written, name):
    return EARLIER / f"format-{written}-{name}.iknow"


@pytest.mark.parametrize("written", FORMATS)
@pytest.mark.parametrize("name", ["tuned", "certified"])
def test_an_earlier_bundle_answers_as_it_did(written, name):
    assessment = EpistemicClassifier.load(path_of(written, name)).assess(make_queries())
    for what in ("assertion", "reason"):
        said = " ".join(each.name for each in getattr(assessment, what))
        assert said == ANSWERS[name][what]


@pytest.mark.parametrize("written", [4, 5, 6])
def test_earlier_levels_are_the_same_to_the_last_bit(written):
    assessment = EpistemicClassifier.load(path_of(written, "levels")).assess(make_queries())
    assert " ".join(map(repr, assessment.level.tolist())) == ANSWERS["levels"]["level"]
    assert " ".join(each.name for each in assessment.reason) == ANSWERS["levels"]["reason"]


@pytest.mark.parametrize("written", FORMATS)
def test_an_earlier_relative_ball_knows_the_same(written):
    """Its reach is now measured from the believed class, so what is not IK may be another."""
    assessment = EpistemicClassifier.load(path_of(written, "relative")).assess(make_queries())
    known = [each == "IK" for each in ANSWERS["relative"]["assertion"].split()]
    assert 0 < sum(known) < len(known)
    assert (assessment.assertion == Assertion.IK).tolist() == known


@pytest.mark.parametrize("written", FORMATS)
def test_an_earlier_bundle_keeps_its_rule_and_a_quorum_of_one(written):
    tuned, certified, fixed = (
        EpistemicClassifier.load(path_of(written, name))
        for name in ("tuned", "certified", "relative")
    )
    assert (tuned.rule, tuned.k, certified.rule) == (BallElseNearest, 2, Ball)
    ball = RelativeBall(2.5, 1.2)
    assert fixed.neighborhoods == ({"a": ball, "b": ball} if written == 2 else ball)
    for each in (tuned, certified, fixed):
        assert each.quorum == 1
        assert all(rule.quorum == (1, 1) for rule in each.neighborhoods_.values())
    selection = certified.selection_
    assert selection.certificate.known == 250
    assert (selection.levels, selection.level, selection.false_alarm) == (None, None, None)
    assert (selection.least_confidence, selection.left_out, selection.note) == (-np.inf, {}, "")


@pytest.mark.parametrize("written", FORMATS)
@pytest.mark.parametrize("name", ["tuned", "certified", "relative"])
def test_an_earlier_bundle_saved_again_is_one_of_today(written, name, tmp_path):
    loaded = EpistemicClassifier.load(path_of(written, name))
    loaded.save(tmp_path / "x.iknow")
    assert read_manifest(unpack(tmp_path / "x.iknow")["manifest.json"])["format"] == 7
    again = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert again.quorum == 1
    before, after = loaded.assess(make_queries()), again.assess(make_queries())
    np.testing.assert_array_equal(before.reason, after.reason)


@pytest.mark.parametrize("written", FORMATS)
def test_an_earlier_bundle_with_entries_of_today_is_refused(written, tmp_path):
    def add_a_quorum(manifest):
        manifest["settings"]["quorum"] = [1, 3] if written < 4 else [0, 3]

    def add_a_level(manifest):
        manifest["settings"]["selection"]["level"] = 0.5

    def say_something(manifest):
        manifest["settings"]["about"] = None

    def say_its_version(manifest):
        manifest["settings"].setdefault("about", {})["version"] = "1"

    def read_otherwise(manifest):
        manifest["settings"]["reading"] = AS_USUAL if written < 5 else None

    def drop_an_entry(manifest):
        del manifest["settings"]["fixed" if written == 2 else "progress"]

    def log_a_change(manifest):
        manifest["changes"] = []

    words = (say_something, say_its_version, read_otherwise) if written < 6 else ()
    for edit in (add_a_quorum, add_a_level, drop_an_entry, *words):
        shutil.copy(path_of(written, "tuned"), tmp_path / "x.iknow")
        rewrite_manifest(tmp_path / "x.iknow", edit)
        with pytest.raises(BundleError, match=r"cannot be loaded: manifest\.json"):
            EpistemicClassifier.load(tmp_path / "x.iknow")
    shutil.copy(path_of(written, "tuned"), tmp_path / "x.iknow")
    rewrite_manifest(tmp_path / "x.iknow", log_a_change)
    with pytest.raises(BundleError, match="'changes' does not belong"):
        EpistemicClassifier.load(tmp_path / "x.iknow")
