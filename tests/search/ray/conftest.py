"""One Ray for all tests of a process, small and silent."""

import os
import warnings

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"  # what it would ask for is only on this machine

SMALL = {"object_store_memory": 100 << 20, "include_dashboard": False, "log_to_driver": False}


@pytest.fixture(scope="session")
def ray_started():
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        ray.init(address="local", num_cpus=2, logging_level="ERROR", **SMALL)
    yield ray
    ray.shutdown()
