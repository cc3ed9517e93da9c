"""The inner loops over cells in vector instructions, as numba intrinsics: see `vectors`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from iknow.search.cpu.numba.vectors import (
    CHAINS,
    QUERIES_AT_ONCE,
    add_product,
    data_of,
    load,
    new_intrinsic,
    smaller,
    smallest_lane,
    splat,
    store,
    sum_panel,
    term_offset,
)
from iknow.search.cpu.packed import LANES

_FLOAT: Any = ir.FloatType()
_INT: Any = ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)
LINE = 64  # bytes that a cache reads at once


@new_intrinsic
def bounds_for_six(
    typing_context: Any,
    panels: Any,
    start: Any,
    n_terms: Any,
    queries: Any,
    first_query: Any,
    lowest_only: Any,
    out: Any,
    out_start: Any,
    stride: Any,
) -> Any:
    """The bounds of one panel for each of a few queries, all of them or only the lowest.

    For i < QUERIES_AT_ONCE, out[out_start + i stride + slot] becomes what `scan_panel` computes; if
    `lowest_only`, out[out_start + i stride] the minimum over the slots. `queries` holds a group of
    queries, feature by feature, from `first_query` on.
    """
    signature = types.void(
        panels, types.int64, types.int64, queries, types.int64, types.boolean, out, types.int64,
        types.int64,
    )  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        panels, queries, out = (
            data_of(context, builder, signature, arguments, i) for i in (0, 3, 6)
        )
        _, start, n_terms, _, first_query, lowest_only, _, out_start, stride = arguments
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(QUERIES_AT_ONCE)]
        for total in sums:
            builder.store(load(builder, panels, start), total)
        with cgutils.for_range(builder, n_terms) as term:
            row = load(builder, panels, term_offset(builder, start, term.index))
            group = builder.add(first_query, builder.mul(term.index, _INT(QUERIES_AT_ONCE)))
            for i, total in enumerate(sums):
                number = builder.load(builder.gep(queries, [builder.add(group, _INT(i))]))
                add_product(builder, total, row, number)
        places = [builder.add(out_start, builder.mul(_INT(i), stride)) for i in range(len(sums))]
        with builder.if_else(lowest_only) as (lowest, every):
            with lowest:
                for place, total in zip(places, sums, strict=True):
                    low = smallest_lane(builder, builder.load(total))
                    builder.store(low, builder.gep(out, [place]))
            with every:
                for place, total in zip(places, sums, strict=True):
                    store(builder, builder.load(total), out, place)
        return context.get_dummy_value()

    return signature, generate


@new_intrinsic
def bounds_for_one(
    typing_context: Any,
    panels: Any,
    start: Any,
    n_panels: Any,
    n_terms: Any,
    queries: Any,
    query: Any,
    lowest_only: Any,
    out: Any,
    out_start: Any,
) -> Any:
    """The bounds of several panels for a single query, all of them or only the lowest of each.

    The i-th panel from `start` on has its bounds in out[out_start + i LANES ...]; if `lowest_only`,
    the minimum over its slots in out[out_start + i]. The query is a row of `queries`, a 2D array.
    """
    integers = [types.int64] * 3
    signature = types.void(panels, *integers, queries, types.int64, types.boolean, out, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        panels, queries, out = (
            data_of(context, builder, signature, arguments, i) for i in (0, 4, 7)
        )
        _, start, n_panels, n_terms, _, number, lowest_only, _, out_start = arguments
        shape = context.make_array(signature.args[4])(context, builder, arguments[4]).shape
        query = builder.gep(queries, [builder.mul(number, builder.extract_value(shape, 1))])
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(CHAINS)]
        size = builder.mul(builder.add(n_terms, _INT(1)), _INT(LANES))
        with cgutils.for_range(builder, n_panels) as panel:
            base = builder.add(start, builder.mul(panel.index, size))
            whole = sum_panel(builder, panels, base, n_terms, query, sums)
            with builder.if_else(lowest_only) as (lowest, every):
                with lowest:
                    place = builder.gep(out, [builder.add(out_start, panel.index)])
                    builder.store(smallest_lane(builder, whole), place)
                with every:
                    first = builder.add(out_start, builder.mul(panel.index, _INT(LANES)))
                    store(builder, whole, out, first)
        return context.get_dummy_value()

    return signature, generate


@new_intrinsic
def turn_into_distances(
    typing_context: Any, bounds: Any, start: Any, n: Any, offset: Any, radii: Any, first: Any,
    is_flat: Any,
) -> Any:  # fmt: skip
    """Replace bounds of cells by distances from them; returns the lowest.

    With b = bounds[start + i], it becomes √(2 max(b - offset, 0)) (1 - 2^-20) - radii[first + i],
    or the same without the radius if `is_flat`. n: how many, a multiple of LANES. Both arrays are
    flat.
    """
    integers = [types.int64] * 2
    signature = types.float32(bounds, *integers, types.float32, radii, types.int64, types.boolean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bounds, radii = (data_of(context, builder, signature, arguments, i) for i in (0, 4))
        _, start, n, offset, _, first, is_flat = arguments
        lowest = cgutils.alloca_once(builder, _VECTOR)
        builder.store(ir.Constant(_VECTOR, [float("inf")] * LANES), lowest)
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LANES}f32")
        zero, two = (ir.Constant(_VECTOR, [number] * LANES) for number in (0.0, 2.0))
        shrunk = ir.Constant(_VECTOR, [1 - 2.0**-20] * LANES)
        with cgutils.for_range(builder, builder.sdiv(n, _INT(LANES))) as each:
            at = builder.mul(each.index, _INT(LANES))
            place = builder.add(start, at)
            above = builder.fsub(load(builder, bounds, place), splat(builder, offset))
            above = builder.select(builder.fcmp_ordered(">", above, zero), above, zero)
            apart = builder.fmul(builder.call(root, [builder.fmul(above, two)]), shrunk)
            radius = load(builder, radii, builder.add(first, at))
            apart = builder.fsub(apart, builder.select(is_flat, zero, radius))
            store(builder, apart, bounds, place)
            builder.store(smaller(builder, apart, builder.load(lowest)), lowest)
        return smallest_lane(builder, builder.load(lowest))

    return signature, generate


@new_intrinsic
def lanes_within(typing_context: Any, values: Any, start: Any, limit: Any) -> Any:
    """A number whose bit i says that values[start + i] is not above a limit, for i < LANES."""
    signature = types.uint64(values, types.int64, types.float32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = data_of(context, builder, signature, arguments, 0)
        vector = load(builder, values, arguments[1])
        within = builder.fcmp_unordered("<=", vector, splat(builder, arguments[2]))
        return builder.zext(builder.bitcast(within, ir.IntType(LANES)), _INT)

    return signature, generate


@new_intrinsic
def prefetch(typing_context: Any, array: Any, start: Any, n_bytes: Any) -> Any:
    """Ask memory for n_bytes of an array from its element number `start` on, to use them soon."""
    signature = types.void(array, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        data = data_of(context, builder, signature, arguments, 0)
        first = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        lines = builder.sdiv(builder.add(arguments[2], _INT(LINE - 1)), _INT(LINE))
        with cgutils.for_range(builder, lines) as line:
            place = builder.gep(first, [builder.mul(line.index, _INT(LINE))])
            builder.call(ask, [place, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return signature, generate
