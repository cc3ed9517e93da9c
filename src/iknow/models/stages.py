"""Stages: where the middle stages of a deep network end, by the shapes of what it computes.

Of a network for pictures or series a stage ends before each change of resolution. Of one over
tokens it is one of its blocks, which keep the shape. In a graph a block is a pattern of steps that
repeats between the tensors that all of a sample goes through: those after which nothing made before
is used any more, such as the sum that ends a residual block. The last stage ends where the last
hidden layer begins, so it is no middle stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

MOST_STAGES = 3
LONGEST_BLOCK = 12  # stretches between tensors that all goes through


class Step(NamedTuple):
    """A step of a graph, and the tensors that it uses and makes."""

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    has_weights: bool


def some_stages(stages: Sequence[str]) -> list[str]:
    """At most `MOST_STAGES` of them, evenly spaced, the first and the last included."""
    places = np.linspace(0, len(stages) - 1, min(len(stages), MOST_STAGES)).round()
    return [stages[place] for place in places.astype(int).tolist()]


def stages_by_resolution(sizes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The last names before each change of resolution, but for the last; what has a single place,
    as after pooling, is no stage.

    sizes: how many places there are along each axis, by name, in computing order.
    """
    ends = {size: name for name, size in sizes.items()}
    stages = [name for size, name in ends.items() if set(size) != {1}]
    return stages if len(stages) < len(ends) else stages[:-1]


def stages_by_blocks(
    steps: Sequence[Step], shapes: Mapping[str, tuple[int, int]], scores: str
) -> list[str]:
    """The tensors that blocks over tokens return, but for the last; nothing without two blocks.

    steps: in computing order. shapes: of the tensors with a vector for each token, (tokens,
    features).
    """
    best, found = (0, 0, 0), list[str]()
    for shape in dict.fromkeys(shapes.values()):
        names = {name for name, each in shapes.items() if each == shape}
        start = next(name for name in shapes if name in names)
        between, ends = _segments(steps, start, scores, names)
        kinds = [hash(tuple(sorted(step.kind for step in segment))) for segment in between]
        weighs = [any(step.has_weights for step in segment) for segment in between]
        for period in range(1, min(len(kinds) // 2, LONGEST_BLOCK) + 1):
            for first in range(len(kinds) - 2 * period + 1):
                block, n = kinds[first : first + period], 1
                while kinds[first + n * period :][:period] == block:
                    n += 1
                # Exporters may simplify how the first block begins, so the last ones tell.
                rank = n * period, -period, first
                if n > 1 and rank > best and any(weighs[first : first + period]):
                    best, found = rank, ends[first + period - 1 :: period][: n - 1]
                    if 1 < period <= first + 1 and kinds[first - period + 1 : first] == block[1:]:
                        found = [ends[first - 1], *found]
    return found


def _segments(
    steps: Sequence[Step], start: str, scores: str, names: set[str]
) -> tuple[list[list[Step]], list[str]]:
    """The steps between the tensors that all on the way from `start` to the scores goes through,
    of those with these names, and the tensors, each after its steps.
    """
    after, before = {start}, {scores}
    for step in steps:
        if not after.isdisjoint(step.inputs):
            after.update(step.outputs)
    for step in reversed(steps):
        if not before.isdisjoint(step.outputs):
            before.update(step.inputs)
    way = after & before
    inside = [s for s in steps if not (way.isdisjoint(s.inputs) or way.isdisjoint(s.outputs))]
    last_use = {name: i for i, step in enumerate(inside) for name in step.inputs}
    used_until, segment = last_use.get(start, -1), list[Step]()
    between, ends = list[list[Step]](), list[str]()
    for i, step in enumerate(inside):
        made = [name for name in step.outputs if name in way]
        segment.append(step)
        if used_until <= i and len(made) == 1 and made[0] in names:
            between.append(segment)
            ends.append(made[0])
            segment = []
        used_until = max(used_until, *(last_use.get(name, i) for name in made))
    return between, ends
