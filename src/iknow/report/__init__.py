"""The report: one page that holds the evidence, and recomputes everything as its sliders move."""

from iknow.report.comparison import make_comparison_html
from iknow.report.page import USUAL_NEIGHBORS, make_html

__all__ = ["USUAL_NEIGHBORS", "make_comparison_html", "make_html"]
