"""The inner loops of search in vector instructions, as numba intrinsics.

Each docstring says what a loop in Python would compute. Written as LLVM operations, it uses the
widest instructions of the CPU and keeps its sums in registers, as no loop over arrays does. Rows
and balls lie in panels of 16 (see `products` and `tree`): a vector of 16 constants, then one of
16 numbers for each term.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
"""Rows in a panel: one or two registers on any current CPU."""
QUERIES_AT_ONCE = 6
"""Queries per pass over a panel: 12 sums of 8 numbers and 3 operands fit AVX2's 16 registers."""
CHAINS = 4  # parallel sums for a single query, since each addition waits for the previous one
LINE = 64  # bytes that a cache reads at once

_FLOAT = ir.FloatType()
_INT = ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _written(result: Any, whole: Any = types.int64) -> Callable[[Any], Any]:
    """Make an intrinsic of a function that writes its operations, given a builder and arguments.

    result: the type it returns. Arrays come as they are, with their data and shape, floats as
    float32, and whole numbers as the type `whole`.
    """

    def make(write: Any) -> Any:
        @functools.wraps(write)  # with its signature, which numba reads
        def define(typing_context: Any, *given: Any) -> Any:
            number = {True: types.float32, False: whole}
            kinds = [
                kind if isinstance(kind, types.Array) else number[isinstance(kind, types.Float)]
                for kind in given
            ]

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                values = list(arguments)
                for i, kind in enumerate(kinds):
                    if isinstance(kind, types.Array):
                        values[i] = context.make_array(kind)(context, builder, values[i])
                returned = write(builder, *values)
                return context.get_dummy_value() if returned is None else returned

            return result(*kinds), generate

        return intrinsic(define)

    return make


@_written(types.void)
def minima_for_six(
    builder: Any, panels: Any, start: Any, n_panels: Any, n_terms: Any, queries: Any,
    first_query: Any, out: Any, out_start: Any, stride: Any,
) -> None:  # fmt: skip
    """The lowest bound of several panels for each of a few queries.

    For i < QUERIES_AT_ONCE, out[out_start + i stride] becomes the minimum, over n_panels panels
    from `start` on and over their slots, of panel[0, slot] + Σ_k panel[1 + k, slot] queries[k, i].
    All arrays are flat; `queries` holds a group of queries, feature by feature, from `first_query`
    on.
    """
    highest = _constant(float("inf"))
    lowest = [cgutils.alloca_once_value(builder, highest) for _ in range(QUERIES_AT_ONCE)]
    size = builder.mul(builder.add(n_terms, _INT(1)), _INT(LANES))
    with cgutils.for_range(builder, n_panels) as panel:
        base = builder.add(start, builder.mul(panel.index, size))
        sums = _sums_for_six(builder, panels, base, n_terms, queries, first_query)
        for low, total in zip(lowest, sums, strict=True):
            builder.store(_smaller(builder, builder.load(total), builder.load(low)), low)
    for i, low in enumerate(lowest):
        place = builder.add(out_start, builder.mul(_INT(i), stride))
        builder.store(_smallest_lane(builder, builder.load(low)), builder.gep(out.data, [place]))


@_written(types.void)
def balls_for_six(
    builder: Any, nodes: Any, start: Any, n_terms: Any, queries: Any, first_query: Any,
    offsets: Any, first: Any, out: Any, out_start: Any, stride: Any,
) -> None:  # fmt: skip
    """The distances of each of a few queries from the 16 balls of a panel, as in `scan_balls`.

    For i < QUERIES_AT_ONCE and each slot, in out[out_start + i stride + slot]; the offset of the
    i-th is offsets[first + i], and `queries` are those of `minima_for_six`.
    """
    radii = _load(builder, nodes, _term_offset(builder, start, n_terms))
    for i, total in enumerate(_sums_for_six(builder, nodes, start, n_terms, queries, first_query)):
        offset = builder.load(builder.gep(offsets.data, [builder.add(first, _INT(i))]))
        place = builder.add(out_start, builder.mul(_INT(i), stride))
        _store(builder, _apart(builder, builder.load(total), offset, radii), out, place)


