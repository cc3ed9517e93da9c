"""iknow makes a classifier honest: IK, IMK or IDK for each prediction, and the samples for it."""

from iknow.classifier.estimator import EpistemicClassifier
from iknow.client.client import Client
from iknow.core.assertion import Assertion, Reason, make_assertions
from iknow.core.evidence import Evidence, merge_evidence
from iknow.core.rule import Rule, Stability
from iknow.core.slack import Slack
from iknow.core.support import find_support, justify
from iknow.errors import (
    AuditError,
    BundleError,
    ClusterError,
    ConflictError,
    DataError,
    ExportError,
    IknowError,
    InputError,
    LayerError,
    MissingExtraError,
    RefusedError,
    SelectionError,
    ServiceError,
)  # fmt: skip
from iknow.evaluation import Evaluation, evaluate
from iknow.explain.assessment import Assessment
from iknow.explain.explanation import Exemplar, Explanation, LayerExplanation
from iknow.explain.picture import Features, Image, Series, as_features, as_image, as_series
from iknow.models.adapt import as_model
from iknow.report import make_report
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall, register_rule
from iknow.search.layer import warm_up
from iknow.selection import Certificate, Selection
from iknow.version import __version__

__all__ = [
    "Assertion",
    "Assessment",
    "AuditError",
    "Ball",
    "BallElseNearest",
    "BallWithNearest",
    "BundleError",
    "Certificate",
    "Client",
    "ClusterError",
    "ConflictError",
    "DataError",
    "EpistemicClassifier",
    "Evaluation",
    "Evidence",
    "Exemplar",
    "Explanation",
    "ExportError",
    "Features",
    "IknowError",
    "Image",
    "InputError",
    "LayerError",
    "LayerExplanation",
    "MissingExtraError",
    "Nearest",
    "Reason",
    "RefusedError",
    "RelativeBall",
    "Rule",
    "Selection",
    "SelectionError",
    "Series",
    "ServiceError",
    "Slack",
    "Stability",
    "__version__",
    "as_features",
    "as_image",
    "as_model",
    "as_series",
    "evaluate",
    "find_support",
    "justify",
    "make_assertions",
    "make_report",
    "merge_evidence",
    "register_rule",
    "warm_up",
]  # fmt: skip
