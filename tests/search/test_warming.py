"""After warming up nothing is compiled any more, whatever is asked."""

import numpy as np
import pytest

numba = pytest.importorskip("numba")
from numba.core.dispatcher import Dispatcher  # noqa: E402

import iknow  # noqa: E402
from iknow import (  # noqa: E402
    Ball,
    BallElseNearest,
    BallWithNearest,
    EpistemicClassifier,
    Nearest,
    RelativeBall,
)
from iknow.metrics import Minkowski, Weighted  # noqa: E402
from iknow.models import PrecomputedModel  # noqa: E402
from iknow.search.index import RowIndex  # noqa: E402
from iknow.search.kernels.numba import is_compiled  # noqa: E402


@pytest.fixture
def forgetful():
    """The compiled functions of search, with no version of any compiled yet."""
    assert is_compiled()
    from iknow.search.kernels.numba import measure, mismatches, products, tree, walk

    modules = measure, mismatches, products, tree, walk
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Dispatcher) and not value.targetoptions.get("inline")
    }
    assert len(found) > 15
    return found


def count(functions):
    return {function.py_func.__name__: len(function.signatures) for function in functions}


def make_outputs(n, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    points = rng.standard_normal((n, 4)) + labels[:, None]
    return (np.eye(3)[labels], {"a": points, "b": points[:, :2]}), labels


RULES = [
    Ball(0.5),
    Nearest(3),
    BallElseNearest(0.2, 3),
    BallWithNearest(0.5, 3),
    RelativeBall(1.0, 1.5),
    RelativeBall(1.0, 1.5, quorum=(1, 3)),
]


@pytest.mark.parametrize("is_loaded", [False, True])
def test_nothing_is_compiled_after_warming_up(forgetful, tmp_path, is_loaded, monkeypatch):
    outputs, labels = make_outputs(3000)  # enough for walks
    classifiers = []
    for i, rule in enumerate(RULES):
        metric = {"b": Weighted(np.ones((2, 2)))} if i == 0 else None
        made = EpistemicClassifier(PrecomputedModel(), rule=rule, metric=metric)
        made.fit(outputs, labels)
        if is_loaded:
            made.save(tmp_path / "x.iknow")
            made = EpistemicClassifier.load(tmp_path / "x.iknow")
        assert made.warm_up() is made
        classifiers.append(made)
    before = count(forgetful)
    assert all(before[name] for name in ("walk_batch", "gather_batch"))
    for made in classifiers:
        for n in (1, 7, 300):
            asked = make_outputs(n, seed=1)[0]
            made.assess(asked)
            made.assess(asked, evidence=True)
            made.assess(asked, 4).explain(0)
    assert count(forgetful) == before


def test_the_function_compiles_for_all_classifiers_to_come(forgetful, tmp_path):
    iknow.search.warm_up()
    before = count(forgetful)
    for rule in (Ball, RelativeBall, Nearest):
        outputs, labels = make_outputs(200)
        made = EpistemicClassifier(PrecomputedModel(), rule=rule).fit(outputs, labels)
        if rule is not Nearest:
            goal = {"accuracy": 0.5} if rule is RelativeBall else {}
            made.tune(*make_outputs(100, seed=2), **goal)
            made.assess(outputs, evidence=True)
            made.save(tmp_path / "x.iknow")
            EpistemicClassifier.load(tmp_path / "x.iknow").assess(outputs)
    assert count(forgetful) == before


def test_every_index_warms_up_also_an_empty_one(monkeypatch):
    outputs, labels = make_outputs(60)
    made = EpistemicClassifier(PrecomputedModel(), metric=Minkowski(1), rule=Ball(1))
    asked = []
    gather = RowIndex.warm_up
    monkeypatch.setattr(RowIndex, "warm_up", lambda self: (asked.append(self), gather(self)))
    made.fit(outputs, labels).warm_up()
    assert len(asked) == 2
    from iknow.search.cells import CpuIndex

    CpuIndex(np.empty((0, 3), dtype=np.float32), np.empty(0, dtype=int), 2).warm_up()
