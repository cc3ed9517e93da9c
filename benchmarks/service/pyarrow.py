"""Tables as bytes, and some that are traps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"
PARQUET = "application/vnd.apache.parquet"
NAMES = [f"p{i}" for i in range(64)]


def to_arrow(columns: Mapping[str, Any], *, stream: bool) -> bytes:
    return _write_arrow(pa.table(dict(columns)), stream=stream)


def to_parquet(columns: Mapping[str, Any], compression: str = "snappy") -> bytes:
    return _write_parquet(pa.table(dict(columns)), compression)


def parquet_bomb(n_rows: int) -> bytes:
    """A few kilobytes that unpack to 64 columns of the same number."""
    zeros = pa.array(np.zeros(n_rows))
    return _write_parquet(pa.Table.from_arrays([zeros] * 64, names=NAMES), "gzip")


def arrow_bombs() -> list[bytes]:
    """Small streams that announce, or unpack to, much more than they are."""
    zeros, text = pa.array(np.zeros(20_000)), pa.array(["x" * 100_000])
    coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(9_000, np.int8)), text)
    tables = [
        pa.table({"a": pa.nulls(10**9)}),
        pa.Table.from_arrays([zeros] * 64, names=NAMES),
        pa.table({"a": coded}),
    ]
    return [_write_arrow(each, stream=True, compression="zstd") for each in tables]


def strange_tables() -> list[tuple[bytes, str]]:
    """Tables of odd types and forms, each with its content type."""
    nested = pa.table({"a": [[1, 2], [3]], "b": [{"x": 1}, {"x": 2}]})
    tables = [
        nested,
        pa.table({"a": pa.array([], pa.float64())}),
        pa.table({}),
        pa.table({"a": pa.array([None, None], pa.null())}),
        pa.table({"a": pa.array([b"\xff\xfe", b""], pa.binary())}),
        pa.table({"a": pa.array([1, 2], pa.timestamp("us"))}),
        pa.table({"a": pa.array([1, 2], pa.decimal128(30))}),
        pa.table({"a": pa.array(["x", "y"]).dictionary_encode()}),
        pa.table({f"p{i}": pa.array([np.nan, np.inf, -1e308]) for i in range(64)}),
        pa.table({f"p{i}": pa.array([True, None]) for i in range(64)}),
        pa.table({f"p{i}": pa.array([2**63 - 1, None]) for i in range(64)}),
        pa.Table.from_arrays([pa.array([1.0])] * 64, names=["same"] * 64),
        pa.Table.from_arrays([pa.array([1.0])] * 64, names=[""] * 64),
        pa.table({"width": [1.0], "height": [2.0], "color": pa.array([None], pa.string())}),
        pa.table({"width": ["a"], "height": ["b"], "color": ["red"]}),
        pa.table({"width": [1.0], "height": [2.0], "color": [3.0]}),
    ]
    made = [(_write_arrow(each, stream=True), ARROW_STREAM) for each in tables]
    made += [(_write_arrow(each, stream=False), ARROW_FILE) for each in tables]
    return made + [(_write_parquet(each, "zstd"), PARQUET) for each in tables[1:]]


def _write_arrow(table: Any, *, stream: bool, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with make(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _write_parquet(table: Any, compression: str) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=compression)
    content: bytes = sink.getvalue().to_pybytes()
    return content
