"""The live state counts what a list of everything that happened would give."""

import json
import pickle
import threading
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow import Assertion, Reason, as_image
from iknow.core.assertion import Assertions, Reasons
from iknow.core.calibration import Calibration
from iknow.explain import as_series
from iknow.explain.answers import Answers
from iknow.explain.later import Later
from iknow.explain.picture import Image
from iknow.serve import activity as activity_module
from iknow.serve import answers as answers_module
from iknow.serve.activity import (
    DURATIONS,
    LATELY,
    N_DURATIONS,
    N_RECENT,
    N_UNKNOWN,
    PER_OCTAVE,
    Activity,
    Recent,
    Ring,
    bin_of,
    quantiles,
)
from iknow.serve.answers import (
    LONGEST_SIDE,
    MOST_AT_ONCE,
    Portrayer,
    RequestAnswers,
    as_plain_picture,
)
from tests.oracles import make_levels

START = 1_000_000.0


class Clock:
    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def live(clock):
    return Activity(np.array(["cat", "dog", "owl"]), ["hidden", "logits"], clock=clock)


@pytest.fixture
def leveled(assessment):
    """The six predictions with levels: two reference samples in a layer."""
    return replace(assessment, levels=make_levels({"hidden": ([1.0, 2.0], [2.0, 4.0])}))


def answers_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return make_answers(
        assertion=rng.integers(3, size=n),
        reason=rng.integers(8, size=n),
        belief=rng.integers(-1, 4, size=n),
        level=rng.random(n),
    )


def make_answers(belief, assertion, reason, level):
    """Answers of four classes, of which only what is counted matters."""
    n = len(belief)
    return Answers(
        classes=np.arange(4), belief=belief, score=np.ones(n),
        assertion=assertion.astype(np.int8).view(Assertions),
        reason=reason.astype(np.int8).view(Reasons), justified=np.zeros((n, 4), bool), level=level,
        weakest=None, probability=None, voices=(),
        watched=np.ones(n), watched_by_layer=np.ones((n, 1)),
        watched_layers=("a",),
    )  # fmt: skip


def add(live, assessment, seconds, request):
    live.add(assessment.answers, seconds, request, Portrayer().portray(assessment))


