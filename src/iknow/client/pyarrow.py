"""pyarrow: a table as an Arrow stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from iknow.errors import InputError


def to_stream(table: Any) -> bytes:
    """A data frame or a table in Arrow's format, without its index.

    Raises:
        InputError: It has columns that Arrow has no type for.
    """
    try:
        if hasattr(table, "iloc"):  # of pandas
            found = pa.Table.from_pandas(table, preserve_index=False)
        else:
            found = pa.table(table)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, found.schema) as writer:
            writer.write_table(found)
    except Exception as error:  # columns of anything, or two of the same name
        raise InputError(f"this table cannot be sent: {error}") from error
    return bytes(sink.getvalue())
