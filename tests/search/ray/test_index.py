"""Every index in shards is still an index, to the last bit."""

import pytest

from iknow.search.ray import RayIndex
from iknow.testing import IndexContract


class TestRayIndex(IndexContract):
    seeds_per_kind = 3

    @pytest.fixture(autouse=True, scope="class")
    def hosts(self, ray_started):
        """An index that keeps three processes running, so that every other one need not start."""
        return RayIndex([[0.0], [1.0], [2.0]], [0, 1, 2], 3, shards=3, timeout=300)

    def make_index(self, activations, labels, n_classes, rows=None):
        return RayIndex(activations, labels, n_classes, rows, shards=3, timeout=300)
