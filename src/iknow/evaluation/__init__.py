"""Evaluation: assessments and the truth → figures, curves, and plots, which load matplotlib."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iknow.evaluation.compare import compare
from iknow.evaluation.comparison import Comparison
from iknow.evaluation.curves import RadiusCurve, radius_curve, robust_fraction
from iknow.evaluation.estimate import Estimate
from iknow.evaluation.metrics import Evaluation, evaluate
from iknow.evaluation.risk import CoverageAt, RiskCoverage, risk_coverage

if TYPE_CHECKING:
    from iknow.evaluation.plots import *  # noqa: F403

__all__ = [
    "Comparison", "CoverageAt", "Estimate", "Evaluation", "RadiusCurve", "RiskCoverage", "compare",
    "evaluate", "radius_curve", "risk_coverage", "robust_fraction",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "column_figure" or name.startswith("draw_"):
        return getattr(import_module("iknow.evaluation.plots"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
