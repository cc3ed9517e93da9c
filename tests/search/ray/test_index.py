"""Every index in shards is still an index, to the last bit."""

from functools import partial
from threading import Lock

import numpy as np
import pytest

from iknow import Ball, EpistemicClassifier, RelativeBall
from iknow.errors import InputError
from iknow.models import PrecomputedModel
from iknow.search.cells import CpuIndex
from iknow.search.ray import RayIndex, Shards
from iknow.testing.index import assert_same_decision
from tests.search.contract import RowIndexContract


@pytest.fixture
def here(monkeypatch):
    """Shards in this process, without any others."""

    def ask(index, method="", *arguments):
        if not index._processes:
            for at in range(index.n_shards):
                index._processes[at] = Shards()
                arrays = index.arrays(slice(at, None, index.n_shards))
                index._processes[at].build("key", index._make, arrays)
        shards = index._processes.values() if method else ()
        return [shard.ask("key", method, *arguments) for shard in shards]

    monkeypatch.setattr(RayIndex, "_ask", ask)
    monkeypatch.setattr("iknow.search.ray.join", lambda address: None)
    monkeypatch.setattr("iknow.search.ray._forget", lambda *arguments: None)


@pytest.mark.slow
class TestShardsInThisProcess(RowIndexContract):
    seeds_per_kind = 2

    @pytest.fixture(autouse=True)
    def started(self, here):
        return here

    def make_index(self, activations, labels, n_classes, rows=None):
        return RayIndex(activations, labels, n_classes, rows, shards=3, make=CpuIndex)


@pytest.mark.slow
class TestRayIndex(RowIndexContract):
    seeds_per_kind = 1

    @pytest.fixture(autouse=True)
    def started(self, hosts):
        return hosts

    def make_index(self, activations, labels, n_classes, rows=None):
        return RayIndex(activations, labels, n_classes, rows, shards=3, timeout=300)


@pytest.mark.parametrize("n_classes", [2, 9])
@pytest.mark.parametrize(
    "rule",
    [
        RelativeBall(1.5, 1.2, quorum=(1, 3)),
        RelativeBall(1.0, 0.8, quorum=(3, 1)),
        RelativeBall(2.0, 1.0),
        Ball(0.7, quorum=(2, 2)),
        Ball(1.1),
    ],
)
def test_decisions_of_shards_are_those_of_one_index(here, rule, n_classes):
    rng = np.random.default_rng(n_classes)
    points = rng.standard_normal((9000, 4)).round(1)  # many ties
    labels = rng.integers(n_classes, size=9000)
    queries = rng.standard_normal((300, 4)).round(1)
    belief = rng.integers(-1, n_classes, size=300)
    shards = RayIndex(points, labels, n_classes, shards=3)
    found = shards.decide(queries, rule, belief)
    assert_same_decision(found, CpuIndex(points, labels, n_classes).decide(queries, rule, belief))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "shards must be a whole number >= 1; got 0"),
        ({"shards": 1.5}, "shards must be a whole number >= 1"),
        ({"timeout": 0}, "timeout must be a number of seconds > 0"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"make": 3}, "an index: a type or a function"),
    ],
)
def test_bad_options_are_refused(here, options, message):
    with pytest.raises(InputError, match=message):
        RayIndex(np.zeros((3, 2)), [0, 1, 1], 2, **options)


class Narrower(CpuIndex):
    """An index that is not of the rows it was given."""

    def __init__(self, activations, labels, n_classes, rows=None, *, wrong):
        super().__init__(activations, labels, n_classes, rows=rows)
        if wrong == "features":
            self.n_features -= 1
        else:
            self.n_classes += 1


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "sizes"), [("features", (2, 1, 3)), ("classes", (2, 2, 4))])
def test_shards_of_another_dimension_or_classes_are_refused(hosts, wrong, sizes):
    with pytest.raises(InputError, match="must hold 2 rows of 2 features and 3 classes") as caught:
        RayIndex(
            np.zeros((6, 2)), [0, 0, 1, 1, 2, 2], 3, shards=3, make=partial(Narrower, wrong=wrong)
        )
    assert str(sizes) in str(caught.value)


@pytest.mark.slow
def test_an_index_that_cannot_be_made_says_why(hosts):
    def make(activations, labels, n_classes, rows):
        raise KeyError("nothing here")

    with pytest.raises(InputError, match="raised KeyError: 'nothing here'"):
        RayIndex(np.zeros((6, 2)), [0, 0, 1, 1, 2, 2], 3, shards=3, make=make)
    with pytest.raises(InputError, match="make cannot be sent to another process"):
        RayIndex(np.zeros((6, 2)), range(6), 6, shards=3, make=partial(make, Lock()))
    with pytest.raises(InputError, match="options of Ray's actors"):
        RayIndex(np.zeros((6, 2)), [0, 0, 1, 1, 2, 2], 3, shards=2, resources={"absent": 1})


@pytest.mark.slow
def test_a_classifier_says_the_same_through_shards(hosts, tmp_path):
    """Of several layers, tuned, saved, loaded and pickled."""
    import pickle

    rng = np.random.default_rng(0)
    y = rng.integers(3, size=900)
    hidden = 4 * np.eye(3)[y] + rng.standard_normal((900, 3))
    outputs = (
        np.eye(3)[y] + 0.3 * rng.standard_normal((900, 3)),
        {
            "hidden": hidden,
            "wide": np.tile(hidden, 4),
        },
    )

    def part(start, stop):
        scores, layers = outputs
        return scores[start:stop], {name: rows[start:stop] for name, rows in layers.items()}

    def fitted(index):
        model = EpistemicClassifier(PrecomputedModel(), search=index, progress=False)
        return model.fit(part(0, 500), y[:500]).tune(part(500, 700), coverage=0.6)

    usual, sharded = fitted(None), fitted(partial(RayIndex, shards=3, timeout=300))
    expected = usual.assess(part(700, 900)).to_frame()
    assert sharded.assess(part(700, 900)).to_frame().equals(expected)
    sharded.save(tmp_path / "b.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "b.iknow", search=partial(RayIndex, shards=3))
    for copy in (loaded, pickle.loads(pickle.dumps(sharded))):
        assert copy.assess(part(700, 900)).to_frame().equals(expected)
    hosts_of = [layer._index._processes for layer in loaded.indexes_.values()]
    assert hosts_of[0] == hosts_of[1]  # one process for a shard of each layer
