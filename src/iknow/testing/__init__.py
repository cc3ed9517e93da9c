"""The contracts of what can be plugged in, as tests to inherit."""

from iknow.testing.index import IndexContract, assert_same_evidence, brute_force

__all__ = ["IndexContract", "assert_same_evidence", "brute_force"]
