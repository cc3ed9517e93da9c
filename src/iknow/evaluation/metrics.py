"""How much is known, and how often rightly: the paper's metrics, as `iknow.evaluation.tally`
defines them, of one assessment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Labels
from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import UNKNOWN, positions_of
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.evaluation.tally import Tally
from iknow.explain.assessment import Assessment
from iknow.models.labels import as_vector


@dataclass(frozen=True, eq=False)
class Report(Tally):
    """Figures about an assessment whose truth is known; `evaluate` makes it.

    Attributes:
        classes: Labels of the predicted classes.
        true_classes: Labels of the true classes: `classes`, then any true label that the classifier
            does not know.
        pairs: Of shape (m, 4), one row per combination that occurs: assertion, predicted class,
            true class, and number of samples, ordered by the first three.
        unanswered: Number of samples without a belief, which are in no pair, by assertion (IDK,
            IMK, IK), of shape (3,).
        reasons: Number of samples per `Reason`.
        assessment: What was evaluated.
        y_true: True labels of shape (n,).
    """

    assessment: Assessment = field(repr=False)
    y_true: Labels = field(repr=False)

    def _repr_html_(self) -> str:
        from iknow.evaluation.html import to_html  # markup is for notebooks alone

        return to_html(self)


def evaluate(assessment: Assessment, y_true: Any = None) -> Report:
    """Compare an assessment with the true labels.

    Args:
        assessment: What `assess` returned for n samples.
        y_true: True labels of shape (n,). They may include labels that the classifier does not
            know; no answer about those is right. Default: those that came with the samples, if a
            loader had any.

    Examples:
        >>> report = evaluate(a, y_true)
        >>> print(f"IK {report.f_ik:.3f}, right {report.a_ik:.3f}")
        IK 0.747, right 0.982
    """
    if not isinstance(assessment, Assessment):
        raise InputError(
            f"evaluate needs an Assessment, as assess(X) returns it; got {shown(assessment)}"
        )
    if y_true is None and (y_true := assessment.y_true) is None:
        raise InputError("evaluate needs the true labels, as evaluate(a, y_true): a has none")
    y_true = as_vector(y_true, "y_true")
    if y_true.shape != (len(assessment),):
        raise InputError(
            f"y_true must hold one label for each of the {len(assessment)} assessed samples; "
            f"got shape {y_true.shape}"
        )
    if len(y_true) == 0:
        raise InputError("there is nothing to evaluate: the assessment is empty")
    classes = assessment.classes
    if (y_true.dtype.kind in "OUS") != (classes.dtype.kind in "OUS"):
        raise InputError(
            f"y_true must hold labels like the classifier's, such as {shown(classes.tolist()[0])}; "
            f"got {shown(y_true.tolist()[0])}"
        )
    unknown: Bools = positions_of(y_true, classes) == UNKNOWN
    true_classes = np.concatenate([classes, np.unique(y_true[unknown])])
    true_codes = positions_of(y_true, true_classes)
    answered = assessment.belief_codes >= 0
    shape = (len(Assertion), len(classes), len(true_classes))
    combined = (assessment.assertion, assessment.belief_codes, true_codes)
    keys = np.ravel_multi_index([codes[answered] for codes in combined], shape)
    found, counts = np.unique(keys, return_counts=True)
    return Report(
        classes=classes,
        true_classes=true_classes,
        pairs=np.column_stack([*np.unravel_index(found, shape), counts]).astype(np.int64),
        unanswered=np.bincount(assessment.assertion[~answered], minlength=len(Assertion)),
        reasons={reason: int((assessment.reason == reason).sum()) for reason in Reason},
        assessment=assessment,
        y_true=y_true,
    )
