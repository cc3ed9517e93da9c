"""Evaluation: assessments and the truth → figures."""

from iknow.evaluation.metrics import Report, evaluate

__all__ = ["Report", "evaluate"]
