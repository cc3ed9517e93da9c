"""The contracts of what can be plugged in, as tests to inherit."""

from iknow.testing.index import IndexContract, assert_same_evidence, brute_force
from iknow.testing.rule import RuleContract

__all__ = ["IndexContract", "RuleContract", "assert_same_evidence", "brute_force"]
