"""iknow makes a classifier honest: IK, IMK or IDK for each prediction, and the samples for it."""

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.core.assertion import Assertion, Reason
from iknow.core.evidence import Evidence
from iknow.evaluation import Report, evaluate
from iknow.explain.assessment import Assessment
from iknow.explain.picture import as_features, as_image, as_series
from iknow.rules import (
    Ball,
    BallElseNearest,
    BallWithNearest,
    Nearest,
    RelativeBall,
    register_rule,
)
from iknow.search.warming import warm_up
from iknow.version import __version__

__all__ = [
    "Assertion",
    "Assessment",
    "Ball",
    "BallElseNearest",
    "BallWithNearest",
    "EpistemicClassifier",
    "Evidence",
    "Nearest",
    "Reason",
    "RelativeBall",
    "Report",
    "__version__",
    "as_features",
    "as_image",
    "as_series",
    "evaluate",
    "register_rule",
    "warm_up",
]
