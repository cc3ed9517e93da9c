"""The contracts of what can be plugged in, as tests to inherit."""

from iknow.testing.index import KINDS, IndexContract, Problem, assert_same_evidence, brute_force
from iknow.testing.metric import MetricContract
from iknow.testing.model import ModelContract
from iknow.testing.rule import RuleContract

__all__ = [
    "KINDS", "IndexContract", "MetricContract", "ModelContract", "Problem", "RuleContract",
    "assert_same_evidence", "brute_force",
]  # fmt: skip
