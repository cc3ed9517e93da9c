"""The benchmark of an index on disk runs from end to end, and compares its answers."""

import json

import pytest

from benchmarks import larger_than_memory

FEW = "--rows 3000 --features 9 --classes 3 --queries 20 --alone 2 --checked 5 --repeat 1"


@pytest.mark.slow
def test_a_small_run_writes_its_figures(tmp_path, monkeypatch, capsys):
    pytest.importorskip("resource")
    given = [
        *FEW.split(),
        "--block",
        "32",
        "--folder",
        str(tmp_path),
        "--out",
        str(tmp_path / "out.json"),
    ]
    monkeypatch.setattr("sys.argv", ["larger_than_memory", *given])
    larger_than_memory.main()
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]
    assert figures["rows"] == 3000
    assert figures["compared_with_float64"] == 5
    assert figures["products_off_by"] < 1e-2
    assert figures["peak_bytes"] > 0
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]  # the rows are gone
    assert "20 queries at once" in capsys.readouterr().err
