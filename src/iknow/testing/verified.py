"""The contract of an index in the mode "verified", as tests to inherit.

    class TestMyVerifiedIndex(VerifiedContract):
        def make_index(self, activations, labels, n_classes, rows=None):
            return MyIndex(activations, labels, n_classes, rows=rows, mode="verified")

It is the contract of every index but for one thing: a support that is asked for with beliefs may
differ from that of brute force, unless it holds the belief alone. So no IK is false.
"""

from __future__ import annotations

import numpy as np
import pytest

from iknow.core.arrays import Bools, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.support import find_support
from iknow.testing.index import KINDS, IndexContract, Problem, rules_at_ties


def is_alone(support: Bools, belief: Ints) -> Bools:
    """Which supports, of shape (n, n_classes), hold the belief alone: the only way to an IK."""
    held = support[np.arange(len(belief)), belief] & (belief != NO_BELIEF)
    alone: Bools = held & (support.sum(axis=1) == 1)
    return alone


class VerifiedContract(IndexContract):
    """What an index must do that confirms each IK. Inherit, and say how to make one."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_supports_at_exact_ties_equal_those_of_brute_force(self, kind: str) -> None:
        """Without beliefs; with them, those that hold the belief alone, under every rule."""
        for seed in range(self.seeds_per_kind):
            problem = Problem(kind, seed)
            k, n = max(1, problem.k), len(problem.queries)
            index = self.make_index(*problem.training)
            expected = self._brute_force(*problem.training, problem.queries, k, per_class=3)
            nearest = expected.class_distances.argmin(axis=1)
            belief = np.random.default_rng(seed).integers(NO_BELIEF, problem.n_classes, size=n)
            for rule in rules_at_ties(expected, k, seed):
                if rule.quorum[0] == rule.quorum[1]:
                    found = index.find_support(problem.queries, rule)
                    np.testing.assert_array_equal(found, find_support(expected, rule))
                for believed in (belief, nearest):
                    alone = is_alone(index.find_support(problem.queries, rule, believed), believed)
                    truly = is_alone(find_support(expected, rule, believed), believed)
                    assert not (alone & ~truly).any(), f"{rule} is a false IK"
