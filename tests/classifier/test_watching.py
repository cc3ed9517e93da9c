"""What an alarm compares with: samples that nothing was fitted to, kept with the selection."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from iknow import Ball, EpistemicClassifier, Nearest
from iknow.errors import InputError, SelectionError
from iknow.models import PrecomputedModel
from iknow.selection import Watch, make_watch
from iknow.selection.record import from_plain, to_plain
from iknow.selection.validation import split
from iknow.selection.watch import MOST_WATCHED
from iknow.serve.monitor import DriftAlarm, watch_scores


def outputs(n, seed, moved=0.0):
    """Scores, and two layers that blur them; moved: how far the layers lie from where they did."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    place = 3.0 * np.eye(3)[y] + rng.normal(size=(n, 3))
    a, b = (place + scale * rng.normal(size=(n, 3)) + moved for scale in (0.4, 0.8))
    return (3.0 * place, {"b": b, "a": a}), y


def take(samples, rows):
    scores, layers = samples
    return scores[rows], {layer: values[rows] for layer, values in layers.items()}


def tuned(*, n=900, seed=1, **goal):
    ec = EpistemicClassifier(PrecomputedModel(), progress=False)
    X, y = outputs(n, seed)
    return ec.fit(*outputs(300, 0)).tune(X, y, **goal)


GOALS = {
    "accuracy": ({"accuracy": 0.98}, 720),
    "each class": ({"accuracy": 0.9, "each_class": True}, 720),
    "false alarm": ({"false_alarm": 0.1}, 450),
    "accuracy, apart": ({"accuracy": 0.98, "reference": outputs(200, 7)[0]}, 720),
    "false alarm, apart": ({"false_alarm": 0.1, "reference": outputs(200, 7)[0]}, 900),
    "coverage, apart": ({"coverage": 0.7, "reference": outputs(200, 7)[0]}, 900),
}


@pytest.mark.parametrize(("goal", "n"), GOALS.values(), ids=GOALS)
def test_tuning_sets_samples_apart(goal, n):
    ec = tuned(**goal)
    watch = ec.selection_.watch
    assert len(watch) == n
    everyone, belief, by_layer = watch_scores(ec.assess(outputs(900, 1)[0]))
    known = {
        (level, code, *row)
        for level, code, row in zip(everyone, belief, by_layer.tolist(), strict=True)
    }
    rows = zip(watch.levels, watch.belief, watch.layer_levels.tolist(), strict=True)
    assert all((level, code, *row) in known for level, code, row in rows)


@pytest.mark.parametrize(
    "goal", [{"coverage": 0.7}, {"coverage": 0.7, "reference": outputs(900, 1)[0]}]
)
def test_samples_that_laid_the_path_are_not_watched(goal):
    assert tuned(**goal).selection_.watch is None


def test_without_a_certificate_there_is_no_watch():
    ec = tuned(n=30)
    assert ec.selection_.note
    assert ec.selection_.watch is None


