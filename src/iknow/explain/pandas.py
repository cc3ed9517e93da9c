"""pandas: an assessment as a table, a row for each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from iknow.core.assertion import Assertion, NamedCodes, Reason
from iknow.explain.answers import belief_scores, level_columns

if TYPE_CHECKING:
    from iknow.explain.assessment import Assessment


def frame_of(assessment: Assessment) -> Any:
    """A `pandas.DataFrame`; see `Assessment.to_frame`."""
    labels = np.array([str(label) for label in assessment.classes])
    return pd.DataFrame(
        {
            "belief": assessment.belief,
            "score": belief_scores(assessment),
            "assertion": named(assessment.assertion, Assertion, ordered=True),
            "reason": named(assessment.reason, Reason),
            "justified": ["|".join(labels[row]) for row in assessment.justification],
            **level_columns(assessment),
        }
    )


def named(codes: NamedCodes, words: Any, *, ordered: bool = False) -> Any:
    """Codes as a category of their words."""
    names = [word.name for word in words]
    return pd.Categorical.from_codes(np.asarray(codes), names, ordered=ordered)
