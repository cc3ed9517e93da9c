"""Importing iknow is light: nothing optional is loaded."""

import subprocess
import sys

import pytest

import iknow

HEAVY = ["torch", "pandas", "pyarrow", "typer", "rich", "matplotlib"]


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def loaded_by(statement):
    """Top-level packages in a fresh process after a statement."""
    code = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(run("-c", code).stdout.split())


@pytest.fixture(scope="module")
def loaded():
    """What iknow loads beyond what its dependencies do: scikit-learn may load pandas by itself."""
    return loaded_by("import iknow") - loaded_by(
        "import sklearn.utils.multiclass, sklearn.frozen, scipy.special, joblib, threadpoolctl"
    )


@pytest.mark.parametrize("package", HEAVY)
def test_importing_iknow_does_not_load(loaded, package):
    assert "iknow" in loaded
    assert package not in loaded


def test_iknow_works_where_nothing_optional_is_installed(run_without):
    code = """
import iknow
from iknow.models.precomputed import PrecomputedModel
outputs = ([[1, 0], [0, 1]], {"a": [[0.0], [9.0]]})
fitted = iknow.EpistemicClassifier(PrecomputedModel(), neighborhoods=iknow.Ball(1)).fit(
    outputs, [0, 1]
)
print(fitted.assess(outputs))
"""
    assert run_without(HEAVY, code) == "Assessment of 2 predictions: IK 2, IMK 0, IDK 0\n"


def test_every_public_name_can_be_had():
    missing = [name for name in iknow.__all__ if not hasattr(iknow, name)]
    assert missing == []
    assert len(set(iknow.__all__)) == len(iknow.__all__)