def test_the_samples_that_certify_are_watched_and_no_others():
    ec, (X, _) = tuned(accuracy=0.98), outputs(900, 1)
    levels = ec.assess(X).level
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    rows = np.random.default_rng(seed).permutation(900)
    expected = levels[np.sort(rows[900 // 5 :])]
    assert split.__defaults__ == (5,)
    assert np.array_equal(ec.selection_.watch.levels, expected)


@pytest.mark.slow
@pytest.mark.parametrize("goal", [{"accuracy": 0.9}, {"false_alarm": 0.2}])
def test_a_new_sample_ranks_anywhere_among_those_watched(goal):
    """Exchangeable: over draws of the validation data its rank is uniform."""
    rng, ranks = np.random.default_rng(0), []
    for seed in range(300):
        try:
            ec = tuned(n=200, seed=10 + seed, **goal)
        except SelectionError:  # nothing could be certified, so nothing is watched
            continue
        new = ec.assess(outputs(3, 10_000 + seed)[0]).level[rng.integers(3)]
        watched = ec.selection_.watch.levels
        ties = (watched == new).sum() + 1
        ranks.append(((watched < new).sum() + rng.random() * ties) / (len(watched) + 1))
    assert len(ranks) > 280
    assert kstest(ranks, "uniform").pvalue > 1e-3


def test_an_alarm_from_end_to_end():
    ec = tuned(accuracy=0.98)
    a = ec.assess(outputs(600, 5)[0])
    alarm = DriftAlarm(ec.selection_.watch, ec.classes_, a.answers.watched_layers)
    assert alarm.update(*watch_scores(a)) == ()
    assert alarm.report().reference == 720
    moved = ec.assess(outputs(200, 6, moved=1.0)[0])
    assert alarm.update(*watch_scores(moved))
    assert {each.name for each in alarm.report().suspects("layer")} == {"a", "b"}


def test_layer_levels_are_the_smallest_voices_of_a_layer():
    ec = tuned(accuracy=0.98)
    X, _ = outputs(40, 3)
    X[1]["a"][4] = np.nan
    a = ec.assess(X)
    assert a.layer_levels.shape == (40, 2)
    assert (a.layer_levels[4] == 0).all()
    assert a.level[4] == 0
    heard = a.layer_levels.min(axis=1)
    assert (a.level <= heard).all()  # the model's confidence may be one more voice
    if not a.levels.hears_model:
        assert np.array_equal(a.level, heard)
    for column, layer in enumerate(a.levels.layers):
        one = a.only([layer])
        heard = tuple(voice for voice in one.levels.voices if voice.layer is not None)
        path = replace(one.levels, voices=heard)
        alone = replace(one, levels=path).level
        assert np.array_equal(alone, a.layer_levels[:, column])


# Fresh samples


def test_fresh_samples_may_be_watched():
    ec = tuned(coverage=0.7)
    X, _ = outputs(150, 4)
    assert ec.watch(X) is ec
    level, belief, by_layer = watch_scores(ec.assess(X))
    watch = ec.selection_.watch
    assert np.array_equal(watch.levels, level)
    assert np.array_equal(watch.belief, belief)
    assert np.array_equal(watch.layer_levels, by_layer)
    assert ec.selection_.coverage == tuned(coverage=0.7).selection_.coverage


@pytest.mark.parametrize("rule", [Ball, Nearest])
def test_rules_without_levels_are_watched_by_their_assertions(rule):
    goal = {"coverage": 0.8} if rule is Nearest else {}
    ec = EpistemicClassifier(PrecomputedModel(), rule=rule, progress=False)
    ec.fit(*outputs(300, 0)).tune(*outputs(300, 1), **goal)
    assert ec.selection_.watch is None
    X, _ = outputs(200, 4)
    X[1]["a"][3] = np.inf
    watch = ec.watch(X).selection_.watch
    a = ec.assess(X)
    assert np.array_equal(watch.levels, np.asarray(a.assertion) / 2)
    assert set(np.unique(watch.layer_levels)) <= {0, 0.5, 1}
    assert watch.layers == a.answers.watched_layers
    assert (watch.levels[3], *watch.layer_levels[3]) == (0, 0, 0)
    alarm = DriftAlarm(watch, ec.classes_, a.answers.watched_layers)
    assert alarm.update(*watch_scores(ec.assess(outputs(400, 6, moved=4.0)[0])))


def test_samples_that_were_seen_before_are_refused():
    ec = tuned(coverage=0.7)
    with pytest.raises(InputError, match="copies of training samples"):
        ec.watch(outputs(300, 0)[0])
    with pytest.raises(InputError, match="among those that tuned"):
        ec.watch(outputs(900, 1)[0])
    with pytest.raises(InputError, match="among those that tuned"):
        ec.watch(take(outputs(900, 1)[0], np.arange(0, 900, 4)))
    assert ec.selection_.watch is None


def test_watching_takes_a_tuned_classifier_and_samples():
    ec = EpistemicClassifier(PrecomputedModel(), rule=Ball(1.0), progress=False)
    ec.fit(*outputs(300, 0))
    with pytest.raises(InputError, match="call tune first"):
        ec.watch(outputs(50, 4)[0])
    with pytest.raises(InputError):
        tuned(coverage=0.7).watch(take(outputs(50, 4)[0], slice(0, 0)))


def test_new_evidence_drops_the_watch():
    ec = tuned(accuracy=0.98).partial_fit(*outputs(30, 8))
    assert not hasattr(ec, "selection_")


# Stored


def test_a_watch_is_saved_bit_for_bit(tmp_path):
    ec = tuned(accuracy=0.98)
    ec.save(tmp_path / "x.iknow")
    watch, loaded = ec.selection_.watch, EpistemicClassifier.load(tmp_path / "x.iknow")
    again = loaded.selection_.watch
    assert again.levels.tobytes() == watch.levels.tobytes()
    assert again.belief.tobytes() == watch.belief.tobytes()
    assert again.layer_levels.tobytes() == watch.layer_levels.tobytes()
    assert again.layers == watch.layers
    scores = watch_scores(loaded.assess(outputs(50, 5)[0]))
    alarms = [
        DriftAlarm(each, loaded.classes_, loaded.assess(outputs(2, 5)[0]).answers.watched_layers)
        for each in (watch, again)
    ]
    for alarm in alarms:
        alarm.update(*scores)
    assert alarms[0].to_dict() == alarms[1].to_dict()


def test_at_most_so_many_are_kept():
    rng = np.random.default_rng(0)
    n = MOST_WATCHED + 50
    watch = make_watch(rng.random(n), np.zeros(n, np.int64), rng.random((n, 1)), ["a"])
    assert len(watch) == MOST_WATCHED
    assert make_watch(np.empty(0), np.empty(0, np.int64), np.empty((0, 1)), ["a"]) is None


def test_a_damaged_watch_is_refused():
    good = tuned(accuracy=0.98).selection_.to_dict()["watch"]
    assert len(from_plain(Watch, good, "the watch")) == 720
    one = to_plain(Watch(np.array([0.5]), np.array([[0.5]]), np.array([0]), ("a",)))
    for wrong in (
        {**good, "levels": one["levels"]},
        {**good, "levels": "x"},
        {**good, "levels": {**good["levels"], "base64": good["levels"]["base64"][:-4]}},
        {**good, "layers": ["a"]},
        {**good, "layers": "ab"},
        {**good, "more": 1},
        {**one, "levels": {"shape": [1], "base64": one["belief"]["base64"].replace("A", "/")}},
        None,
        [],
    ):
        with pytest.raises(InputError):
            from_plain(Watch, wrong, "the watch")


def test_a_watch_must_fit_its_bundle(tmp_path):
    ec = tuned(accuracy=0.98)
    watch = ec.selection_.watch
    with pytest.raises(InputError, match="a watch must be about the layers"):
        replace(ec.selection_, watch=replace(watch, layers=("a", "c")))
    wrong = replace(watch, belief=np.full(len(watch), 3))
    ec.plan_ = replace(ec.plan_, selection=replace(ec.selection_, watch=wrong))
    with pytest.raises(
        InputError, match="cannot be saved: the watch believes in more than the 3 cl"
    ):
        ec.save(tmp_path / "x.iknow")
    assert not (tmp_path / "x.iknow").exists()
