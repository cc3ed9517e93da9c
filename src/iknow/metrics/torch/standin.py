"""The stand-in: a batch that goes through a network and records what happens to it.

It knows only the shape of a sample. Asked for a value, the number of samples or a dtype, it raises,
so no branch of a forward can depend on them. An unsupported operation, and every operation on an
unknown value, returns an unknown value with the reason. An unsupported operation may also have
written to its arguments, so they become unknown too.

Each function of shapes takes the shape of a
sample and the arguments of the torch function of the same name. It returns the new shape of a
sample, or None if samples might mix or merge with the batch axis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from iknow.errors import LayerError
from iknow.metrics.torch.functions import FUNCTIONS, METHODS, Reshaped, Scaled
from iknow.metrics.torch.layers import BATCH_NORMS, VIEWS
from iknow.metrics.torch.purity import unwatched

Shape = tuple[int, ...]


class _Batch:
    """The number of samples: a forward must not depend on it."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise LayerError("its forward depends on the number of samples in a batch")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __int__ = __index__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __pow__ = __neg__ = _refuse
    __hash__ = __float__ = __format__ = __str__ = __repr__ = _refuse


BATCH = _Batch()


def flatten(shape: Shape, start_dim: Any = 0, end_dim: Any = -1) -> Shape | None:
    start, end = (_axis(dim, 1 + len(shape)) for dim in (start_dim, end_dim))
    if start is None or end is None or start > end:
        return None
    return (*shape[: start - 1], math.prod(shape[start - 1 : end]), *shape[end:])


def reshape(shape: Shape, *sizes: Any) -> Shape | None:
    """Keeps the batch axis if it comes first, as its own size or as -1."""
    n_values = math.prod(shape)
    target = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else [*sizes]
    if not target or n_values == 0 or any(type(size) is not int for size in target[1:]):
        return None
    first, *new = target
    if first is BATCH and new.count(-1) == 1:
        rest = -math.prod(new)
        new[new.index(-1)] = n_values // rest if rest > 0 else 0
    kept = first is BATCH or (type(first) is int and first == -1)
    right = min(new, default=1) >= 0 and math.prod(new) == n_values
    return tuple(new) if kept and right else None


def squeeze(shape: Shape, dim: Any = None) -> Shape | None:
    axis = _axis(dim, 1 + len(shape))
    if axis is None:
        return None
    return (*shape[: axis - 1], *shape[axis:]) if shape[axis - 1] == 1 else shape


def unsqueeze(shape: Shape, dim: Any) -> Shape | None:
    axis = _axis(dim, 2 + len(shape))
    return None if axis is None else (*shape[: axis - 1], 1, *shape[axis - 1 :])


SHAPES: dict[str, Callable[..., Shape | None]] = {
    "flatten": flatten,
    "reshape": reshape,
    "view": reshape,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
}


def shape_of_concatenation(shapes: Sequence[Shape], dim: Any) -> tuple[int, Shape] | None:
    """The axis of the batch along which samples of these shapes are joined, and the new shape."""
    axis = _axis(dim, 1 + len(shapes[0])) if shapes else None
    if axis is None or any(len(shape) != len(shapes[0]) for shape in shapes):
        return None
    rest = {(*shape[: axis - 1], *shape[axis:]) for shape in shapes}
    if len(rest) > 1:
        return None
    total = sum(shape[axis - 1] for shape in shapes)
    return axis, (*shapes[0][: axis - 1], total, *shapes[0][axis:])


def _axis(dim: Any, rank: int) -> int | None:
    """An axis of the batch counted from the front; None if it is not an axis of the samples."""
    if type(dim) is not int or not -rank <= dim < rank:
        return None
    return dim % rank or None


ANSWERED: ContextVar[Counter[Any]] = ContextVar("ANSWERED")
"""How often each function of torch called a stand-in, in the current trace."""


@dataclass(frozen=True, eq=False)
class Node:
    """An intermediate value: the operation that made it, its inputs, and the shape of a sample.

    operation: a known module, "add", the axis of a concatenation, or None for the network's input.
    """

    what: str
    operation: nn.Module | str | int | None
    inputs: tuple[Node, ...]
    shape: tuple[int, ...]


class _Memory:
    """The memory that a value shares with its views, and how often it was written to."""

    version = 0


