import json
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from iknow.errors import InputError
from iknow.selection.watch import Watch
from iknow.serve.monitor import AccuracyMonitor, DriftAlarm, Monitors
from iknow.serve.monitor.gamblers import tell_evidence
from iknow.serve.monitor.martingale import (
    N_BINS,
    bet,
    draw_ties,
    find_bins,
    play,
    rank_in_turn,
    start,
)
from tests.serve.monitor.streams import LAYERS, SHAPES, draw, is_at_most, make_alarm

CLASSES = ("cat", "dog", "eel")


def a_watch(rng, n=500):
    level, belief, layers = draw(rng, n, [0.5, 0.3, 0.2])
    return Watch(level, layers, belief, LAYERS)


def drifted(rng, n, shares=(0.5, 0.3, 0.2), power=4):
    level, belief, layers = draw(rng, n, shares)
    return level**power, belief, layers**power


@pytest.mark.parametrize("shape", SHAPES)
def test_few_false_alarms(shape):
    rng, rang = np.random.default_rng(7), 0
    for _ in range(30):
        alarm, stream = make_alarm(rng, shape, rate=0.1, n_stream=150)
        rang += bool(alarm.update(*stream))
    assert is_at_most(rang, 30, 0.1)


@pytest.mark.slow
def test_without_drift_the_rate_is_kept_on_10_000_streams():
    """Of 10,000 streams, 2,000 of each shape, no more alarm at any time than promised."""
    rng, rate, rang = np.random.default_rng(17), 0.1, dict.fromkeys(SHAPES, 0)
    for shape in SHAPES:
        for _ in range(2_000):
            alarm, stream = make_alarm(rng, shape, rate, n_stream=128)
            rang[shape] += bool(alarm.update(*stream))
    assert all(is_at_most(count, 2_000, rate) for count in rang.values()), rang
    assert is_at_most(sum(rang.values()), 10_000, rate), rang
    assert sum(rang.values()) > 10, "an alarm that never rings keeps any promise"


@pytest.mark.slow
@pytest.mark.parametrize(("n_reference", "values"), [(0, 3), (20, None), (300, None)])
def test_long_streams_keep_the_rate(n_reference, values):
    """10,000 streams of 480 samples at once: the detector of all samples alone, at rate 0.05.

    Ranks against the reference alone would fail here: see `test_a_fixed_reference_would_not_do`.
    """
    rng, n, rate = np.random.default_rng(3), 10_000, 0.05
    highest, (stakes, exponents) = np.zeros(n), start((n,))
    counts = np.zeros((n, N_BINS), dtype=np.int64)

    def scores(m):
        found = rng.random((m, n)) ** 2
        return find_bins(found if values is None else np.floor(found * values) / values, "levels")

    for row in scores(n_reference):
        counts[np.arange(n), row] += 1
    running = counts.cumsum(axis=1)
    for first in range(0, 480, 16):
        ranks = []
        for row in scores(16):
            below = running[np.arange(n), row] - counts[np.arange(n), row]
            equal = counts[np.arange(n), row]
            ranks.append((below + draw_ties(rng, (n,)) * (equal + 1)) / (running[:, -1] + 1))
            counts[np.arange(n), row] += 1
            running += np.arange(N_BINS) >= row[:, None]
        stakes, exponents, found = play(stakes, exponents, bet(np.array(ranks)), first)
        highest = np.maximum(highest, found.max(axis=0))
    rang = int((highest >= -np.log2(rate)).sum())
    assert is_at_most(rang, n, rate), rang
    assert rang > 10


@pytest.mark.parametrize("with_reference", [True, False])
def test_it_rings_soon_after_a_change(with_reference):
    rng, delays = np.random.default_rng(0), []
    for seed in range(10):
        watch = a_watch(rng, 2000) if with_reference else None
        alarm = DriftAlarm(watch, CLASSES, LAYERS, 0.01, seed)
        assert not alarm.update(*draw(rng, 500, [0.5, 0.3, 0.2]))
        alarms = alarm.update(*drifted(rng, 300))
        delays.append(min(each.sample for each in alarms) - 500)
    assert max(delays) < 150
    assert alarm.alarmed
    assert alarm.report().alarms[0].sample == 500 + delays[-1]


