"""Reading and writing the data files of the command line, whole or in parts.

The ending of a file says its format: `.csv`, `.jsonl`, `.parquet` and `.arrow` hold named columns,
`.npz` named arrays, `.npy` one array. All formats become the same record; an `InputError` names the
file and the place of what cannot be used. Nothing that is read can execute code. Files of named
columns need pyarrow, the extra `tables`.
"""

from iknow.tables.reading import format_to_read, format_to_write, read_table, reading
from iknow.tables.table import DataTable, Roles
from iknow.tables.writing import writing

__all__ = [
    "DataTable",
    "Roles",
    "format_to_read",
    "format_to_write",
    "read_table",
    "reading",
    "writing",
]
