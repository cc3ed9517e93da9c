"""The contracts of what can be plugged in, as tests to inherit."""

from iknow.testing.index import KINDS, IndexContract, Problem, assert_same_evidence, brute_force
from iknow.testing.metric import MetricContract

__all__ = [
    "KINDS",
    "IndexContract",
    "MetricContract",
    "Problem",
    "assert_same_evidence",
    "brute_force",
]
