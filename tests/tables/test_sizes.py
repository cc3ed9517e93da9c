"""What a table unpacks to is told before it is unpacked: traps are small, and never sprung."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.errors import InputError
from iknow.tables.pyarrow.batches import open_arrow, open_parquet
from iknow.tables.pyarrow.messages import announced, as_stream
from iknow.tables.pyarrow.sizes import arrow_sizes, parquet_sizes

BODY = Path("the body")


def to_arrow(table, compression=None, make=pa.ipc.new_stream, rows=None):
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with make(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue().to_pybytes()


def to_parquet(table, **how):
    sink = BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


def last(sizes):
    return list(sizes)[-1]


@pytest.mark.parametrize("make", [pa.ipc.new_stream, pa.ipc.new_file])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@settings(max_examples=20)
@given(rows=st.integers(1, 300), chunk=st.integers(1, 100), zeros=st.booleans())
def test_batches_announce_what_they_unpack_to(make, compression, rows, chunk, zeros):
    rng = np.random.default_rng(0)
    numbers = np.zeros(rows) if zeros else rng.normal(size=rows)
    table = pa.table({"a": numbers, "b": [str(each) for each in numbers]})
    content = to_arrow(table, compression, make, chunk)
    found = list(announced(as_stream(content)))
    assert sum(each.rows for each in found) == rows
    with pa.ipc.open_stream(as_stream(content)) as reader:  # what Arrow itself made of it
        buffers = [
            buffer for batch in reader for column in batch.columns for buffer in column.buffers()
        ]
    taken = sum(buffer.size for buffer in buffers if buffer is not None)
    assert taken <= sum(each.n_bytes for each in found) <= taken + 64 * len(buffers)


def test_a_billion_rows_without_a_value_are_announced():
    content = to_arrow(pa.table({"a": pa.nulls(10**9)}))
    assert len(content) < 1000
    assert last(arrow_sizes(content, BODY)).rows == 10**9


def test_zeros_that_compress_to_nothing():
    zeros = pa.array(np.zeros(100_000))
    table = pa.Table.from_arrays([zeros] * 8, names=list("abcdefgh"))
    content = to_arrow(table, "zstd")
    assert len(content) < 20_000
    first = next(size for size in arrow_sizes(content, BODY) if size.rows)
    assert first.n_bytes >= 8 * 8 * 100_000


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_text_of_a_dictionary_counts_for_every_row(form):
    text = "x" * 100_000
    codes = pa.array(np.zeros(500, dtype=np.int8))
    table = pa.table({"a": pa.DictionaryArray.from_arrays(codes, pa.array([text]))})
    if form == "arrow":
        size = last(arrow_sizes(to_arrow(table), BODY))
    else:
        plain = table.cast(pa.schema({"a": pa.string()}))
        content = to_parquet(plain, dictionary_pagesize_limit=1 << 20)
        assert len(content) < 500_000
        size = last(parquet_sizes(content, BODY))
    assert size.rows == 500
    assert size.n_bytes >= 500 * len(text)


@pytest.mark.parametrize("column", [[[1, 2]], [{"x": 1}], [b"bytes"]])
def test_columns_that_no_model_takes_are_refused_unread(column):
    table = pa.table({"a": column})
    with pytest.raises(InputError, match="column 'a' of the body must hold numbers or text"):
        list(arrow_sizes(to_arrow(table), BODY))
    with pytest.raises(InputError, match="must hold numbers or text"):
        list(parquet_sizes(to_parquet(table), BODY))


def test_the_footer_of_a_file_is_not_used():
    content = to_arrow(pa.table({"a": [1.0, 2.0]}), make=pa.ipc.new_file)
    footless = content[:-12] + b"\xff" * 12
    assert last(arrow_sizes(footless, BODY)).rows == 2


@given(
    place=st.integers(0, 10_000),
    odd=st.sampled_from([b"\xff" * 8, b"\x00" * 4, b"\x7f" * 4]),
    compression=st.sampled_from([None, "lz4"]),
)
def test_damage_is_an_input_error(place, odd, compression):
    content = bytearray(to_arrow(pa.table({"a": [1.0, 2.0], "b": ["x", "y"]}), compression))
    place %= len(content)
    content[place : place + len(odd)] = odd
    try:
        for size in arrow_sizes(bytes(content), BODY):
            assert size.rows >= 0
            if size.rows > 1000 or size.n_bytes > 1 << 20:
                return  # too large: nobody would read on
    except InputError:
        pass


def test_texts_that_lie_outside_of_their_batch_are_refused():
    content = bytearray(to_arrow(pa.table({"a": ["some", "text"]})))
    place = content.index(np.array([0, 4, 8], dtype="<i4").tobytes())
    content[place + 8 : place + 12] = b"\xff\xff\xff\x7f"
    with (
        pytest.raises(InputError, match="the body cannot be read"),
        open_arrow(BytesIO(bytes(content)), BODY) as opened,
    ):
        list(opened.parts)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_names_that_are_no_text_are_refused(form):
    table = pa.table({"name": [1.0]})
    content = to_arrow(table) if form == "arrow" else to_parquet(table, store_schema=False)
    opener = open_arrow if form == "arrow" else open_parquet
    with (
        pytest.raises(InputError, match="the body cannot be read"),
        opener(BytesIO(content.replace(b"name", b"na\xecm")), BODY),
    ):
        pass
