"""Levels in bundles: the path comes back bit for bit, or the bundle is refused."""

import base64
import copy
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from iknow import Ball, EpistemicClassifier, Reason
from iknow.core.level import Levels, Voice
from iknow.errors import BundleError, InputError
from iknow.models import PrecomputedModel
from iknow.selection import Selection
from iknow.selection.record import from_plain, to_plain
from tests.storage.making import pack, unpack, write_manifest
from tests.storage.test_bundle import assert_same_assessment

GOALS = {
    "coverage": {"coverage": 0.7},
    "accuracy": {"accuracy": 0.98},
    "false alarm": {"false_alarm": 0.1},
    "each class": {"accuracy": 0.9, "each_class": True},
    "no goal": {},
}


def make_outputs(n, seed):
    """Scores that know when they are wrong, a layer that blurs them, and one of mere noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    place = 3.0 * np.eye(3)[y] + rng.normal(size=(n, 3))
    layers = {"noise": rng.normal(size=(n, 2)), "a": place + 0.8 * rng.normal(size=(n, 3))}
    return (3.0 * place, layers), y


def make_classifier(**goal):
    classifier = EpistemicClassifier(PrecomputedModel(), progress=False)
    return classifier.fit(*make_outputs(300, 0)).tune(*make_outputs(900, 1), **goal)


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The contents of a bundle whose levels have every voice and leave a layer out."""
    path = tmp_path_factory.mktemp("bundle") / "x.iknow"
    make_classifier(accuracy=0.98).save(path)
    return unpack(path)


def same_bits(one, other):
    return one.dtype == other.dtype == np.float64 and one.tobytes() == other.tobytes()


def assert_same_levels(one, other):
    assert (one.quorum, one.from_probabilities) == (other.quorum, other.from_probabilities)
    for mine, theirs in zip(one.voices, other.voices, strict=True):
        assert same_bits(mine.reference, theirs.reference)
        assert vars(mine) | {"reference": 0} == vars(theirs) | {"reference": 0}


