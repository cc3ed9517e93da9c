"""iknow makes a classifier honest: IK, IMK or IDK for each prediction, and the samples for it."""

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.assertion import Assertion, Reason
from iknow.core.evidence import Evidence
from iknow.core.rule import Rule
from iknow.errors import IknowError
from iknow.evaluation import compare, evaluate
from iknow.explain import Assessment, Explanation, as_image
from iknow.models import as_model
from iknow.report import make_report
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall, register_rule
from iknow.selection import Certificate, Selection
from iknow.serve.client import Client
from iknow.version import __version__

__all__ = [
    "Assertion", "Assessment", "Ball", "BallElseNearest", "BallWithNearest", "Certificate",
    "Client", "EpistemicClassifier", "Evidence", "Explanation", "IknowError", "Nearest", "Reason",
    "RelativeBall", "Rule", "Selection", "__version__", "as_image", "as_model", "compare",
    "evaluate", "make_report", "register_rule",
]  # fmt: skip
