"""What tests of several packages share."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import settings

from iknow import testing
from iknow.core.decision import decide
from iknow.core.evidence import Evidence, discard_evidence
from iknow.explain.assessment import Assessment
from iknow.rules import Ball
from tests import oracles

os.environ.setdefault("KERAS_BACKEND", "torch")  # read when Keras is first imported
if shutil.which("nvidia-smi") is None:  # read when Triton is, which other packages import too
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Examples are the same on every run. How long one takes tells of the machine: it is no test.
settings.register_profile("iknow", deadline=None, derandomize=True)
settings.load_profile("iknow")


def run_where_absent(packages, code):
    """Run code in a fresh process where some packages cannot be imported; returns what it says."""
    hidden = f"""
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, path=None, target=None: (
    None if name.partition(".")[0] in {list(packages)} else find(name, path, target)
)
"""
    command = [sys.executable, "-c", hidden + code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def run_without():
    return run_where_absent


def one_sample_per_class(class_distances, n_neighbors):
    """Evidence of a training set that holds one sample of each class, numbered 10, 11, ..."""
    class_distances = np.array(class_distances, dtype=float)
    rows = np.arange(10, 10 + class_distances.shape[1])
    return Evidence(
        distances=class_distances,
        neighbor_distances=np.sort(class_distances, axis=1)[:, :n_neighbors],
        rows=np.where(np.isinf(class_distances), -1, rows),
    )


def assess_by_rules(evidence, rules, belief, classes=None, **more):
    """Queries in layers named layer0, layer1, ... evidence, rules: one of each for each of them.

    belief: class codes of shape (n,). more: further fields of the assessment.
    """
    names = [f"layer{i}" for i in range(len(rules))]
    n_classes = evidence[0].n_classes
    return Assessment(
        classes=np.arange(n_classes) if classes is None else classes,
        belief_codes=np.asarray(belief),
        scores=np.eye(n_classes)[belief],
        evidence=dict(zip(names, evidence, strict=True)),
        neighborhoods=dict(zip(names, rules, strict=True)),
        invalid=np.zeros(len(belief), dtype=bool),
        **more,
    )


@pytest.fixture(scope="session")
def gather():
    return oracles.gather


@pytest.fixture(scope="session")
def evidence_from():
    return one_sample_per_class


@pytest.fixture(scope="session")
def assess_by():
    return assess_by_rules


def decide_all(assessment):
    rules, belief = assessment.neighborhoods, assessment.belief_codes
    return {
        layer: decide(each, rules[layer], belief) for layer, each in assessment.evidence.items()
    }


@pytest.fixture(scope="session")
def decisions_of():
    return decide_all


@pytest.fixture(scope="session")
def assert_same_evidence():
    return testing.assert_same_evidence


@pytest.fixture
def assessment():
    """Six predictions in two layers: one for each reason, in the order of `Reason`."""
    hidden = [[1, 5, 9], [1, 1.5, 9], [5, 1, 9], [1, 5, 9], [1, 5, 9], [1, 5, 9]]
    logits = [[1, 5, 9], [5, 2, 9], [1, 5, 9], [3, 5, 9], [1, 5, 9], [1, 5, 9]]
    belief_codes = np.array([0, 1, 1, 0, 2, 0])
    invalid = np.array([False, False, False, False, False, True])
    return Assessment(
        classes=np.array(["cat", "dog", "owl"]),
        belief_codes=belief_codes,
        scores=np.eye(3)[belief_codes],
        evidence={
            "hidden": discard_evidence(one_sample_per_class(hidden, n_neighbors=2), invalid),
            "logits": discard_evidence(one_sample_per_class(logits, n_neighbors=2), invalid),
        },
        neighborhoods={"hidden": Ball(1.5), "logits": Ball(2)},
        invalid=invalid,
    )
