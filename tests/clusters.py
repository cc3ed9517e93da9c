"""Ray for tests: small, silent, and on this machine alone."""

import os
import warnings
from contextlib import contextmanager

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"  # nobody else is on this machine

SMALL = {"object_store_memory": 100 << 20, "include_dashboard": False}
SILENT = {"logging_level": "ERROR", "log_to_driver": False}


@contextmanager
def started_ray():
    """Ray on this machine, for this process alone."""
    import ray

    with _ignored():
        ray.init(address="local", num_cpus=2, **SMALL, **SILENT)
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def started_cluster():
    """A cluster of one node, joined by this process; more can be added and killed."""
    import ray
    from ray.cluster_utils import Cluster

    with _ignored():
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, **SMALL})
        ray.init(address=cluster.address, **SILENT)
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def add_node(cluster, **resources):
    """Another node of a cluster, with resources of its own."""
    with _ignored():
        return cluster.add_node(num_cpus=1, resources=resources, object_store_memory=80 << 20)


@contextmanager
def _ignored():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of what a later Ray will do with GPUs
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its log files open
        yield