def test_higher_levels_are_a_change_too():
    rng = np.random.default_rng(0)
    alarm = DriftAlarm(a_watch(rng, 2000), CLASSES, LAYERS)
    assert alarm.update(*drifted(rng, 500, power=0.4))


def test_it_names_the_class_and_the_layer_that_moved():
    rng = np.random.default_rng(5)
    alarm = DriftAlarm(a_watch(rng, 3000), CLASSES, LAYERS)
    level, belief, layers = draw(rng, 1500, [0.5, 0.3, 0.2])
    moved = belief == 1
    level[moved] **= 5
    layers[moved, 1] **= 5
    alarm.update(level, belief, layers)
    report = alarm.report()
    assert [each.name for each in report.suspects("class")] == ["dog"]
    assert [each.name for each in report.suspects("layer")] == ["hidden"]
    assert report.suspects("class")[0].samples == moved.sum()
    assert any("dog" in sentence for sentence in report.sentences())


def test_a_single_gambler_gives_the_same_evidence():
    """The detector of all samples, rebuilt from ranks and bets."""
    rng = np.random.default_rng(2)
    watch, stream = a_watch(rng), drifted(rng, 40)
    alarm = DriftAlarm(watch, CLASSES, LAYERS, seed=9)
    alarm.update(*stream)
    counts = np.bincount(find_bins(watch.levels, "levels"), minlength=N_BINS)[None]
    bins = find_bins(stream[0], "levels")[:, None]
    ties = draw_ties(np.random.default_rng(9), (40, 4))[:, :1]
    ranks = rank_in_turn(counts, np.zeros_like(bins), bins, ties)
    _, _, found = play(*start(()), bet(ranks[:, 0]), 0)
    assert alarm.report().detectors[0].log2_evidence == found[-1]


@settings(max_examples=15)
@given(st.lists(st.integers(0, 60), max_size=4), st.booleans())
def test_restarts_change_no_bit(cuts, with_reference):
    rng = np.random.default_rng(0)
    watch, stream = a_watch(rng, 50) if with_reference else None, drifted(rng, 60)
    stream[1][::7] = -1
    whole = DriftAlarm(watch, CLASSES, LAYERS, rate=0.3)
    alarms = list(whole.update(*stream))
    alarm, found = DriftAlarm(watch, CLASSES, LAYERS, rate=0.3), []
    edges = [0, *sorted(cuts), 60]
    for first, last in pairwise(edges):
        alarm = DriftAlarm.from_dict(json.loads(json.dumps(alarm.to_dict())))
        found += alarm.update(*(column[first:last] for column in stream))
    assert alarm.to_dict() == whole.to_dict()
    assert alarm.report() == whole.report()
    # Detectors ring at the same samples; within one batch they are listed sample by sample.
    assert found == alarms


def test_an_alarm_stays_on_until_reset():
    rng = np.random.default_rng(0)
    alarm = DriftAlarm(a_watch(rng), CLASSES, LAYERS)
    first = alarm.update(*drifted(rng, 300))
    alarm.update(*draw(rng, 300, [0.5, 0.3, 0.2]))
    assert alarm.alarmed
    assert len(alarm.report().alarms) >= len(first) > 0
    names = [(each.kind, each.name) for each in alarm.report().alarms]
    assert len(set(names)) == len(names)  # each rings once
    alarm.reset()
    report = alarm.report()
    assert (report.alarmed, report.samples, report.resets, report.reference) == (False, 0, 1, 500)
    assert not report.note
    assert alarm.update(*drifted(rng, 300)), "the change is still there"


