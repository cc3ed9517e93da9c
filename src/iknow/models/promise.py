"""Promises: how far a layer of a model can move, where the model really says so of itself.

Certificates rest on what `Model.sensitivity` returns, so a promise counts only if it is about the
`observe` that runs: whoever changes `observe`, in a subclass or on one object, must promise anew.
"""

from __future__ import annotations

from iknow.core.overriding import replaced_methods, speaks_for
from iknow.core.sensitivity import Sensitivity
from iknow.errors import LayerError
from iknow.geometry.lipschitz import FLOAT32_ROUNDING, ROUND_UP
from iknow.models.lengths import Sizes
from iknow.models.model import Model


def promised_sensitivity(model: Model, layer: str, inputs: Sizes) -> Sensitivity:
    """What a model promises of a layer; `LayerError` where that is nothing, or about another model.

    A bare constant is about the activations that the model returns: it cannot know that they are
    stored in float32, which is added here.
    """
    kind = type(model)
    if "sensitivity" not in getattr(model, "__dict__", {}):
        replaced = replaced_methods(model)
        if replaced:
            raise _unknown(f"a {kind.__name__} with its own {replaced[0]!r}")
        says = kind.sensitivity is not Model.sensitivity
        if says and not speaks_for(kind, "sensitivity", "observe"):
            raise LayerError(
                f"{kind.__name__} changes observe but not sensitivity, which is about it: give it "
                "a method sensitivity(layer, inputs) of its own"
            )
    promise = model.sensitivity(layer, inputs)
    if isinstance(promise, Sensitivity):
        return promise
    return Sensitivity(float(promise), relative_rounding=FLOAT32_ROUNDING * ROUND_UP)


def check_type(model: Model, kind: type[Model]) -> None:
    """An adapter speaks for itself alone: what a subclass makes of its parts it cannot know."""
    if type(model) is not kind:
        raise _unknown(type(model).__name__)


def _unknown(what: str) -> LayerError:
    return LayerError(f"nothing is known about the inside of {what}")
