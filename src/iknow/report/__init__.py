"""The report: one page that holds the evidence, and recomputes everything as its sliders move."""

from iknow.report.page import USUAL_NEIGHBORS, make_report

__all__ = ["USUAL_NEIGHBORS", "make_report"]
