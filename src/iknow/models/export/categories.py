"""Categories as the tree libraries take them: columns of labels in a data frame, as their numbers.

A label becomes its position in the list that the library learned, or in that of the data frame's
column if it learned none. Splits by sets of categories become columns of 0 and 1 that a tree can
compare. A category is a whole number. A split asks whether it is in a set; for each set we add a
column that holds 1 if it is and 0 if not, and the tree compares that with 1/2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from iknow.errors import ExportError
from iknow.models.export.encoders import find_codes
from iknow.models.export.onnx.builder import TEXT, Builder, Tensor
from iknow.models.export.onnx.inputs import Frame, as_numbers
from iknow.models.export.onnx.trees import Tree
from iknow.models.export.parts import Part

MOST = 2.0**31 - 1  # far above any category, and a whole number


def membership(b: Builder, column: Tensor, sets: Sequence[Collection[int]]) -> Tensor:
    """Whether a category is in each set, of shape (n, n_sets); what is missing is in none.

    column: numbers in double precision, of shape (n, 1), which are cut to whole ones.
    """
    size = 1 + max((max(each) for each in sets if len(each)), default=0)
    table = np.zeros((size + 1, len(sets)))
    for j, each in enumerate(sets):
        table[list(each), j] = 1.0
    is_missing = b.op("IsNaN", column, kind="bool")
    present = b.op("Where", is_missing, np.array(-1.0), column, kind="float64", width=1)
    whole = b.cast(b.op("Clip", present, np.array(-MOST), np.array(MOST)), "int64")
    outside = b.op(
        "Or",
        b.op("Less", whole, np.array(0), kind="bool"),
        b.op("GreaterOrEqual", whole, np.array(size), kind="bool"),
    )
    place = b.op("Where", outside, np.array(size), whole, kind="int64", width=1)
    flat = b.op("Reshape", place, np.array([-1]), width=None)
    return b.op("Gather", table, flat, kind="float64", width=len(sets), axis=0)


Sets = Mapping[int, tuple[int, ...]]


def as_codes(part: Part, known: Sequence[Any], unknown: float | None = None) -> Tensor:
    """All columns as numbers in double precision, categories by their positions.

    known: the labels of each column's categories, None for numbers; shorter if nothing is known of
    the last ones. unknown: what a label that is none of them becomes; None if it is refused.
    """
    b, value = part.b, part.value
    if not isinstance(value, Frame):
        return as_numbers(b, value)
    found = []
    for i, (column, dtype) in enumerate(
        zip(value.columns.values(), part.sample.dtypes, strict=True)
    ):
        labels = known[i] if i < len(known) else None
        if labels is None and hasattr(dtype, "categories"):
            labels = dtype.categories.tolist()
        if labels is None:
            if column.kind == TEXT:
                raise ExportError("a column of text without categories cannot become numbers")
            found.append(column)
        else:
            found.append(_code(b, column, labels, unknown))
    return b.concat(found)


def split_by_sets(
    b: Builder, x: Tensor, trees: Sequence[Tree], sets: Sequence[Sets], *, right: bool = True
) -> tuple[Tensor, list[Tree]]:
    """The columns with one more for each set of categories, and the trees that look at them.

    sets: by tree, the categories of each node that splits by them. right: whether these go to the
    right, and what is missing where the node says; else they go to the left and all others to the
    right.
    """
    wanted: dict[int, dict[tuple[int, ...], int]] = {}
    for tree, of_nodes in zip(trees, sets, strict=True):
        for node, members in of_nodes.items():
            of_feature = wanted.setdefault(int(tree.feature[node]), {})
            of_feature.setdefault(members, len(of_feature))
    if not wanted:
        return x, list(trees)
    parts, n = [x], x.width or 0
    places: dict[tuple[int, tuple[int, ...]], int] = {}
    for feature, members_of in wanted.items():
        column = b.columns(x, np.array([feature]))
        # lightgbm takes -0.5 for category 0; to the others it is none.
        whole = b.op("Floor", column) if right else column
        inside = membership(b, b.cast(whole, "float64"), list(members_of))
        parts.append(b.cast(_aligned(b, column, inside, right), x.kind))
        places |= {(feature, members): n + j for members, j in members_of.items()}
        n += len(members_of)
    redone = [_redo(*each, places) for each in zip(trees, sets, strict=True)]
    return b.concat(parts), redone


def _aligned(b: Builder, column: Tensor, inside: Tensor, right: bool) -> Tensor:
    if not right:
        return b.op("Sub", np.array(1.0), inside)
    gone = b.op("IsNaN", column, kind="bool")
    return b.op("Where", gone, np.array(np.nan), inside, kind="float64", width=inside.width)


def _redo(tree: Tree, sets: Sets, places: Mapping[tuple[int, tuple[int, ...]], int]) -> Tree:
    feature, threshold = np.array(tree.feature), np.array(tree.threshold)
    for node, members in sets.items():
        feature[node] = places[int(tree.feature[node]), members]
        threshold[node] = 0.5
    return replace(tree, feature=feature, threshold=threshold)


def _code(b: Builder, column: Tensor, labels: list[Any], unknown: float | None) -> Tensor:
    codes = find_codes(b, column, labels)
    if unknown is None:
        is_unknown = b.op("Equal", codes, np.array(len(labels)), kind="bool")
        if column.kind != TEXT:  # a missing number has no label and is taken
            flat = b.op("Reshape", b.op("IsNaN", column, kind="bool"), np.array([-1]), width=None)
            is_unknown = b.op("And", is_unknown, b.op("Not", flat))
        b.refuse(is_unknown)
    table = np.append(np.arange(len(labels), dtype=np.float64), np.nan)
    return b.op("Gather", table[:, None], codes, kind="float64", width=1, axis=0)
