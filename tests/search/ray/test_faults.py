"""Real faults: processes and nodes killed while they build and while they search."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import ray

from iknow import EpistemicClassifier
from iknow.errors import ClusterError
from iknow.models import PrecomputedModel
from iknow.rules import RelativeBall
from iknow.search.cells import CpuIndex
from iknow.search.ray import RayIndex
from iknow.testing import assert_same_evidence
from iknow.testing.index import assert_same_decision, brute_force
from tests.clusters import add_node
from tests.conditions import is_running, wait_until

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
POINTS, LABELS = RNG.standard_normal((120, 3)).round(1), np.arange(120) % 4
QUERIES = RNG.standard_normal((30, 3)).round(1)
EXPECTED = brute_force(POINTS, LABELS, 4, QUERIES, 2, per_class=3)
FAR = {"resources": {"far": 0.001}}  # on a node that a test has added


class Stopping(CpuIndex):
    """An index that stops when it is built, or asked, until a test has done its harm."""

    def __init__(self, activations, labels, n_classes, rows=None, *, folder, stops):
        self.folder, self.stops = Path(folder), stops
        super().__init__(activations, labels, n_classes, rows=rows)
        self.stop("build")

    def search(self, points, scope):
        self.stop("search")
        return super().search(points, scope)

    def stop(self, work):
        if self.stops == work and not (self.folder / "harmed").exists():
            (self.folder / "stopped").touch()
            time.sleep(600)  # only an end of this process ends it


def pids_of(index):
    actors = [process.actor for _, process in sorted(index._processes.items())]
    calls = [actor.__ray_call__.remote(lambda shards: os.getpid()) for actor in actors]
    return ray.get(calls, timeout=60)


def wait_for_the_end_of(pids):
    """Until then a process that was killed, or whose node was, may still answer."""
    wait_until(lambda: not any(map(is_running, pids)), seconds=120)


@contextmanager
def waiting(index, seconds):
    """For one call alone: a busy machine may take longer to start processes for the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_timeout", seconds)
        yield


def kill_node(cluster, node):
    cluster.remove_node(node, allow_graceful=False)


@pytest.mark.parametrize("stops", ["build", "search"])
def test_a_node_killed_meanwhile(cluster, tmp_path, stops):
    """The shards are built anew on another node, and the answer is right."""
    first = add_node(cluster, far=1)
    make = partial(Stopping, folder=str(tmp_path), stops=stops)

    def work():
        index = RayIndex(POINTS, LABELS, 4, make=make, shards=2, resources=FAR, timeout=240)
        return index.gather(QUERIES, 2, per_class=3)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(work)
        wait_until((tmp_path / "stopped").exists, seconds=120)
        second = add_node(cluster, far=1)
        (tmp_path / "harmed").touch()
        kill_node(cluster, first)
        assert_same_evidence(found.result(timeout=240), EXPECTED)
    kill_node(cluster, second)


def test_no_node_left_fails_in_time_and_the_next_call_works(cluster):
    node = add_node(cluster, far=1)
    index = RayIndex(POINTS, LABELS, 4, shards=2, resources=FAR, timeout=240)
    pids = pids_of(index)
    kill_node(cluster, node)
    wait_for_the_end_of(pids)
    with waiting(index, 20), pytest.raises(ClusterError, match=r"2 of 2 shards.*call again"):
        index.gather(QUERIES)
    node = add_node(cluster, far=1)
    assert_same_evidence(index.gather(QUERIES, 2, per_class=3), EXPECTED)
    kill_node(cluster, node)


def test_a_killed_process_is_replaced(cluster, hosts):
    """SIGKILL, and Ray's own; for every kind of question, and for all layers that shared it."""
    rule, belief = RelativeBall(1.0, 1.1, quorum=(1, 3)), LABELS[:30]
    index = RayIndex(POINTS, LABELS, 4, shards=3, timeout=240)
    decided = CpuIndex(POINTS, LABELS, 4).decide(QUERIES, rule, belief)
    pids = pids_of(index)
    os.kill(pids[1], signal.SIGKILL)
    wait_for_the_end_of(pids[1:2])
    assert_same_evidence(index.gather(QUERIES, 2, per_class=3), EXPECTED)
    ray.kill(index._processes[2].actor)
    wait_for_the_end_of(pids[2:])
    assert_same_decision(index.decide(QUERIES, rule, belief), decided)
    assert hosts.gather([[0.2]]).exemplars.tolist() == [[0, 1, 2]]
    assert pids_of(hosts) == pids_of(index)


def test_two_threads_ask_while_a_process_is_killed(cluster, hosts):
    index = RayIndex(POINTS, LABELS, 4, shards=3, timeout=240)
    victim = pids_of(index)[0]
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(index.gather, QUERIES, 2, 3) for _ in range(40)]
        os.kill(victim, signal.SIGKILL)
        asked += [pool.submit(index.gather, QUERIES, 2, 3) for _ in range(10)]
        for found in asked:
            assert_same_evidence(found.result(timeout=240), EXPECTED)


def test_a_process_that_does_not_answer_fails_the_call_in_time(cluster):
    index = RayIndex(POINTS, LABELS, 4, shards=1, timeout=240)
    os.kill(pids_of(index)[0], signal.SIGSTOP)
    with waiting(index, 5), pytest.raises(ClusterError, match=r"1 of 1 .*no answer within 5 s"):
        index.gather(QUERIES)
    assert_same_evidence(index.gather(QUERIES, 2, per_class=3), EXPECTED)


def test_a_lost_shard_is_built_anew_from_a_mapped_bundle(cluster, hosts, tmp_path, monkeypatch):
    monkeypatch.setattr("iknow.storage.sealed.COPIED_UP_TO", 0)
    scores, outputs = np.eye(4)[LABELS], {"layer": POINTS}
    rules = {"layer": RelativeBall(1.0, 1.1)}
    fitted = EpistemicClassifier(PrecomputedModel(), rule=rules, progress=False)
    fitted.fit((scores, outputs), LABELS).save(tmp_path / "b.iknow")
    index = partial(RayIndex, shards=3, timeout=240)
    loaded = EpistemicClassifier.load(tmp_path / "b.iknow", search=index)
    asked = np.eye(4)[LABELS[:30]], {"layer": QUERIES}
    expected = fitted.assess(asked).to_frame()
    assert loaded.assess(asked).to_frame().equals(expected)
    pids = pids_of(loaded.indexes_["layer"]._index)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for_the_end_of(pids)
    assert loaded.assess(asked).to_frame().equals(expected)


def test_ray_shut_down_and_joined_again(cluster, hosts):
    index = RayIndex(POINTS, LABELS, 4, shards=3, address=cluster.address, timeout=240)
    ray.shutdown()
    assert_same_evidence(index.gather(QUERIES, 2, per_class=3), EXPECTED)
