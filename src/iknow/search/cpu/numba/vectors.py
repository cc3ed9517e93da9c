"""The two inner loops of search in vector instructions, as numba intrinsics.

Each docstring says what a loop in Python would compute. Written as LLVM operations, it uses the
widest instructions of the CPU and keeps its sums in registers, as no loop over arrays does.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from iknow.search.cpu.packed import LANES

QUERIES_AT_ONCE = 6
"""Queries per pass over a panel: 12 sums of 8 numbers and 3 operands fit AVX2's 16 registers."""
CHAINS = 4  # parallel sums for a single query, since each addition waits for the previous one

new_intrinsic: Any = intrinsic  # callers omit the first argument of its definition
_FLOAT = ir.FloatType()
_INT = ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


@new_intrinsic
def minimum_of_panels(
    typing_context: Any,
    panels: Any,
    start: Any,
    n_panels: Any,
    n_terms: Any,
    queries: Any,
    first_query: Any,
    out: Any,
    out_start: Any,
) -> Any:
    """The lowest bound of several panels for each of a few queries.

    For i < QUERIES_AT_ONCE, out[out_start + i] becomes the minimum, over n_panels panels from
    `start` on and over their slots, of panel[0, slot] + Σ_k panel[1 + k, slot] queries[k, i]. All
    arrays are flat; `queries` holds a group of queries, feature by feature, from `first_query` on.
    """
    signature = types.void(
        panels, types.int64, types.int64, types.int64, queries, types.int64, out, types.int64
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        panels, queries, out = (
            data_of(context, builder, signature, arguments, i) for i in (0, 4, 6)
        )
        _, start, n_panels, n_terms, _, first_query, _, out_start = arguments
        lowest = [cgutils.alloca_once(builder, _VECTOR) for _ in range(QUERIES_AT_ONCE)]
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(QUERIES_AT_ONCE)]
        for low in lowest:
            builder.store(ir.Constant(_VECTOR, [float("inf")] * LANES), low)
        size = builder.mul(builder.add(n_terms, _INT(1)), _INT(LANES))
        with cgutils.for_range(builder, n_panels) as panel:
            base = builder.add(start, builder.mul(panel.index, size))
            for total in sums:
                builder.store(load(builder, panels, base), total)
            with cgutils.for_range(builder, n_terms) as term:
                row = load(builder, panels, term_offset(builder, base, term.index))
                group = builder.add(first_query, builder.mul(term.index, _INT(QUERIES_AT_ONCE)))
                for i, total in enumerate(sums):
                    number = builder.load(builder.gep(queries, [builder.add(group, _INT(i))]))
                    add_product(builder, total, row, number)
            for low, total in zip(lowest, sums, strict=True):
                builder.store(smaller(builder, builder.load(total), builder.load(low)), low)
        for i, low in enumerate(lowest):
            place = builder.gep(out, [builder.add(out_start, _INT(i))])
            builder.store(smallest_lane(builder, builder.load(low)), place)
        return context.get_dummy_value()

    return signature, generate


@new_intrinsic
def scan_panel(
    typing_context: Any,
    panels: Any,
    start: Any,
    n_terms: Any,
    queries: Any,
    query: Any,
    limit: Any,
    out: Any,
) -> Any:
    """The bounds of one panel for one query, and which of them are within a limit.

    out[slot] becomes panel[0, slot] + Σ_k panel[1 + k, slot] q[k], where q is row number `query` of
    `queries`, a 2D array. Returns a number whose bit `slot` says that this is not above `limit`;
    NaN counts as not above it.
    """
    # The row is selected here, as numba would count references to a slice, at some cost.
    signature = types.uint64(
        panels, types.int64, types.int64, queries, types.int64, types.float32, out
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        panels, queries, out = (
            data_of(context, builder, signature, arguments, i) for i in (0, 3, 6)
        )
        _, start, n_terms, _, number, limit, _ = arguments
        shape = context.make_array(signature.args[3])(context, builder, arguments[3]).shape
        width = builder.extract_value(shape, 1)
        query = builder.gep(queries, [builder.mul(number, width)])
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(CHAINS)]
        whole = sum_panel(builder, panels, start, n_terms, query, sums)
        store(builder, whole, out, _INT(0))
        within = builder.fcmp_unordered("<=", whole, splat(builder, limit))
        bits = builder.bitcast(within, ir.IntType(LANES))
        return builder.zext(bits, _INT)

    return signature, generate


