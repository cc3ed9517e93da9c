"""Answers: what is said about each sample, in plain values or a data frame, without distances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import NO_BELIEF, for_json
from iknow.errors import MissingExtraError

if TYPE_CHECKING:
    from iknow.explain.assessment import Assessment


def as_plain(assessment: Assessment) -> dict[str, Any]:
    """What `Assessment.to_dict` returns."""
    labels = for_json(assessment.classes)
    answers = {
        "classes": labels,
        "belief": [None if code == NO_BELIEF else labels[code] for code in assessment.belief_codes],
        "score": [s if isfinite(s) else None for s in belief_scores(assessment).tolist()],
        "assertion": [assertion.name for assertion in assessment.assertion],
        "reason": [reason.name for reason in assessment.reason],
        "justified": [[labels[c] for c in np.flatnonzero(row)] for row in assessment.justification],
    }
    return answers | {name: column.tolist() for name, column in level_columns(assessment).items()}


def as_columns(assessment: Assessment) -> dict[str, Any]:
    """The columns of `Assessment.to_frame`, of length n, for `as_frame`."""
    labels = np.array([str(label) for label in assessment.classes])
    return {
        "belief": assessment.belief,
        "score": belief_scores(assessment),
        "assertion": assessment.assertion,
        "reason": assessment.reason,
        "justified": ["|".join(labels[row]) for row in assessment.justification],
        **level_columns(assessment),
    }


def as_frame(make_columns: Callable[[], Mapping[str, Any]], index: Any = None) -> Any:
    """A `pandas.DataFrame` of columns; assertions and reasons are categories of their words."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("to_frame", "pandas") from error
    frame = dict(make_columns())
    for name, words in (("assertion", Assertion), ("reason", Reason)):
        codes, said = np.asarray(frame[name]), [word.name for word in words]
        frame[name] = pd.Categorical.from_codes(codes, said, ordered=words is Assertion)
    return pd.DataFrame(frame, index=index)


def level_columns(assessment: Assessment) -> dict[str, NDArray[Any]]:
    """The level of each answer and what holds it down, both of shape (n,), if there are levels."""
    if assessment.levels is None:
        return {}
    return {"level": assessment.level, "weakest": assessment.weakest}


def belief_scores(assessment: Assessment) -> Floats:
    """The model's score for its belief, of shape (n,); NaN where it gave none."""
    scores = assessment.scores[np.arange(len(assessment)), assessment.belief_codes]
    return np.where(assessment.answered, scores, np.nan)