@_written(types.void)
def coarse_minima(
    builder: Any, coarse: Any, n_pairs: Any, numbers: Any, unit: Any, margin: Any, panels: Any,
    size: Any, n_panels: Any, out: Any, out_start: Any,
) -> None:  # fmt: skip
    """The lowest bound of each panel for a single query, from integers: see `Coarse`.

    With I the sum of products of a slot's integers with `numbers`, out[out_start + i] becomes the
    minimum over the slots of panels[i size + slot] + unit I, minus a margin.
    """
    wide, sums = ir.VectorType(ir.IntType(32), 2 * LANES), ir.VectorType(ir.IntType(32), LANES)
    short = ir.VectorType(ir.IntType(16), 2 * LANES)
    given = builder.bitcast(numbers.data, ir.IntType(32).as_pointer())
    with cgutils.for_range(builder, n_panels) as panel:
        first = builder.mul(builder.mul(panel.index, n_pairs), _INT(2 * LANES))
        total = cgutils.alloca_once_value(builder, ir.Constant(sums, [0] * LANES))
        with cgutils.for_range(builder, n_pairs) as pair:
            place = builder.add(first, builder.mul(pair.index, _INT(2 * LANES)))
            kind = ir.VectorType(ir.IntType(8), 2 * LANES).as_pointer()
            row = builder.load(builder.bitcast(builder.gep(coarse.data, [place]), kind))
            row.align = 1
            both = _splat(builder, builder.load(builder.gep(given, [pair.index])), sums)
            # One instruction multiplies 32 of these and adds them in pairs.
            products = builder.mul(
                builder.sext(row, wide), builder.sext(builder.bitcast(both, short), wide)
            )
            even, odd = (_shuffle(builder, products, list(range(i, 2 * LANES, 2))) for i in (0, 1))
            builder.store(builder.add(builder.load(total), builder.add(even, odd)), total)
        whole = builder.fmul(builder.sitofp(builder.load(total), _VECTOR), _splat(builder, unit))
        whole = builder.fadd(whole, _load(builder, panels, builder.mul(panel.index, size)))
        lowest = builder.fsub(_smallest_lane(builder, whole), margin)
        builder.store(lowest, builder.gep(out.data, [builder.add(out_start, panel.index)]))


@_written(types.uint64)
def scan_panel(
    builder: Any, panels: Any, start: Any, n_terms: Any, queries: Any, query: Any, limit: Any,
    out: Any,
) -> Any:  # fmt: skip
    """The bounds of one panel for one query, and which of them are within a limit.

    out[slot] becomes panel[0, slot] + Σ_k panel[1 + k, slot] q[k], where q is row number `query` of
    `queries`, a 2D array. Returns a number whose bit `slot` says that this is not above `limit`, a
    float32; NaN counts as not above it.
    """
    # The row is selected here, as numba would count references to a slice, at some cost.
    whole = _sum_panel(builder, panels, start, n_terms, queries, query)
    _store(builder, whole, out, _INT(0))
    return _bits_within(builder, whole, limit)


@_written(types.uint64)
def scan_balls(
    builder: Any, nodes: Any, start: Any, n_terms: Any, queries: Any, query: Any, offset: Any,
    limit: Any, out: Any,
) -> Any:  # fmt: skip
    """The distances of one query from the 16 balls of a panel, and which are within a limit.

    With b what `scan_panel` computes, out[slot] becomes √(2 max(b - offset, 0)) (1 - 2^-20) - R,
    where the radii R follow the terms of the panel. Returns bits as `scan_panel` does.
    """
    whole = _sum_panel(builder, nodes, start, n_terms, queries, query)
    radii = _load(builder, nodes, _term_offset(builder, start, n_terms))
    apart = _apart(builder, whole, offset, radii)
    _store(builder, apart, out, _INT(0))
    return _bits_within(builder, apart, limit)


