"""Scores: where they are in all that a network returns, and what a single number means.

A network may return an array, several in a tuple, or several by name. The scores are the only
array with a row per sample, or the one named `logits`; otherwise the user says which by `scores=`:

- a text names an output (a key or an attribute), a whole number is a position;
- a function gets everything that the network returned and gives the scores.

A binary network may return one number per sample. What it means cannot be seen: a logit of 0.7
and a probability of 0.7 lead to other odds, and one of 0.3 to another class. So the user says
"logit" or "probability", both of the second class, alone or with the output: ("risk", "logit").
Both become a column for each class: (-z/2, z/2), whose softmax is the probability that the logit
z stands for, and (1 - p, p). A logit of 0 and a probability of one half go to the first class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from iknow.core.text import names, shown
from iknow.errors import InputError

USUAL_NAME = "logits"
SINGLE = ("logit", "probability")

ScoresOption = str | int | tuple[str | int, str] | Callable[[Any], Any] | None


def check_scores(option: Any) -> None:
    where, how = split(option)
    simple = where is None or callable(where) or isinstance(where, str | int | np.integer)
    if not simple or isinstance(where, bool) or how not in (None, *SINGLE):
        raise InputError(
            "scores must be the name or the position of an output, 'logit' or 'probability' for a "
            "single number per sample, a pair such as ('risk', 'logit'), or a function of what the "
            f"model returns; got {shown(option)}"
        )


def find_output(returned: Any, option: ScoresOption, n_samples: int, model: str) -> Any:
    """The output that holds the scores of n samples, still as the network `returned` it.

    option: as the user gave `scores=`; see above. model: its name in errors.
    """
    where, how = split(option)
    if callable(where):
        return where(returned)
    if _is_array(returned):
        if where not in (None, 0):
            raise InputError(
                f"{model} returns one array, so scores={where!r} names nothing: leave it out, or "
                "say 'logit' or 'probability' if it holds a single number per sample"
            )
        return returned
    outputs = outputs_of(returned)
    if where is None:  # an output may be called "logit" or "probability"
        where = next((name for name in (how, USUAL_NAME) if name in outputs), None)
    if where is None:
        # Not a loss, which is one number, or a state.
        tables = [v for v in outputs.values() if _is_array(v) and (*v.shape,)[:1] == (n_samples,)]
        if len(tables) == 1:
            return tables[0]
        if not outputs:
            raise InputError(
                f"{model} must return an array of scores, or several arrays; got "
                f"{type(returned).__name__}: wrap it so that it returns its scores"
            )
        raise InputError(
            f"{model} returns {_listed(outputs)}: say which by scores=, its name, its position or "
            "a function of all of them"
        )
    if isinstance(where, str) and where in outputs:
        return outputs[where]
    if isinstance(where, str) and not isinstance(returned, Mapping) and hasattr(returned, where):
        return getattr(returned, where)
    if not isinstance(where, str) and -len(outputs) <= where < len(outputs):
        return list(outputs.values())[where]
    raise InputError(f"{model} has no output {where!r}: it returns {_listed(outputs)}")


def as_columns(scores: Any, option: ScoresOption, model: str) -> Any:
    """Scores of shape (n, n_classes), from an array of this shape, (n, 1) or (n,).

    A single number per sample becomes two columns, if the user said what it means.
    """
    table = np.asarray(scores)
    if table.ndim != 1 and (table.ndim != 2 or table.shape[1] != 1):
        return table
    if (how := split(option)[1]) is None:
        raise InputError(
            "a model must return scores of shape (n, n_classes) with a column for each of at least "
            f"two classes; got {table.shape} from {model}. If it holds one number per sample for "
            "the second of two classes, say which: scores='logit' (any number; positive means the "
            "second class) or scores='probability' (after a sigmoid, between 0 and 1)"
        )
    column = table.reshape(len(table)).astype(np.float64)
    if how == "logit":
        return np.column_stack([-column / 2, column / 2])
    with np.errstate(invalid="ignore"):
        outside = (column < 0) | (column > 1)
    if outside.any():
        raise InputError(
            f"scores='probability' needs numbers from 0 to 1; {model} returned "
            f"{column[outside][0]:.4g}: say scores='logit' if it ends without a sigmoid"
        )
    return np.column_stack([1 - column, column])


def split(option: Any) -> tuple[Any, Any]:
    """Where the scores are, and how to read a single number; None for what was not said."""
    if isinstance(option, tuple | list) and len(option) == 2:
        return option[0], option[1]
    return (None, option) if isinstance(option, str) and option in SINGLE else (option, None)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def outputs_of(returned: Any) -> dict[Any, Any]:
    """What a network returned, by name or position; outputs that are None are left out."""
    if isinstance(returned, Mapping):
        found = dict(returned)
    elif hasattr(returned, "_asdict"):  # a named tuple
        found = returned._asdict()
    elif is_dataclass(returned) and not isinstance(returned, type):
        found = {field.name: getattr(returned, field.name) for field in fields(returned)}
    elif isinstance(returned, tuple | list):
        found = dict(enumerate(returned))
    else:
        found = {k: v for k, v in getattr(returned, "__dict__", {}).items() if _is_array(v)}
    return {name: value for name, value in found.items() if value is not None}


def _listed(outputs: dict[Any, Any]) -> str:
    shapes = {
        name: f"of shape {tuple(value.shape)}" if _is_array(value) else f"({type(value).__name__})"
        for name, value in list(outputs.items())[:20]
    }
    return ", ".join(f"{name!r} {text}" for name, text in shapes.items()) or names([])
