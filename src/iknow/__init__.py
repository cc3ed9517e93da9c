"""iknow makes a classifier honest: IK, IMK or IDK for each prediction, and the samples for it."""

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.core.assertion import Assertion, Reason
from iknow.core.evidence import Evidence, merge_evidence
from iknow.core.neighborhood import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.errors import (
    BundleError,
    DataError,
    IknowError,
    InputError,
    LayerError,
    MissingExtraError,
    RefusedError,
    SelectionError,
)
from iknow.evaluation import Report, evaluate
from iknow.explain.assessment import Assessment
from iknow.explain.explanation import Explanation
from iknow.explain.picture import as_features, as_image, as_series
from iknow.report import make_html
from iknow.search.warming import warm_up
from iknow.selection import Certificate, Selection
from iknow.version import __version__

__all__ = [
    "Assertion",
    "Assessment",
    "Ball",
    "BallElseNearest",
    "BallWithNearest",
    "BundleError",
    "Certificate",
    "DataError",
    "EpistemicClassifier",
    "Evidence",
    "Explanation",
    "IknowError",
    "InputError",
    "LayerError",
    "MissingExtraError",
    "Nearest",
    "Reason",
    "RefusedError",
    "RelativeBall",
    "Report",
    "Selection",
    "SelectionError",
    "__version__",
    "as_features",
    "as_image",
    "as_series",
    "evaluate",
    "make_html",
    "merge_evidence",
    "warm_up",
]