@given(
    steps=st.lists(st.tuples(st.floats(0, 40), st.integers(0, 9)), max_size=30),
    wait=st.floats(0, 100),
)
def test_rings_hold_what_a_list_of_events_gives(steps, wait):
    ring, now, events = Ring(width=5, n_buckets=4, n_columns=1), START, []
    for pause, count in steps:
        now += pause
        ring.add(now, np.array([count]))
        events.append((now, count))
    start, counts = ring.read(now + wait)
    last = (now + wait) // 5
    first = max(last - 3, events[0][0] // 5 if events else last)
    expected = [sum(c for t, c in events if t // 5 == b) for b in range(int(first), int(last) + 1)]
    assert start == 5 * first
    assert counts[:, 0].tolist() == expected


def test_a_clock_that_is_set_back_goes_on_in_the_latest_bucket():
    ring = Ring(width=5, n_buckets=3, n_columns=1)
    for now in (START + 10, START - 1e6, START + 10):
        ring.add(now, np.array([1]))
    assert ring.read(START)[1].tolist() == [[3]]


@given(
    durations=st.lists(st.floats(1e-4, 100), min_size=1, max_size=200), percent=st.integers(1, 100)
)
def test_quantiles_are_those_of_numpy_to_within_a_bin(durations, percent):
    counts = np.bincount([bin_of(seconds) for seconds in durations], minlength=N_DURATIONS)
    expected = np.quantile(durations, percent / 100, method="inverted_cdf")
    counts = np.r_[np.zeros(DURATIONS, int), counts]
    (found,) = quantiles(counts[None], percent)[f"p{percent}"]
    assert abs(np.log2(found / expected)) <= 1 / PER_OCTAVE


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e-300, 1e300])
def test_any_duration_has_a_bin(seconds):
    assert 0 <= bin_of(seconds) < N_DURATIONS


@given(sizes=st.lists(st.integers(0, 14), max_size=12))
def test_the_last_rows_are_those_at_the_end_of_a_list(sizes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activity_module, "N_RECENT", 10)
        kept = Recent(list("abcd"))
        batches = [answers_of(n, seed) for seed, n in enumerate(sizes)]
        for answers in batches:
            kept.add(answers)
        belief, assertion, level = (
            np.concatenate([np.zeros(0), *(getattr(each, name) for each in batches)])[-10:]
            for name in ("belief", "assertion", "level")
        )
        table = {row["label"]: row for row in kept.to_dict()["by_class"]["rows"]}
        for code, label in enumerate(["a", "b", "c", "d", None]):
            code = -1 if label is None else code
            expected = {a.name: int(((belief == code) & (assertion == a)).sum()) for a in Assertion}
            assert table.get(label, {"label": label, "IDK": 0, "IMK": 0, "IK": 0}) == {
                "label": label, **expected,
            }  # fmt: skip
        counts = (kept.to_dict()["levels"] or {"counts": [0] * 20})["counts"]
        assert counts == np.histogram(level, bins=20, range=(0, 1))[0].tolist()


def test_levels_at_both_ends_count_and_the_reference_is_in_shares():
    kept = Recent(["a"], reference=np.array([0.0, 0.5, 1.0, 1.0]), threshold=0.3)
    assert kept.to_dict()["levels"]["n"] == 0
    kept.add(replace(answers_of(3), belief=np.zeros(3, int), level=np.array([0.0, 1.0, np.nan])))
    found = kept.to_dict()["levels"]
    assert found["n"] == 2
    assert (found["counts"][0], found["counts"][-1]) == (1, 1)
    assert (found["reference"][0], found["reference"][10], found["reference"][-1]) == (
        0.25,
        0.25,
        0.5,
    )
    assert found["threshold"] == 0.3


def test_it_counts_what_assessments_say(live, clock, leveled):
    add(live, leveled, 0.010, "first")
    clock.now += LATELY + 5
    add(live, leveled[:2], 0.030, "second")
    found = live.to_dict()
    assert found["total"] == {
        "rows": 8, "requests": 2, "IDK": 3, "IMK": 3, "IK": 2,
        "reasons": {**dict.fromkeys((r.name for r in Reason), 1), "KNOWN": 2, "OVERLAP": 2,
                    "UNCERTIFIED": 0, "DOUBT": 0},
    }  # fmt: skip
    assert (found["lately"]["rows"], found["lately"]["IK"]) == (2, 1)
    assert found["latency"]["p50"] == pytest.approx(0.030, rel=0.1)
    fine, minutes = found["series"]
    assert (sum(fine["requests"]), sum(minutes["requests"])) == (2, 2)
    assert fine["IK"] == [1, *[0] * (LATELY // 5), 1]
    assert fine["p99"][1] is None
    assert minutes["IK"][-1] == 1
    assert minutes["start"] == START // 60 * 60
    assert found["by_class"]["n"] == found["levels"]["n"] == 8
    assert found["rate"]["requests"] == pytest.approx(1 / 55, rel=0.1)


def test_a_day_ago_is_forgotten_but_counted(live, clock, assessment):
    add(live, assessment, 0.01, "old")
    clock.now += 100_000
    found = live.to_dict()
    assert [len(series["requests"]) for series in found["series"]] == [180, 1440]
    assert sum(sum(series["requests"]) for series in found["series"]) == 0
    assert found["total"]["rows"] == 6
    assert found["latency"] == {"p50": None, "p95": None, "p99": None}


def test_nothing_yet(live):
    found = live.to_dict()
    assert (found["total"]["rows"], found["levels"], found["unknown"]) == (0, None, [])
    json.dumps(found, allow_nan=False)


def test_an_empty_batch_is_a_request_without_rows(live, assessment):
    add(live, assessment[:0], 0.01, "empty")
    total = live.to_dict()["total"]
    assert (total["requests"], total["rows"]) == (1, 0)


def test_an_idk_is_kept_with_its_evidence(live, leveled):
    add(live, leveled, 0.01, "8c1f")
    found = {each["reason"]: each for each in live.to_dict()["unknown"]}
    assert set(found) == {"EXTRAPOLATION", "CONTRADICTION", "INVALID"}
    far = found["EXTRAPOLATION"]
    assert (far["request"], far["row"], far["belief"]) == ("8c1f", 3, "cat")
    assert far["time"] == "1970-01-12T13:46:40.000Z"
    assert far["level"] == leveled.level[3]
    assert far["sentence"] == leveled.explain(3).sentence
    assert far["layers"][1] == {
        "layer": "logits", "reach": 2.0, "limit": "reach",
        "findings": leveled.explain(3).layers[1].findings, "features": [], "unknown_words": (),
        "for": [{"row": 10, "label": "cat", "distance": 3.0}],
        "against": [{"row": 11, "label": "dog", "distance": 5.0}],
    }  # fmt: skip
    assert far["picture"] is None


def test_evidence_is_gathered_for_the_kept_rows_alone(clock, assessment, decisions_of, monkeypatch):
    monkeypatch.setattr(answers_module, "MOST_AT_ONCE", 1)
    asked = []
    whole = dict(assessment.evidence)

    def find(layer, rows):
        asked.extend(rows.tolist())
        return whole[layer][rows]

    lazy = replace(
        assessment,
        evidence=Later(whole, find, np.arange(6)),
        decisions=decisions_of(assessment),
    )
    portrayer = Portrayer(clock=clock)
    assert [each["row"] for each in portrayer.portray(lazy)] == [3]
    assert set(asked) == {3}
    assert portrayer.portray(lazy) == ()
    assert set(asked) == {3}
    clock.now += 0.5
    assert len(portrayer.portray(lazy)) == 1


def test_portraits_are_spread_over_a_batch_and_never_more_than_time_allows(clock, assessment):
    many = assessment[np.full(1000, 3)]
    portrayer = Portrayer(clock=clock)
    rows = [each["row"] for each in portrayer.portray(many)]
    assert rows == np.linspace(0, 999, MOST_AT_ONCE).astype(int).tolist()
    kept = 0
    for _ in range(100):
        clock.now += 0.1
        kept += len(portrayer.portray(many))
    assert kept in (19, 20)  # two a second
    clock.now += 1e6
    assert len(portrayer.portray(many)) == MOST_AT_ONCE


def test_memory_is_bounded(live, clock, assessment):
    for step in range(25):
        clock.now += 5
        add(live, assessment, 0.01, f"{step}")
    live.add(answers_of(3 * N_RECENT), 0.01, "large")
    found = live.to_dict()
    assert len(found["unknown"]) == N_UNKNOWN
    assert found["unknown"][0]["request"] == "24"
    assert found["by_class"]["n"] == N_RECENT


def test_answers_travel_to_another_process_without_the_evidence(assessment):
    portraits = Portrayer().portray(assessment)
    answers = RequestAnswers(**vars(assessment.answers), exemplars={}, portraits=portraits)
    copy = pickle.loads(pickle.dumps(answers))
    assert copy.assertion.tolist() == answers.assertion.tolist()
    assert copy.portraits == answers.portraits
    assert len(pickle.dumps(replace(answers, portraits=()))) < 2000


def test_evidence_that_cannot_be_had_does_not_lose_the_answer(live, assessment, decisions_of):
    def find(layer, rows):
        raise OSError("the bundle is gone")

    lost = replace(
        assessment, evidence=Later(["hidden", "logits"], find, np.arange(6)),
        decisions=decisions_of(assessment),
    )  # fmt: skip
    add(live, lost, 0.01, "a")
    found = live.to_dict()
    assert found["total"]["rows"] == 6
    assert [each["layers"] for each in found["unknown"]] == [[], [], []]
    assert found["unknown"][0]["belief"] is not None


def test_hostile_names_and_numbers_are_plain_and_bounded(assessment, clock):
    labels = np.array(["<img src=x onerror=alert(1)>", "\x1b[31m\u202e", "a" * 9000], dtype=object)
    live = Activity(labels, ["\ud800"], clock=clock)
    inputs, portrayer = np.full((6, 3), np.nan), Portrayer(lambda sample: 1 / 0, clock=clock)
    hostile = replace(assessment, classes=labels)
    portraits = portrayer.portray(hostile, inputs)
    live.add(hostile.answers, float("nan"), "\x1b" * 9000, portraits)
    text = json.dumps(live.to_dict(), allow_nan=False)
    assert len(text) < 20_000
    assert "\\u001b" not in text
    assert "<img src=x onerror=alert(1)>" in text  # as text: the page does not make markup of it


def test_an_image_is_drawn_only_if_a_renderer_is_given(clock, assessment):
    inputs = np.linspace(0, 1, 24).reshape(6, 4)
    for picture, expected in ((None, False), (as_image(2, 2), True), (as_series(), False)):
        portraits = Portrayer(picture, clock=clock).portray(assessment, inputs)
        assert {each["picture"] is not None for each in portraits} == {expected}
    drawn = Portrayer(as_image(2, 2), clock=clock).portray(assessment, inputs)[0]
    assert drawn["picture"]["width"] == drawn["picture"]["height"] == 2
    assert Portrayer(as_image(2, 2)).portray(assessment)[0]["picture"] is None


def test_pictures_are_small():
    image = as_plain_picture(Image(np.zeros((900, 300, 3), np.uint8)))
    assert max(image["width"], image["height"]) <= LONGEST_SIDE


def test_threads_share_it(assessment):
    live = Activity(assessment.classes, ["hidden", "logits"])
    errors = []

    def work():
        try:
            for step in range(40):
                add(live, assessment, 0.01, f"{step}")
                json.dumps(live.to_dict())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = live.to_dict()
    assert found["total"]["requests"] == 240
    assert sum(found["series"][0]["IK"]) == found["total"]["IK"] == 240


def test_more_classes_than_a_page_can_show(clock):
    n = 500
    live = Activity(np.arange(n), ["a"], clock=clock)
    live.add(make_answers(np.arange(n), np.zeros(n), np.full(n, 3), None), 0.01, "all")
    found = live.to_dict()["by_class"]
    assert (len(found["rows"]), found["more"], found["n"]) == (50, 450, n)
    assert found["rows"][0]["IDK"] == 1


def test_the_accuracy_of_the_last_answers_is_estimated_where_probabilities_are_known(clock):
    stairs = Calibration((1.0, 1.0), np.array([0.0]), np.array([0.2, 0.5, 0.9]), np.full(3, 100))
    answers = replace(answers_of(400), probability=np.tile([0.5, 0.9, 0.9, np.nan], 100))
    recent = Recent(["a", "b", "c", "d"], calibration=stairs)
    assert recent.to_dict()["estimate"] is None
    recent.add(replace(answers, probability=None))
    assert recent.to_dict()["estimate"] is None
    recent.add(answers)
    found = recent.to_dict()["estimate"]
    assert found["n"] == 300
    assert found["unseen"] == 0
    assert found["accuracy"] == pytest.approx(np.mean([0.5, 0.9, 0.9]))
    assert found["low"] < found["accuracy"] < found["high"]
    recent.add(replace(answers, level=np.zeros(400), probability=np.full(400, 0.2)))
    later = recent.to_dict()["estimate"]
    assert later["unseen"] == pytest.approx(400 / 700)
    assert later["high"] - later["low"] > 0.5
    msgspec.json.encode(later)
    bare = Recent(["a", "b", "c", "d"])
    bare.add(answers)
    assert bare.to_dict()["estimate"] is None
