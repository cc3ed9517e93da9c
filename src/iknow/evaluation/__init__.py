"""Evaluation: assessments and the truth → figures, curves, and plots of them.

Plots are here too, under their names, and load matplotlib when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iknow.evaluation.curves import RadiusCurve, radius_curve
from iknow.evaluation.metrics import Report, evaluate
from iknow.evaluation.perturb import add_gaussian, add_uniform
from iknow.evaluation.regions import Regions, map_regions
from iknow.evaluation.robust_accuracy import RobustCurve, robust_curve
from iknow.evaluation.scatter import EvidenceScatter, evidence_scatter
from iknow.evaluation.surface import CoverageSurface, coverage_surface
from iknow.evaluation.tradeoff import Tradeoff, TradeoffLine, tradeoff

if TYPE_CHECKING:
    from iknow.evaluation.plots import column_figure as column_figure
    from iknow.evaluation.plots import draw_confusion as draw_confusion
    from iknow.evaluation.plots import draw_evidence as draw_evidence
    from iknow.evaluation.plots import draw_radius_curve as draw_radius_curve
    from iknow.evaluation.plots import draw_regions as draw_regions
    from iknow.evaluation.plots import draw_robust as draw_robust
    from iknow.evaluation.plots import draw_surface as draw_surface
    from iknow.evaluation.plots import draw_tradeoff as draw_tradeoff

__all__ = [
    "CoverageSurface", "EvidenceScatter", "RadiusCurve", "Regions", "Report", "RobustCurve",
    "Tradeoff", "TradeoffLine", "add_gaussian", "add_uniform", "coverage_surface", "evaluate",
    "evidence_scatter", "map_regions", "radius_curve", "robust_curve", "tradeoff",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "column_figure" or name.startswith("draw_"):
        return getattr(import_module("iknow.evaluation.plots"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
