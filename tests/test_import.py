"""Importing iknow is light: nothing optional is loaded."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import iknow
from iknow.evaluation import plots

DOCS = Path(__file__).parents[1] / "docs"

HEAVY = [
    "torch", "numba", "llvmlite", "triton", "ray", "faiss",
    "onnx", "onnxruntime", "skl2onnx", "onnxscript", "keras", "transformers", "datasets", "magika",
    "xgboost", "lightgbm", "catboost", "pandas", "polars", "narwhals", "pyarrow",
    "matplotlib", "PIL", "optuna", "mapie", "mlflow", "art", "pooch",
    "fastapi", "starlette", "pydantic", "uvicorn", "httptools", "uvloop", "prometheus_client",
    "opentelemetry", "psycopg", "river", "alibi_detect", "evidently",
    "typer", "rich", "http", "httpx2", "httpcore2", "h11", "anyio",
]  # fmt: skip


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
from iknow.models import PrecomputedModel
outputs = ([[1, 0], [0, 1]], {"a": [[0.0], [9.0]]})
fitted = iknow.EpistemicClassifier(PrecomputedModel(), rule=iknow.Ball(1)).fit(
    outputs, [0, 1]
)
print(fitted.assess(outputs))
"""
    absent = set(HEAVY) - {"narwhals"}  # later versions of scikit-learn import it themselves
    assert run_without(absent, code) == "Assessment of 2 predictions: IK 2, IMK 0, IDK 0\n"


@pytest.mark.parametrize("module", [iknow, iknow.evaluation, iknow.explain])
def test_every_public_name_can_be_had(module):
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert missing == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_all_plots_are_there_under_their_short_names():
    for name in plots.__all__:
        assert getattr(iknow.evaluation, name) is getattr(plots, name)
    with pytest.raises(AttributeError, match="has no attribute 'draw_nothing'"):
        _ = iknow.evaluation.draw_nothing
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = iknow.evaluation.nothing


def test_a_plot_where_matplotlib_is_absent_names_what_is_missing(run_without):
    code = """
import iknow.evaluation
try:
    from iknow.evaluation import draw_regions
except iknow.errors.MissingExtraError as error:
    print(error)
"""
    assert "pip install 'iknow[plots]'" in run_without(["matplotlib"], code)


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_docs_import_from_the_flat_names_alone(path):
    text = path.read_text("utf-8")
    deep = re.findall(r"^(?:from|import) (iknow\.(?:evaluation|explain)\.[\w.]+)", text, re.M)
    assert deep == []
