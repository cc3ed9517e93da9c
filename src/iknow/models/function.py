"""FunctionModel: a plain function that returns scores, and one that returns activations.

Whatever a model is made of, two functions of a batch tell all that iknow needs: what it says, and
where its samples lie. They get the inputs as the user gave them, some at a time, as a copy that
they may write to: an array, a tensor, a data frame, a list of texts, or a dict of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from iknow.core.text import shown
from iknow.errors import IknowError, InputError, RefusedError
from iknow.models.inputs import Fields, as_fields, count_samples, own_copy
from iknow.models.model import Layer, Model, Observation, check_layers, make_observation
from iknow.models.numbers import NUMERIC_KINDS, as_array, as_numbers, is_sparse
from iknow.models.refused import observe_if_taken

EMBEDDING = "embedding"


class FunctionModel(Model):
    """A function of a batch that returns scores, and `embed`, which returns activations.

    Args:
        predict: Takes n samples and returns scores of shape (n, n_classes).
        embed: Takes the same and returns activations of shape (n, ...), or a dict of them by layer.
            Without it the only layer is the input.

    Examples:
        >>> model = FunctionModel(trained.predict_proba, embed=lambda rows: rows[:, :2])
        >>> model.observe(X, ["embedding"]).activations["embedding"].shape
        (150, 2)
    """

    def __init__(
        self, predict: Callable[[Any], Any], embed: Callable[[Any], Any] | None = None
    ) -> None:
        for what, each in (("a model", predict), ("embed", predict if embed is None else embed)):
            if not callable(each) or isinstance(each, type):
                raise InputError(f"{what} must be a function of a batch; got {shown(each)}")
        self.predict, self.embed = predict, embed

    def prepare(self, inputs: Any) -> Any:
        """Return `inputs` as they are, but numbers in a list as an array, a dict as `Fields`."""
        if isinstance(inputs, Fields):
            return inputs
        if is_sparse(inputs):  # first, as one format of them is a dict
            return inputs.tocsr()
        if isinstance(inputs, Mapping):
            return as_fields(inputs)
        if isinstance(inputs, (list, tuple)):
            try:
                array = np.asarray(inputs)
            except ValueError:  # of different lengths
                return list(inputs)
            is_numeric = array.dtype.kind in NUMERIC_KINDS and array.ndim > 0
            return as_array(inputs, "X") if is_numeric else list(inputs)
        copies = hasattr(inputs, "copy") or hasattr(inputs, "clone")
        has_rows = hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__") and copies
        if isinstance(inputs, (str, bytes)) or not has_rows:
            return as_array(inputs, "X")  # or an error that says why it is none
        return inputs

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        if self.embed is None:
            return (Layer("input", "input"),)
        return tuple(Layer(name, "hidden") for name in self._find_layers(batch))

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        return observe_if_taken(self._ask, batch, layers)

    def _ask(self, batch: Any, layers: Sequence[str]) -> Observation:
        found: Mapping[str, Any] = {"input": batch}
        if set(layers) - {"input"}:
            found = {**found, **self._find_layers(batch)}
        check_layers(layers, found, _name(self.predict))
        scores = as_numbers(_call(self.predict, batch), "scores")
        if len(scores) != (n := count_samples(batch)):
            raise InputError(
                f"the function {_name(self.predict)} must return scores for each of {n} inputs, of "
                f"shape ({n}, n_classes); got {scores.shape}"
            )
        return make_observation(scores, {layer: found[layer] for layer in layers})

    def _find_layers(self, batch: Any) -> Mapping[str, Any]:
        if self.embed is None:
            return {}
        found = _call(self.embed, batch)
        layers = found if isinstance(found, Mapping) else {EMBEDDING: found}
        if not layers or "input" in layers or not all(isinstance(name, str) for name in layers):
            raise InputError(
                f"{_name(self.embed)} must return activations, or a dict of them by layer, none of "
                f"them called 'input'; got {shown(list(layers))}"
            )
        return layers


def _call(function: Callable[[Any], Any], batch: Any) -> Any:
    """What a function makes of a copy of a batch; `RefusedError` if it raises an error."""
    given = own_copy(batch)
    try:
        return function(dict(given.arrays) if isinstance(given, Fields) else given)
    except (IknowError, MemoryError):
        raise
    except Exception as error:  # it is the user's code
        raise RefusedError(
            f"the function {_name(function)} failed on {count_samples(batch)} inputs: "
            f"{type(error).__name__}: {error}"
        ) from error


def _name(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__name__))
