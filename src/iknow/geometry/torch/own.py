"""A network's own tensors: checks that a forward neither computes with them nor reads their type.

We trace a float64 copy of the network, where the dtype of a parameter or the sum of two may differ
from the original. A profiler does not see operators and attributes, but a torch function mode,
which affects only this thread, does.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

SAME_IN_A_COPY: Set[Any] = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "ndim")),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.__float__, Tensor.__int__, Tensor.__bool__),
}
"""What a forward may ask of a parameter or a buffer: the float64 copy gives the same answer."""


class OwnTensors(TorchFunctionMode):
    """Calls `note` with what code reads of tensors that are not stand-ins, while `is_on()`."""

    def __init__(
        self, stand_in: type, is_on: Callable[[], bool], note: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._stand_in, self._is_on, self._note = stand_in, is_on, note

    def __torch_function__(
        self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if self._is_on() and self._stand_in not in kinds and function not in SAME_IN_A_COPY:
            # The getter of an attribute is bound to its descriptor.
            name = getattr(getattr(function, "__self__", None), "__name__", function.__name__)
            self._note(f"it reads {name!r} of one of its own tensors")
        return function(*args, **(kwargs or {}))