class StandIn:
    """A batch with nothing but the shape of a sample, or not even that."""

    def __init__(self, node: Node | None, memory: _Memory | None = None, why: str = "") -> None:
        self.node, self.why = node, why
        self._memory = memory or _Memory()
        self._version = self._memory.version

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        ANSWERED.get()[function] += 1
        kwargs = dict(kwargs or {})
        name = str(getattr(function, "__name__", function))
        value = args[0] if args else kwargs.pop("input", None)
        if function in (torch.cat, torch.concat):
            return _concatenate(value, *args[1:], **kwargs)
        if function in FUNCTIONS and isinstance(value, StandIn):
            return value._through(name, FUNCTIONS[function], args[1:], kwargs)
        if name in SHAPES and getattr(torch, name, None) is function:
            return _reshape(name, value, *args[1:], **kwargs)
        if name in _ARITHMETIC and getattr(torch, name, None) is function and not kwargs:
            return _ARITHMETIC[name](value, *args[1:])
        return unknown(f"torch's {name} is not supported", *args, *kwargs.values(), value)

    def __getattr__(self, name: str) -> Any:
        if name == "shape":
            return (BATCH, *self.known_shape())
        if name == "ndim":
            return 1 + len(self.known_shape())
        if name in ("size", "dim", *SHAPES, *_ARITHMETIC, *METHODS):
            return lambda *args, **kwargs: self._method(name, args, kwargs)
        if callable(getattr(Tensor, name, None)):
            why = f"the method {name} is not supported"
            return lambda *args, **kwargs: unknown(why, self, *args, *kwargs.values())
        raise LayerError(f"its forward reads .{name} of a tensor")

    def _method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "size":
            shape = (BATCH, *self.known_shape())
            return shape[args[0]] if args else shape
        if name == "dim":
            return 1 + len(self.known_shape())
        if name in SHAPES:
            return _reshape(name, self, *args, **kwargs)
        if name in _ARITHMETIC and not kwargs:
            return _ARITHMETIC[name](self, *args)
        if name in METHODS:
            return self._through(name, METHODS[name], args, kwargs)
        return unknown(f"this call of the method {name} is not supported", self, *args)

    def known_shape(self) -> tuple[int, ...]:
        if self.node is None:
            raise LayerError(self.why)
        return self.node.shape

    def current(self) -> StandIn:
        """The value itself, unless it was overwritten since."""
        if self.node is not None and self._version != self._memory.version:
            return unknown(f"the output of {self.node.what} is used after it was overwritten")
        return self

    def _through(
        self, name: str, make: Callable[..., nn.Module], args: Any, kwargs: dict[str, Any]
    ) -> StandIn:
        if not all(_is_plain(value) for value in (*args, *kwargs.values())):
            return unknown(f"{name} with these arguments is not supported", self, *args)
        try:
            with unwatched():
                module = make(*args, **kwargs).eval()
        except (TypeError, ValueError, AssertionError) as error:
            return unknown(f"{name} with these arguments is not supported: {error}", self)
        return self.step(name, module)

    def step(self, what: str, module: nn.Module) -> StandIn:
        """The output of a known module for this value."""
        value = self.current()
        if value.node is None:
            return value
        try:
            with unwatched():
                shape = shape_after(module, value.node.shape)
        except (RuntimeError, ValueError, IndexError, AssertionError, TypeError) as error:
            return unknown(f"{what} does not take samples of {value.node.shape}: {error}", self)
        node = Node(what, module, (value.node,), shape)
        if getattr(module, "inplace", False):
            self._memory.version += 1
        elif not isinstance(module, VIEWS):
            return StandIn(node)
        return StandIn(node, self._memory)

    def _refuse(self, *_: Any) -> NoReturn:
        raise LayerError(self.why or "its forward depends on the values or the length of a tensor")

    def _operator(symbol: str) -> Any:  # type: ignore[misc]  # noqa: N805
        why = f"the operator {symbol} is not supported"
        return lambda self, *others: unknown(why, self, *others)

    __bool__ = __len__ = __iter__ = __int__ = __float__ = __index__ = __contains__ = _refuse
    __setitem__ = __format__ = __str__ = __repr__ = __complex__ = __hash__ = _refuse
    __eq__, __ne__ = map(_operator, ("==", "!="))
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))
    __pow__, __rpow__, __matmul__, __rmatmul__ = map(_operator, ("**", "**", "@", "@"))
    __mod__, __floordiv__, __getitem__, __abs__ = map(_operator, ("%", "//", "[]", "abs"))
    __and__, __or__, __xor__, __invert__ = map(_operator, ("&", "|", "^", "~"))
    __rtruediv__, __rmod__, __rfloordiv__ = map(_operator, ("/", "%", "//"))
    __ipow__, __imatmul__, __imod__, __ifloordiv__ = map(_operator, ("**=", "@=", "%=", "//="))

    def __add__(self, other: Any) -> StandIn:
        if _is_number(other):
            return self.step(f"+ {other}", Scaled(1.0, other))
        if not isinstance(other, StandIn):
            return unknown("the sum with a tensor from elsewhere is not supported", self, other)
        left, right = self.current(), other.current()
        if left.node is None or right.node is None:
            return unknown("", left, right)
        shape, shapes = left.node.shape, f"{left.node.shape} and {right.node.shape}"
        if shape != right.node.shape:
            return unknown(f"adding shapes {shapes} is not supported", left, right)
        return StandIn(Node("the sum", "add", (left.node, right.node), shape))

    __radd__ = __add__

    def __sub__(self, other: Any) -> StandIn:
        if not _is_number(other):
            return unknown("the operator - between tensors is not supported", self, other)
        return StandIn.__add__(self, -other)

    def __rsub__(self, other: Any) -> StandIn:
        if not _is_number(other):
            return unknown("the operator - is not supported", self, other)
        return self.step(f"{other} - ", Scaled(-1.0, other))

    def __mul__(self, other: Any) -> StandIn:
        if not _is_number(other):
            return unknown("the operator * between tensors is not supported", self, other)
        return self.step(f"* {other}", Scaled(other, 0.0))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> StandIn:
        if not _is_number(other) or other == 0:
            return unknown("the operator / is not supported", self, other)
        return self.step(f"/ {other}", Scaled(1 / other, 0.0))

    def __neg__(self) -> StandIn:
        return self.step("-", Scaled(-1.0, 0.0))

    def _in_place(operate: Any) -> Any:  # noqa: N805
        """The operator that overwrites this value and its views with the result."""

        def overwrite(self: StandIn, other: Any) -> StandIn:
            result = operate(self, other)
            self._memory.version += 1
            return StandIn(result.node, self._memory, result.why)

        return overwrite

    __iadd__, __isub__ = _in_place(__add__), _in_place(__sub__)
    __imul__, __itruediv__ = _in_place(__mul__), _in_place(__truediv__)


