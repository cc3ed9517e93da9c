"""Plots: the records of `iknow.evaluation`, drawn with matplotlib on axes that are given.

    figure = column_figure()
    draw_evidence(figure.axes[0], evidence_scatter(assessment))
    figure.savefig("evidence.pdf")

Each function draws one record on one axes and touches neither pyplot nor the user's settings.
Letters take their size from the axes. You can read all plots in gray and if color-blind: what
differs in color differs in line, marker or lightness as well.
"""

from iknow.errors import MissingExtraError

try:
    from iknow.evaluation.plots.curves import draw_radius_curve, draw_robust
    from iknow.evaluation.plots.maps import draw_confusion, draw_evidence, draw_regions
    from iknow.evaluation.plots.style import column_figure
except ImportError as error:
    raise MissingExtraError("drawing plots", "plots") from error

__all__ = [
    "column_figure", "draw_confusion", "draw_evidence", "draw_radius_curve", "draw_regions",
    "draw_robust",
]  # fmt: skip