@new_intrinsic
def sum_of_eights(
    typing_context: Any, queries: Any, query: Any, points: Any, row: Any, start: Any, n: Any
) -> Any:
    """The sum of n squared differences from `start` on in float64, n a multiple of 8.

    Between row number `query` of `queries` and `row` of `points`, 2D arrays. Eight sums run side by
    side and are added in pairs: the order in which numpy adds up an array.
    """
    integers = [types.int64] * 2
    signature = types.float64(queries, types.int64, points, *integers, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, query, _, row, start, n = arguments
        rows = []
        for i, number in ((0, query), (2, row)):
            array = context.make_array(signature.args[i])(context, builder, arguments[i])
            width = builder.extract_value(array.shape, 1)
            first = builder.add(builder.mul(number, width), start)
            rows.append(builder.gep(array.data, [first]))
        floats, doubles = ir.VectorType(_FLOAT, 8), ir.VectorType(ir.DoubleType(), 8)
        total = cgutils.alloca_once(builder, doubles)
        builder.store(ir.Constant(doubles, [0.0] * 8), total)
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

    return signature, generate


@new_intrinsic
def lowest_bit(typing_context: Any, bits: Any) -> Any:
    """The position of the lowest set bit of a nonzero number."""
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return signature, generate


def sum_panel(builder: Any, panels: Any, start: Any, n_terms: Any, query: Any, sums: Any) -> Any:
    """The bounds of one panel for one query. sums: memory for `CHAINS` of them."""
    builder.store(load(builder, panels, start), sums[0])
    for total in sums[1:]:
        builder.store(ir.Constant(_VECTOR, [0.0] * LANES), total)

    def add_term(total: Any, term: Any) -> None:
        row = load(builder, panels, term_offset(builder, start, term))
        add_product(builder, total, row, builder.load(builder.gep(query, [term])))

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


def data_of(context: Any, builder: Any, signature: Any, arguments: Any, i: int) -> Any:
    """The address of an array's first element."""
    return context.make_array(signature.args[i])(context, builder, arguments[i]).data


def term_offset(builder: Any, base: Any, term: Any) -> Any:
    return builder.add(base, builder.mul(builder.add(term, _INT(1)), _INT(LANES)))


def load(builder: Any, array: Any, offset: Any) -> Any:
    loaded = builder.load(_vector_at(builder, array, offset))
    loaded.align = 4
    return loaded


def store(builder: Any, value: Any, array: Any, offset: Any) -> None:
    builder.store(value, _vector_at(builder, array, offset)).align = 4


def _vector_at(builder: Any, array: Any, offset: Any) -> Any:
    return builder.bitcast(builder.gep(array, [offset]), _VECTOR.as_pointer())


def splat(builder: Any, number: Any) -> Any:
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.IntType(32)(0))
    return _shuffle(builder, first, [0] * LANES)


def _shuffle(builder: Any, vector: Any, lanes: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def add_product(builder: Any, total: Any, row: Any, number: Any) -> None:
    """Total += row * number, with a single rounding if the CPU can."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    terms = [row, splat(builder, number), builder.load(total)]
    builder.store(builder.call(multiply_add, terms), total)


def smaller(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", one, other), one, other)


def smallest_lane(builder: Any, vector: Any) -> Any:
    width = LANES
    while width > 1:
        width //= 2
        low = _shuffle(builder, vector, list(range(width)))
        high = _shuffle(builder, vector, list(range(width, 2 * width)))
        vector = smaller(builder, low, high)
    return builder.extract_element(vector, ir.IntType(32)(0))
