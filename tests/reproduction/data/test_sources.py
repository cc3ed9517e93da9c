"""The sources: what is published at their addresses, in its published form, gives the files."""

import os
import zipfile
from pathlib import Path

import pytest

from reproduction.data import sources
from reproduction.data.files import find_files

real = pytest.mark.skipif(not os.environ.get("IKNOW_DATA"), reason="IKNOW_DATA names no folder")


def published_form(path):
    """A member of a zip archive for a table, in scientific notation for series; else the file."""
    content = path.read_bytes()
    if path.suffix == ".tsv":
        rows = [map(float, line.split()) for line in content.decode().splitlines()]
        text = "".join("  " + "  ".join(f"{value:.7e}" for value in row) + "\n" for row in rows)
        return f"{path.stem}.txt", text.encode()
    return path.name, content


@real
@pytest.mark.parametrize(
    "name",
    [
        "MNIST_TRAIN_IMAGES",
        "MNIST_TRAIN_LABELS",
        "MNIST_TEST_IMAGES",
        "MNIST_TEST_LABELS",
        "GRID_STABILITY",
        "ITALY_POWER_DEMAND",
        "SYNTHETIC_CONTROL",
    ],
)
def test_what_is_published_gives_the_files(name, tmp_path, monkeypatch):
    source = getattr(sources, name)
    originals = [Path(os.environ["IKNOW_DATA"]) / file.name for file in source.files]
    asked = []

    def fetch(self, url, output_file, pooch):
        asked.append(url)
        members = [published_form(path) for path in originals]
        if not url.endswith(".zip"):
            Path(output_file).write_bytes(members[0][1])
            return
        with zipfile.ZipFile(output_file, "w") as archive:
            for member in members:
                archive.writestr(*member)

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", fetch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("IKNOW_DATA")
    made = find_files(source)
    assert [path.read_bytes() for path in made] == [path.read_bytes() for path in originals]
    assert [path.stat().st_size for path in made] == [file.size for file in source.files]
    assert asked == [source.downloads[0].urls[0]]
