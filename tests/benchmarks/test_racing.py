"""Races are run against a clock of their own, so that nothing here depends on the machine."""

import pytest

from benchmarks.racing import Contestant, best_of, latencies, race, timed


class Track:
    """A clock that moves only when somebody works on it."""

    def __init__(self):
        self.now = 0.0
        self.turns = []

    def clock(self):
        return self.now

    def contestant(self, name, seconds_per_query, start=0.0, **options):
        def answer(part):
            n = part.stop - part.start
            self.now += start + n * seconds_per_query
            self.turns.append((name, n))

        return Contestant(name, answer, **options)


@pytest.fixture
def track():
    return Track()


def test_contestants_take_turns(track):
    both = [track.contestant("a", 0.1, whole=True), track.contestant("b", 0.2, whole=True)]
    laps = race(both, 10, 3, 1.0, clock=track.clock)
    assert [name for name, _ in track.turns] == ["a", "b"] * 4  # the first round is the warm-up
    assert [lap.contestant.name for lap in laps] == ["a", "b"]
    assert laps[0].seconds == pytest.approx([1.0] * 3)
    assert laps[1].seconds == pytest.approx([2.0] * 3)


def test_whoever_must_answer_the_whole_does_so_however_slow(track):
    (lap,) = race([track.contestant("a", 5.0, whole=True)], 1000, 1, 0.1, clock=track.clock)
    assert lap.n_queries == 1000


@pytest.mark.parametrize(
    ("seconds_per_query", "expected"),
    [(1.0, 8), (0.02, 16), (1e-9, 1000)],  # too slow for more, some more, all
)
def test_the_slow_are_asked_about_a_part(track, seconds_per_query, expected):
    contestant = track.contestant("a", seconds_per_query, fewest=8)
    (lap,) = race([contestant], 1000, 2, 0.9, clock=track.clock)
    assert lap.n_queries == expected
    assert lap.seconds == pytest.approx([expected * seconds_per_query] * 2)


def test_no_more_queries_are_asked_than_there_are(track):
    (lap,) = race([track.contestant("a", 1e-6, fewest=256)], 10, 1, 1.0, clock=track.clock)
    assert lap.n_queries == 10


def test_latencies_are_of_one_query_each(track):
    answer = track.contestant("a", 0.001).answer
    assert latencies(answer, 150, limit=1e9, clock=track.clock) == pytest.approx([0.001] * 150)
    assert {n for _, n in track.turns} == {1}


def test_latencies_end_when_time_is_up_but_not_too_early(track):
    assert len(latencies(track.contestant("a", 1.0).answer, 1000, 0.5, track.clock)) == 100
    assert len(latencies(track.contestant("a", 1.0).answer, 1000, 150.5, track.clock)) == 151


def test_the_best_of_several_is_the_shortest(track):
    durations = iter([3.0, 1.0, 2.0])

    def work():
        track.now += next(durations)

    assert best_of(work, 3, track.clock) == 1.0


def test_timing_gives_the_result_too(track):
    assert timed(lambda: "answer", track.clock) == ("answer", 0.0)
