"""Promises: how far a layer can move, as `Model.sensitivity` says.

Certificates rely on it, so it counts only for the `observe` that it was written for: code that
changes `observe`, in a subclass or on one object, must define `sensitivity` again.
"""

from __future__ import annotations

from iknow.core.overriding import replaced_methods, speaks_for
from iknow.core.sensitivity import Sensitivity
from iknow.errors import LayerError
from iknow.geometry.lipschitz import FLOAT32_ROUNDING, ROUND_UP
from iknow.models.lengths import Sizes
from iknow.models.model import Model


def promised_sensitivity(model: Model, layer: str, inputs: Sizes) -> Sensitivity:
    """What a model promises for a layer; `LayerError` if nothing, or for another `observe`.

    We add the rounding to float32 to a bare constant.
    """
    kind = type(model)
    if "sensitivity" not in getattr(model, "__dict__", {}):
        replaced = replaced_methods(model)
        if replaced:
            raise LayerError(
                f"nothing is known about the inside of a {kind.__name__} with its own "
                f"{replaced[0]!r}"
            )
        says = kind.sensitivity is not Model.sensitivity
        if says and not speaks_for(kind, "sensitivity", "observe"):
            raise LayerError(
                f"{kind.__name__} changes observe but not sensitivity, which depends on it: define "
                "sensitivity(layer, inputs) too"
            )
    promise = model.sensitivity(layer, inputs)
    if isinstance(promise, Sensitivity):
        return promise
    return Sensitivity(float(promise), relative_rounding=FLOAT32_ROUNDING * ROUND_UP)


def check_type(model: Model, kind: type[Model]) -> None:
    """Refuse subclasses of an adapter, which may compute anything."""
    if type(model) is not kind:
        raise LayerError(f"nothing is known about the inside of {type(model).__name__}")
