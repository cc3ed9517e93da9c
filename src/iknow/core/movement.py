"""Movement: how far the activations of samples can move, in the layer's own metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import InputError


@dataclass(frozen=True, eq=False)
class Movement:
    """How far a layer's activations, as computed, can move when the inputs of n samples do.

    If an input moves by δ in ℓ2, its point in the layer moves by at most
    rounding + lipschitz · stretch · δ. stretch: what differs between samples; where it has no
    bound, rounding is inf. crossing: how far each point must move to come nearer to a sample of
    another class than to all of the belief's (`iknow.core.bisector`); -inf if not computed.
    """

    lipschitz: float  # inf if unknown
    rounding: Floats | float = 0.0  # of shape (n,), or one value for all samples, as is crossing
    crossing: Floats | float = -np.inf
    stretch: Floats | float = 1.0  # positive and finite

    def __post_init__(self) -> None:
        if not self.lipschitz >= 0:  # also false for NaN
            raise InputError(f"a Lipschitz constant must be >= 0; got {self.lipschitz}")
        if not np.all(np.asarray(self.rounding) >= 0):
            raise InputError("the rounding of a layer must be >= 0; use inf if it is unknown")
        if not np.all((np.asarray(self.stretch) > 0) & np.isfinite(self.stretch)):
            raise InputError("the stretch of a layer must be positive and finite")

    def __getitem__(self, samples: Any) -> Movement:
        parts = (self.rounding, self.crossing, self.stretch)
        taken = (part[samples] if isinstance(part, np.ndarray) else part for part in parts)
        return Movement(self.lipschitz, *taken)
