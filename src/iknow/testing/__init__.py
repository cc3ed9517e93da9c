"""The contracts of what can be plugged in, as tests to inherit."""

from iknow.testing.index import KINDS, IndexContract, Problem, assert_same_evidence, brute_force
from iknow.testing.metric import MetricContract
from iknow.testing.model import ModelContract
from iknow.testing.rule import RuleContract
from iknow.testing.verified import VerifiedContract

__all__ = [
    "KINDS", "IndexContract", "MetricContract", "ModelContract", "Problem", "RuleContract",
    "VerifiedContract", "assert_same_evidence", "brute_force",
]  # fmt: skip
