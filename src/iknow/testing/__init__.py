"""The contracts of what can be plugged in, as tests to inherit."""

from iknow.testing.index import KINDS, IndexContract, Problem, assert_same_evidence, brute_force
from iknow.testing.metric import MetricContract
from iknow.testing.model import ModelContract

__all__ = [
    "KINDS",
    "IndexContract",
    "MetricContract",
    "ModelContract",
    "Problem",
    "assert_same_evidence",
    "brute_force",
]
