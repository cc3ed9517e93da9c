"""ShardedIndex: the answer of one index, however the rows are spread."""

import numpy as np
import pytest
import torch

from iknow.errors import InputError
from iknow.rules import Ball, RelativeBall
from iknow.search.kernels.torch import TorchIndex
from iknow.search.union import ShardedIndex
from iknow.testing import assert_same_evidence, brute_force
from iknow.testing.index import Problem, assert_same_decision
from tests.search.contract import RowIndexContract, random_problem

# One machine rarely has several GPUs: the same one twice is two shards all the same.
DEVICES = ["cuda", "cuda"] if torch.cuda.is_available() else ["cpu", "cpu"]


@pytest.mark.slow
class TestShardedIndex(RowIndexContract):
    seeds_per_kind = 1

    def make_index(self, activations, labels, n_classes, rows=None):
        return ShardedIndex(activations, labels, n_classes, rows=rows, devices=[*DEVICES, "cpu"])


@pytest.mark.parametrize("kind", ["integer grid", "duplicates", "empty class"])
def test_evidence_equals_brute_force(kind):
    problem = Problem(kind, 0)
    asked = problem.queries, problem.k
    index = ShardedIndex(*problem.training, devices=DEVICES)
    expected = brute_force(*problem.training, *asked, per_class=3)
    assert_same_evidence(index.gather(*asked, 3), expected)


def test_every_shard_has_its_share_of_every_class():
    points, labels, _ = random_problem()
    index = ShardedIndex(points, labels, 5, devices=["cpu"] * 4)
    for code in range(5):
        counts = [(shard.labels == code).sum() for shard in index.shards]
        assert max(counts) - min(counts) <= 1
    assert sorted(np.concatenate([shard.rows for shard in index.shards])) == list(range(2000))


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_more_devices_than_rows(n_rows):
    points, labels, queries = random_problem(n_rows)
    index = ShardedIndex(points, labels, 5, devices=["cpu"] * 8)
    expected = brute_force(points, labels, 5, queries, n_rows, per_class=2)
    assert_same_evidence(index.gather(queries, n_rows, 2), expected)


def test_decisions_are_those_of_one_index():
    points, labels, _ = random_problem()
    queries = points[:40] + np.float32(0.1)
    belief = np.arange(len(queries)) % 6 - 1
    whole = TorchIndex(points, labels, 5)
    index = ShardedIndex(points, labels, 5, devices=["cpu"] * 3)
    for rule in (Ball(0.5), RelativeBall(2.0, 1.5, quorum=(1, 3)), Ball(2.0, quorum=2)):
        expected = whole.decide(queries, rule, belief)
        assert expected.support.any()
        assert_same_decision(index.decide(queries, rule, belief), expected)


@pytest.mark.parametrize("devices", [[], "cpu", torch.device("cpu")])
def test_devices_are_a_list(devices):
    with pytest.raises(InputError, match=r"at least one device, such as \['cuda:0', 'cuda:1'\]"):
        ShardedIndex(np.zeros((2, 1)), np.array([0, 1]), 2, devices=devices)