def shape_after(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a float64 module's output for samples of a shape, one sample at a time."""
    if isinstance(module, Reshaped | Scaled):
        return module.shape if isinstance(module, Reshaped) else shape
    if isinstance(module, BATCH_NORMS) and (
        module.running_mean is None or module.running_var is None
    ):
        raise ValueError("without running statistics it mixes the samples of a batch")
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(3, *shape, dtype=torch.float64, generator=generator)
    output = _run(module, batch)
    alone = torch.cat([_run(module, batch[i : i + 1]) for i in range(3)])
    if output.shape != alone.shape or not torch.allclose(output, alone, 1e-7, 1e-9, equal_nan=True):
        raise ValueError("it mixes the samples of a batch")
    return tuple(output.shape[1:])


def _run(module: nn.Module, batch: Tensor) -> Tensor:
    output = type(module).forward(module, batch.clone())
    if not isinstance(output, Tensor) or output.shape[:1] != batch.shape[:1]:
        raise ValueError("it does not return one tensor with a row for each sample")
    return output


def unknown(why: str, *values: Any) -> StandIn:
    """An unknown value, made from these values, which may have been overwritten."""
    for value in values:
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, StandIn):
                why = part.why or why
                part._memory.version += 1
    return StandIn(None, None, why)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return type(value) in (int, float, bool, str, type(None), torch.Size)


def _concatenate(tensors: Any, dim: Any = 0, **others: Any) -> StandIn:
    values = [v.current() if isinstance(v, StandIn) else v for v in tensors]
    nodes = [v.node for v in values if isinstance(v, StandIn) and v.node is not None]
    if others or len(nodes) < len(values):
        return unknown("concatenation with something from elsewhere is not supported", values)
    found = shape_of_concatenation([node.shape for node in nodes], dim)
    if found is None:
        return unknown("concatenation along the batch is not supported", values)
    return StandIn(Node("the concatenation", found[0], tuple(nodes), found[1]))


def _reshape(name: str, value: StandIn, *args: Any, **kwargs: Any) -> StandIn:
    try:
        shape = SHAPES[name](value.known_shape(), *args, **kwargs)
    except TypeError:
        shape = None
    mixed = f"{name} that may mix samples is not supported"
    return unknown(mixed, value) if shape is None else value.step(name, Reshaped(shape))


_ARITHMETIC: dict[str, Callable[[Any, Any], StandIn]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}
