"""What is said about predictions, and why: assessments, explanations, pictures."""

from iknow.explain.assessment import Assessment
from iknow.explain.explanation import Exemplar, Explanation, LayerExplanation
from iknow.explain.picture import Features, Image, Series, as_features, as_image, as_series

__all__ = [
    "Assessment", "Exemplar", "Explanation", "Features", "Image", "LayerExplanation", "Series",
    "as_features", "as_image", "as_series",
]  # fmt: skip
