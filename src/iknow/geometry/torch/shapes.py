"""Shapes: the shape of a sample after its batch changes shape.

Each function takes the shape of a sample and the arguments of the torch function of the same name.
It returns the new shape of a sample, or None if samples might mix or merge with the batch axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from iknow.errors import LayerError

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