@pytest.mark.parametrize("goal", GOALS.values(), ids=GOALS)
def test_a_tuned_level_survives_the_round_trip(tmp_path, goal, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    made = make_classifier(**goal)
    made.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert loaded.selection_ == made.selection_
    assert_same_levels(loaded.selection_.levels, made.selection_.levels)
    queries, _ = make_outputs(200, 2)
    one, other = made.assess(queries), loaded.assess(queries)
    assert_same_assessment(one, other)
    assert same_bits(one.level, other.level)
    assert one.weakest.tolist() == other.weakest.tolist()
    loaded.save(tmp_path / "again.iknow")
    assert (tmp_path / "again.iknow").read_bytes() == (tmp_path / "x.iknow").read_bytes()


def test_the_models_own_doubt_survives_the_round_trip(tmp_path):
    """The goals above are worth testing: one hears the model, and each leaves the noise out."""
    made = make_classifier(accuracy=0.98)
    assert made.selection_.levels.hears_model
    assert np.isfinite(made.selection_.least_confidence)
    made.save(tmp_path / "x.iknow")
    said = EpistemicClassifier.load(tmp_path / "x.iknow").assess(make_outputs(200, 2)[0])
    assert (said.reason == Reason.DOUBT).any()


def test_a_layer_of_noise_keeps_familiarity_alone_and_is_kept(tmp_path):
    made = make_classifier(coverage=0.7, premium=0.0)
    of_noise = made.neighborhoods_["noise"]
    assert (of_noise.radius, of_noise.ratio) == (np.inf, 0.0)
    assert of_noise.seen < np.inf
    made.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert loaded.neighborhoods_ == made.neighborhoods_
    X, y = make_outputs(900, 1)
    X[1]["noise"] = X[1]["a"][:, :2]
    for each in (made, loaded):
        each.tune(X, y, coverage=0.5)
    assert loaded.selection_ == made.selection_


def test_rules_that_somebody_changed_are_refused_before_they_are_saved(tmp_path):
    made = make_classifier(coverage=0.7)
    made.plan_ = replace(made.plan_, rules={"noise": Ball(1.0)})
    with pytest.raises(InputError, match="either all layers or none must have a rule"):
        made.save(tmp_path / "x.iknow")
    made.plan_ = replace(made.plan_, rules=dict.fromkeys(made.layers_, Ball(1.0)))
    with pytest.raises(InputError, match="the levels have the quorum"):
        made.save(tmp_path / "x.iknow")
    assert list(tmp_path.iterdir()) == []


def test_any_values_come_back_bit_for_bit():
    own = np.array([0.0, 5e-324, 0.1 + 0.2, 1.7e308, np.inf])
    confidence = np.array([-np.inf, -1e-310, -0.0, 0.1, np.inf])
    voices = (
        Voice("nearness", "ü", -own[::-1], 0.05),
        Voice("clarity", "ü", own),
        Voice("confidence", None, confidence),
    )
    levels = Levels(voices, (2, 5), True)
    text = json.dumps(to_plain(levels), allow_nan=False)
    assert_same_levels(from_plain(Levels, json.loads(text), "levels"), levels)


def test_clarity_is_never_negative():
    with pytest.raises(InputError, match=r"clarity.*ascending numbers from 0 to inf"):
        Voice("clarity", "a", np.array([-1.0]))


def test_a_selection_without_levels_is_plain_json_as_before():
    chosen = make_classifier(coverage=0.7, premium=0.0).selection_
    selection = replace(chosen, levels=None, level=None, least_confidence=-np.inf)
    assert np.isinf(selection.neighborhoods["noise"].radius)
    record = json.loads(json.dumps(selection.to_dict(), allow_nan=False))
    assert (record["levels"], record["least_confidence"]) == (None, None)
    assert Selection.from_dict(record) == selection


# Bundles that somebody made


def as_text(values):
    text = base64.b64encode(np.asarray(values, dtype="<f8").tobytes()).decode()
    return {"shape": list(np.shape(values)), "base64": text}


def as_written(text, shape=(180,)):
    return {"shape": list(shape), "base64": text}


ORDINARY = as_text(np.linspace(0.1, 2, 180))
TEXT = ORDINARY["base64"]
NO_ARRAYS = [None, 1, [], "x", TEXT, {}, {"base64": TEXT}, {**ORDINARY, "more": 1}, as_text([])]
NO_ARRAYS += [as_written(x) for x in (None, 1, [], "x", "é", TEXT[:-4], TEXT + "====", TEXT + "\n")]
NO_ARRAYS += [
    as_written(TEXT, s) for s in ((), (180, 1), (1, 180), (-1,), (179,), (180.0,), ("180",))
]
NO_ARRAYS += [as_text(values) for values in (
    np.full(180, np.nan), np.linspace(2, 0.1, 180), np.arange(179), np.append(np.ones(179), np.nan),
    np.insert(np.ones(179), 90, np.nan),
)]  # fmt: skip
NEGATIVE = as_text(np.arange(180) - 1.0)
NOT_A_NUMBER = {"float": "nan"}
WRONG = {
    ("levels",): [None, 1, [], {}, "x"],
    ("levels", "voices"): [None, [], {}, "x", [{"own": ORDINARY}]],
    ("levels", "voices", 0): [None, [], {}, {"reference": ORDINARY}],
    ("levels", "voices", 0, "name"): [None, 1, [], "x", "clarity", "confidence"],
    ("levels", "voices", 0, "layer"): [None, 1, [], "x", "a"],
    ("levels", "voices", 0, "kind"): [None, 1, "x"],
    ("levels", "voices", 0, "budget"): [None, 0, -1, 1.5, "1", True, NOT_A_NUMBER],
    ("levels", "voices", 0, "reference"): [*NO_ARRAYS, ORDINARY],
    ("levels", "voices", 0, "more"): [ORDINARY],
    ("levels", "voices", 1, "reference"): NO_ARRAYS,
    ("levels", "voices", 1, "layer"): ["a", "", 1],
    ("levels", "quorum"): [
        None,
        0,
        1,
        [1],
        [1, 2],
        [1, 3, 1],
        [0, 3],
        [1, 1 << 62],
        "13",
        [1, 3.5],
    ],
    ("levels", "from_probabilities"): [None, 0, "no"],
    ("levels", "more"): [1],
    ("level",): [None, 0, -0.1, 1.1, True, "0.5", NOT_A_NUMBER, {"float": "inf"}],
    ("least_confidence",): ["1", True, [], NOT_A_NUMBER],
    ("false_alarm",): [0, 1, -1, "x", True, NOT_A_NUMBER],
    ("note",): [None, 1],
    ("neighborhoods", "a", "quorum"): [None, 1, [1, 1], [1, 1 << 62]],
}


def edit_manifest(contents, path, value):
    """The same bundle with another value in its manifest, sealed again."""
    manifest = json.loads(contents["manifest.json"])
    place = manifest
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return contents | {"manifest.json": write_manifest(manifest)}


@pytest.mark.parametrize("path", WRONG, ids=lambda path: ".".join(map(str, path)))
def test_a_wrong_value_about_levels_is_refused(tmp_path, contents, path):
    for value in WRONG[path]:
        pack(tmp_path / "x.iknow", edit_manifest(contents, ("selection", *path), value))
        with pytest.raises(BundleError, match=r"cannot be loaded: manifest\.json"):
            EpistemicClassifier.load(tmp_path / "x.iknow")


def test_the_ways_of_editing_are_right(tmp_path, contents):
    """So that what is refused above is refused for its own sake."""
    for place, value in ((0, as_text(np.linspace(-2, -0.1, 180))), (1, ORDINARY)):
        path = "selection", "levels", "voices", place, "reference"
        pack(tmp_path / "x.iknow", edit_manifest(contents, path, value))
        loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
        assert loaded.assess(make_outputs(50, 2)[0]).level.max() > 0


@pytest.mark.parametrize("quorum", [0, [1], [1, 2, 3], "3", 1.5, True, [1, 1 << 62], 1 << 62])
def test_a_wrong_quorum_of_the_classifier_or_a_layer_is_refused(tmp_path, contents, quorum):
    for place in (("settings",), ("layers", "a", "neighborhood")):
        manifest = json.loads(contents["manifest.json"])
        record = manifest
        for key in place:
            record = record[key]
        record["quorum"] = quorum
        pack(tmp_path / "x.iknow", contents | {"manifest.json": write_manifest(manifest)})
        with pytest.raises(BundleError, match="quorum"):
            EpistemicClassifier.load(tmp_path / "x.iknow")


NASTY = [None, True, 0, 1, -1, 0.5, 2, "", "x", "a", "noise", [], {}, [1, 3], [3, 1], 1 << 62,
         NOT_A_NUMBER, {"float": "inf"}, {"a": "x"}, ORDINARY, NEGATIVE, *NO_ARRAYS]  # fmt: skip


def mutate(value, chance):
    """The same JSON with something in it replaced, removed or added."""
    if chance.random() < 0.01:
        return copy.deepcopy(chance.choice(NASTY))
    if isinstance(value, dict):
        found = {key: mutate(each, chance) for key, each in value.items()}
        if found and chance.random() < 0.01:
            del found[chance.choice(list(found))]
        if chance.random() < 0.01:
            found[chance.choice(["more", "a", "noise"])] = copy.deepcopy(chance.choice(NASTY))
        return found
    return [mutate(each, chance) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("n", [100, pytest.param(5_000, marks=pytest.mark.slow)])
def test_any_mutation_of_a_selection_is_refused_or_harmless(tmp_path, contents, n):
    original = json.loads(contents["manifest.json"])["selection"]
    queries, _ = make_outputs(20, 2)
    chance = random.Random(n)
    n_refused = 0
    for _ in range(n):
        changed = {key: mutate(value, chance) for key, value in original.items()}
        pack(tmp_path / "x.iknow", edit_manifest(contents, ("selection",), changed))
        try:
            loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
        except BundleError:
            n_refused += 1
            continue
        said = loaded.assess(queries)
        if said.levels is not None:
            assert ((said.level >= 0) & (said.level <= 1)).all()
            assert len(said.weakest) == 20
        assert f"{said.reason} {loaded.selection_.sentences()} {loaded.selection_!r}"
    assert 0.2 * n < n_refused < 0.95 * n