def test_without_a_reference_it_says_what_it_cannot_see():
    alarm = DriftAlarm(None, CLASSES, LAYERS)
    assert alarm.report().reference == 0
    assert "its own beginning" in alarm.report().note
    assert not alarm.update(*drifted(np.random.default_rng(0), 300)), "it is the new normal"


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_equal_levels_are_no_drift(level):
    rang = 0
    for seed in range(30):
        watch = Watch(np.full(9, level), np.full((9, 2), level), np.zeros(9, np.int64), LAYERS)
        alarm = DriftAlarm(watch, CLASSES, LAYERS, seed=seed)
        stream = np.full(200, level), np.zeros(200, np.int64), np.full((200, 2), level)
        rang += bool(alarm.update(*stream))
    assert is_at_most(rang, 30, 0.01)


def test_a_class_that_the_reference_lacks_is_compared_with_itself():
    rng = np.random.default_rng(0)
    level, belief, layers = draw(rng, 500, [0.6, 0.4, 0.0])
    alarm = DriftAlarm(Watch(level, layers, belief, LAYERS), CLASSES, LAYERS)
    level, _, layers = draw(rng, 400, [1.0])
    alarms = alarm.update(level, np.full(400, 2), layers)
    assert "class" not in {each.kind for each in alarms}
    eel = alarm.report().detectors[-1]
    assert (eel.name, eel.reference, eel.samples) == ("eel", 0, 400)


def test_samples_without_a_belief_count_overall_only():
    rng = np.random.default_rng(0)
    alarm = DriftAlarm(a_watch(rng, 1000), CLASSES, LAYERS)
    found = alarm.update(np.zeros(20), np.full(20, -1), np.zeros((20, 2)))
    assert {each.kind for each in found} == {"overall", "layer"}
    assert sum(each.samples for each in alarm.report().detectors if each.kind == "class") == 0


def test_the_weights_of_all_detectors_add_up():
    alarm = DriftAlarm(None, range(37), ["a", "b", "c"], rate=0.02)
    thresholds = np.array([each.threshold for each in alarm.report().detectors])
    assert (1 / thresholds).sum() == pytest.approx(0.02)


def test_layers_may_come_in_another_order():
    rng = np.random.default_rng(0)
    watch = a_watch(rng)
    turned = Watch(watch.levels, watch.layer_levels[:, ::-1], watch.belief, LAYERS[::-1])
    states = [DriftAlarm(each, CLASSES, LAYERS).to_dict() for each in (watch, turned)]
    assert states[0] == states[1]


def test_nothing_is_no_evidence():
    alarm = DriftAlarm(None, CLASSES, LAYERS)
    before = alarm.to_dict()
    assert alarm.update(np.empty(0), np.empty(0, np.int64), np.empty((0, 2))) == ()
    assert alarm.to_dict() == before
    assert "no drift in 0 samples" in alarm.report().sentences()[0]


def test_threads_lose_no_sample():
    rng = np.random.default_rng(0)
    alarm, stream = DriftAlarm(None, CLASSES, LAYERS), draw(rng, 50, [0.5, 0.3, 0.2])
    threads = [threading.Thread(target=alarm.update, args=stream) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    detectors = alarm.report().detectors
    assert [each.samples for each in detectors[:3]] == [400] * 3
    assert sum(each.samples for each in detectors[3:]) == 400


GOOD = (np.array([0.5]), np.array([0]), np.array([[0.5, 0.5]]))


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        (0, [np.nan]),
        (0, [2.0]),
        (0, 0.5),
        (0, [0.5, 0.5]),
        (1, [3]),
        (1, [-2]),
        (1, [0.0]),
        (1, ["cat"]),
        (1, [[0]]),
        (2, [[0.5]]),
        (2, [[0.5, np.inf]]),
        (2, [0.5, 0.5]),
    ],
)
def test_wrong_scores_are_refused_and_change_nothing(column, wrong):
    alarm = DriftAlarm(None, CLASSES, LAYERS)
    before, given_ = alarm.to_dict(), list(GOOD)
    given_[column] = wrong
    with pytest.raises(InputError):
        alarm.update(*given_)
    assert alarm.to_dict() == before


