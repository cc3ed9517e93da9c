"""Tables that tests read."""

from pathlib import Path

from iknow.tables import format_to_write, writing


def write_table(path, columns):
    """Write named columns, each of shape (n,), in the format of the ending."""
    with writing(Path(path), format_to_write(Path(path))) as write:
        write(columns)
