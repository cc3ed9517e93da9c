"""pandas: answers as a table, a row for each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from iknow.core.assertion import Assertion, Reason
from iknow.explain.pandas import named

if TYPE_CHECKING:
    from iknow.client.answers import Answers


def frame_of(answers: Answers) -> Any:
    """A `pandas.DataFrame`; see `Answers.to_frame`."""
    return pd.DataFrame(
        {
            "belief": answers.belief,
            "assertion": named(answers.assertion, Assertion, ordered=True),
            "reason": named(answers.reason, Reason),
            "level": answers.level,
        }
    )
