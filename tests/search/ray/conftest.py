"""A cluster that tests share, as starting it takes seconds."""

import pytest

from tests.clusters import started_cluster

pytest.importorskip("ray")


@pytest.fixture(scope="package")
def cluster():
    """One node, to which tests add others that they can kill."""
    with started_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def hosts(cluster):
    """Three processes that keep running, so that no test has to start them."""
    from iknow.search.ray import RayIndex

    return RayIndex([[0.0], [1.0], [2.0]], [0, 1, 2], 3, shards=3, timeout=300)
