"""The contracts of the modes, whatever is proposed."""

import numpy as np
import pytest

from iknow.core.codes import NO_BELIEF
from iknow.core.support import find_support
from iknow.search.approximate import ApproximateIndex
from iknow.testing import KINDS, IndexContract, Problem, VerifiedContract, brute_force
from iknow.testing.index import rules_at_ties
from iknow.testing.verified import is_alone
from tests.search.approximate.proposers import STUBS, Stub, garbage, perfect


class TestExactOfGarbage(IndexContract):
    seeds_per_kind = 1

    def make_index(self, *arrays, rows=None):
        return ApproximateIndex(*arrays, rows=rows, make=Stub(garbage), mode="exact")


@pytest.mark.slow
class TestVerifiedOfGarbage(VerifiedContract):
    def make_index(self, *arrays, rows=None):
        return ApproximateIndex(*arrays, rows=rows, make=Stub(garbage), mode="verified")


@pytest.mark.parametrize("stub", STUBS)
def test_no_proposals_change_an_exact_support_or_make_a_verified_ik(stub):
    first = STUBS.index(stub)
    for seed, kind in enumerate(KINDS[first % 3 :: 3]):  # all kinds would take long
        check_supports(stub, kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("stub", STUBS)
def test_the_same_at_length(stub):
    for seed in range(4):
        for kind in KINDS:
            check_supports(stub, kind, seed)


def check_supports(stub, kind, seed):
    problem = Problem(kind, seed)
    k, queries = max(1, problem.k), problem.queries
    exact, verified = (
        ApproximateIndex(*problem.training, make=Stub(stub), mode=mode)
        for mode in ("exact", "verified")
    )
    evidence = brute_force(*problem.training, queries, k, per_class=3)
    random = np.random.default_rng(seed).integers(NO_BELIEF, problem.n_classes, size=len(evidence))
    for belief in (random, evidence.class_distances.argmin(axis=1)):
        for rule in rules_at_ties(evidence, k, seed):
            truth = find_support(evidence, rule, belief)
            np.testing.assert_array_equal(exact.find_support(queries, rule, belief), truth)
            found = is_alone(verified.find_support(queries, rule, belief), belief)
            assert not (found & ~is_alone(truth, belief)).any(), (rule, kind, seed)
            if stub is perfect:
                assert (found == is_alone(truth, belief)).all(), (rule, kind, seed)