@_written(types.uint64)
def lanes_within(builder: Any, values: Any, start: Any, limit: Any) -> Any:
    """A number whose bit i says that values[start + i] is not above a limit, for i < LANES."""
    return _bits_within(builder, _load(builder, values, start), limit)


@_written(types.float32)
def lowest_of(builder: Any, values: Any, start: Any, n: Any) -> Any:
    """The lowest of n numbers from values[start] on, inf if n is 0; a whole vector may be read."""
    low = cgutils.alloca_once_value(builder, _constant(float("inf")))
    kind = ir.VectorType(_INT, LANES)
    lanes = ir.Constant(kind, list(range(LANES)))
    with cgutils.for_range(
        builder, builder.sdiv(builder.add(n, _INT(LANES - 1)), _INT(LANES))
    ) as each:
        done = builder.mul(each.index, _INT(LANES))
        left = _splat(builder, builder.sub(n, done), kind)
        some = _load(builder, values, builder.add(start, done))
        there = builder.and_(
            builder.icmp_signed("<", lanes, left),
            builder.fcmp_ordered("<", some, builder.load(low)),
        )
        builder.store(builder.select(there, some, builder.load(low)), low)
    return _smallest_lane(builder, builder.load(low))


@_written(types.float64)
def sum_of_eights(
    builder: Any, queries: Any, query: Any, points: Any, row: Any, start: Any, n: Any
) -> Any:
    """The sum of n squared differences from `start` on in float64, n a multiple of 8.

    Between row number `query` of `queries` and `row` of `points`, 2D arrays. Eight sums run side by
    side and are added in pairs: the order in which numpy adds up an array.
    """
    rows = [builder.gep(_row_of(builder, *of), [start]) for of in ((queries, query), (points, row))]
    floats, doubles = ir.VectorType(_FLOAT, 8), ir.VectorType(ir.DoubleType(), 8)
    total = cgutils.alloca_once_value(builder, ir.Constant(doubles, [0.0] * 8))
    with cgutils.for_range(builder, builder.sdiv(n, _INT(8))) as each:
        values = []
        for data in rows:
            place = builder.gep(data, [builder.mul(each.index, _INT(8))])
            loaded = builder.load(builder.bitcast(place, floats.as_pointer()))
            loaded.align = 4
            values.append(builder.fpext(loaded, doubles))
        difference = builder.fsub(values[1], values[0])
        squared = builder.fmul(difference, difference)
        builder.store(builder.fadd(builder.load(total), squared), total)
    sums = builder.load(total)
    parts = [builder.extract_element(sums, ir.IntType(32)(i)) for i in range(8)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [builder.fadd(one, other) for one, other in pairs]
    return parts[0]


@_written(types.int64, types.uint64)
def lowest_bit(builder: Any, bits: Any) -> Any:
    """The position of the lowest set bit of a nonzero number."""
    return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))


@_written(types.void)
def prefetch(builder: Any, array: Any, start: Any, n_bytes: Any) -> None:
    """Ask memory for n_bytes of an array from its element number `start` on, to use them soon."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    first = builder.bitcast(builder.gep(array.data, [start]), byte)
    lines = builder.sdiv(builder.add(n_bytes, _INT(LINE - 1)), _INT(LINE))
    with cgutils.for_range(builder, lines) as line:
        place = builder.gep(first, [builder.mul(line.index, _INT(LINE))])
        builder.call(ask, [place, flag(0), flag(3), flag(1)])


def _sums_for_six(
    builder: Any, panels: Any, base: Any, n_terms: Any, queries: Any, first_query: Any
) -> Any:
    """Where the bounds of one panel are for each of a few queries."""
    first = _load(builder, panels, base)
    sums = [cgutils.alloca_once_value(builder, first) for _ in range(QUERIES_AT_ONCE)]
    with cgutils.for_range(builder, n_terms) as term:
        row = _load(builder, panels, _term_offset(builder, base, term.index))
        group = builder.add(first_query, builder.mul(term.index, _INT(QUERIES_AT_ONCE)))
        for i, total in enumerate(sums):
            number = builder.load(builder.gep(queries.data, [builder.add(group, _INT(i))]))
            _add_product(builder, total, row, number)
    return sums


def _apart(builder: Any, whole: Any, offset: Any, radii: Any) -> Any:
    """The distances of balls from the bounds of their centers, as `scan_balls` says."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR])
    root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LANES}f32")
    zero, above = _constant(0.0), builder.fsub(whole, _splat(builder, offset))
    above = builder.select(builder.fcmp_ordered(">", above, zero), above, zero)
    apart = builder.call(root, [builder.fmul(above, _constant(2.0))])
    return builder.fsub(builder.fmul(apart, _constant(1 - 2.0**-20)), radii)