@pytest.mark.parametrize(
    "wrong",
    [{"rate": 0}, {"rate": 1}, {"rate": np.nan}, {"rate": "x"}, {"seed": -1}, {"seed": 0.5},
     {"classes": []}, {"layers": []}],
)  # fmt: skip
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(InputError):
        DriftAlarm(None, **{"classes": CLASSES, "layers": LAYERS, **wrong})


def test_a_watch_of_other_layers_is_refused():
    watch = a_watch(np.random.default_rng(0))
    with pytest.raises(InputError, match="the watch of the same selection"):
        DriftAlarm(watch, CLASSES, ["input", "logits"])


DAMAGE = {
    "format": 2,
    "counts": "AAAA",
    "gamblers": None,
    "generator": {"bit_generator": "MT19937"},
    "rate": 7,
    "classes": "cat",
    "resets": "x",
}


@pytest.mark.parametrize("key", DAMAGE)
def test_a_damaged_state_is_refused(key):
    record = DriftAlarm(None, CLASSES, LAYERS).to_dict()
    with pytest.raises(InputError):
        DriftAlarm.from_dict({**record, key: DAMAGE[key]})
    with pytest.raises(InputError):
        DriftAlarm.from_dict({name: value for name, value in record.items() if name != key})


WRONG = {
    "stakes": None,
    "now": "x",
    "exponents": "AAAA",
    "seen": {"shape": [1], "base64": "//////////8="},
    "highest": {"shape": [1], "base64": "AAAAAAAA+H8="},
    "rang": [[0, 1.0]],
}


@pytest.mark.parametrize("key", WRONG)
@pytest.mark.parametrize(
    "monitor", [DriftAlarm(None, CLASSES, LAYERS), AccuracyMonitor(0.9)], ids=["drift", "accuracy"]
)
def test_a_damaged_capital_is_refused(monitor, key):
    record = monitor.to_dict()
    gamblers = record["gamblers"]
    with pytest.raises(InputError):
        monitor.from_dict(record | {"gamblers": gamblers | {key: WRONG[key]}})
    with pytest.raises(InputError):
        monitor.from_dict(record | {"gamblers": {k: v for k, v in gamblers.items() if k != key}})


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_restarts_spend_the_rate_once_if_the_state_is_kept(tmp_path, kept):
    """Quiet lives of 20 runs of 60 samples; one that begins anew each time rings far more often."""
    rng, n, rate, rang = np.random.default_rng(11), 60, 0.1, 0
    for life in range(n):
        level, belief, layers = draw(rng, 300 + 20 * 60, [0.5, 0.3, 0.2])
        watch, run_rang = Watch(level[:300], layers[:300], belief[:300], LAYERS), False
        for first in range(300, len(level), 60):
            alarm = DriftAlarm(watch, CLASSES, LAYERS, rate, seed=int(rng.integers(2**31)))
            monitors = Monitors("m 1", alarm, AccuracyMonitor(None))
            if kept:
                monitors.keep_in(tmp_path, f"m{life}", "1")
            part = slice(first, first + 60)
            run_rang |= bool(monitors.watch(level[part], belief[part], layers[part]))
            monitors.close()
        rang += run_rang
    assert (binom.sf(rang - 1, n, rate) > 1e-3) == kept, rang


def test_evidence_beyond_a_million_is_told_as_that():
    assert [tell_evidence(x) for x in (11_532.0, 200.0, 0.5, 1e6, 1e300, np.inf)] == [
        "11,500", "200", "0.5", "over 1,000,000", "over 1,000,000", "over 1,000,000",
    ]  # fmt: skip
