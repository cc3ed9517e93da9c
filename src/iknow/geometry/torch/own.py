"""A network's own tensors: that a forward neither computes with them nor asks what kind they are.

What is followed is a copy of the network in float64 whose parameters need no gradient. Code that
reads the dtype of a parameter, or adds two of them in Python, may find something else there than in
the network itself. Operators and attributes call no function that a profiler would see; a mode of
torch's, which holds for this thread alone, is told of them all.
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
"""What may be asked of a parameter or a buffer: a float64 copy holds the very same numbers."""


class OwnTensors(TorchFunctionMode):
    """Notes what is asked of tensors that are no stand-ins.

    stand_in: the type that answers for itself. is_on: whether it is the network's code that runs.
    note: is given what is wrong.
    """

    def __init__(
        self, stand_in: type, is_on: Callable[[], bool], note: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._stand_in, self._is_on, self._note = stand_in, is_on, note

    def __torch_function__(
        self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if self._is_on() and self._stand_in not in kinds and function not in SAME_IN_A_COPY:
            # The getter of an attribute is bound to what describes it.
            name = getattr(getattr(function, "__self__", None), "__name__", function.__name__)
            self._note(f"it asks for {name!r} of a tensor of its own")
        return function(*args, **(kwargs or {}))