def _sum_panel(
    builder: Any, panels: Any, start: Any, n_terms: Any, queries: Any, query: Any
) -> Any:
    """The bounds of one panel for one query, a row of `queries`."""
    given = _row_of(builder, queries, query)
    begin = [_load(builder, panels, start), *[_constant(0.0)] * (CHAINS - 1)]
    sums = [cgutils.alloca_once_value(builder, each) for each in begin]

    def add_term(total: Any, term: Any) -> None:
        row = _load(builder, panels, _term_offset(builder, start, term))
        _add_product(builder, total, row, builder.load(builder.gep(given, [term])))

    rounds = builder.sdiv(n_terms, _INT(CHAINS))
    done = builder.mul(rounds, _INT(CHAINS))
    with cgutils.for_range(builder, rounds) as each:
        first = builder.mul(each.index, _INT(CHAINS))
        for i, total in enumerate(sums):
            add_term(total, builder.add(first, _INT(i)))
    with cgutils.for_range(builder, builder.sub(n_terms, done)) as each:
        add_term(sums[0], builder.add(done, each.index))
    return builder.fadd(
        builder.fadd(builder.load(sums[0]), builder.load(sums[1])),
        builder.fadd(builder.load(sums[2]), builder.load(sums[3])),
    )


def _row_of(builder: Any, array: Any, number: Any) -> Any:
    """The address of a row of a 2D array."""
    return builder.gep(array.data, [builder.mul(number, builder.extract_value(array.shape, 1))])


def _term_offset(builder: Any, base: Any, term: Any) -> Any:
    return builder.add(base, builder.mul(builder.add(term, _INT(1)), _INT(LANES)))


def _load(builder: Any, array: Any, offset: Any) -> Any:
    loaded = builder.load(_vector_at(builder, array, offset))
    loaded.align = 4
    return loaded


def _store(builder: Any, value: Any, array: Any, offset: Any) -> None:
    builder.store(value, _vector_at(builder, array, offset)).align = 4


def _vector_at(builder: Any, array: Any, offset: Any) -> Any:
    return builder.bitcast(builder.gep(array.data, [offset]), _VECTOR.as_pointer())


def _constant(number: float) -> Any:
    return ir.Constant(_VECTOR, [number] * LANES)


def _splat(builder: Any, number: Any, kind: Any = _VECTOR) -> Any:
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.IntType(32)(0))
    return _shuffle(builder, first, [0] * LANES)


def _shuffle(builder: Any, vector: Any, lanes: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _add_product(builder: Any, total: Any, row: Any, number: Any) -> None:
    """Total += row * number, with a single rounding if the CPU can."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    terms = [row, _splat(builder, number), builder.load(total)]
    builder.store(builder.call(multiply_add, terms), total)


def _bits_within(builder: Any, vector: Any, limit: Any) -> Any:
    """A bit for each lane that is not above a limit; NaN is not."""
    within = builder.fcmp_unordered("<=", vector, _splat(builder, limit))
    return builder.zext(builder.bitcast(within, ir.IntType(LANES)), _INT)


def _smaller(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", one, other), one, other)


def _smallest_lane(builder: Any, vector: Any) -> Any:
    width = LANES
    while width > 1:
        width //= 2
        low = _shuffle(builder, vector, list(range(width)))
        high = _shuffle(builder, vector, list(range(width, 2 * width)))
        vector = _smaller(builder, low, high)
    return builder.extract_element(vector, ir.IntType(32)(0))
