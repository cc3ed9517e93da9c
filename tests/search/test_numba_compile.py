"""What is compiled is kept, by the content of its sources, or not kept where there is no place."""

import subprocess
import sys

import pytest

pytest.importorskip("numba")

PROGRAM = """
import numpy as np
from iknow.search.numba_measure import measure
points = np.array([[3, 4]], dtype=np.float32)
assert measure(np.zeros((1, 2), dtype=np.float32), 0, points, 0) == 5
print(sum(measure.stats.cache_hits.values()), sum(measure.stats.cache_misses.values()))
"""


def run(monkeypatch, home):
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    return found.stdout.split()


def test_a_second_process_reads_what_the_first_compiled(monkeypatch, tmp_path):
    assert run(monkeypatch, tmp_path) == ["0", "1"]
    assert run(monkeypatch, tmp_path) == ["1", "0"]
    (folder,) = (tmp_path / "iknow").iterdir()
    assert folder.name.startswith("compiled-")


def test_the_folder_changes_with_any_of_the_sources(monkeypatch, tmp_path):
    from iknow.search import numba_compile

    before = numba_compile._name_folder()
    for name in ("numba_compile.py", "other.py"):
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(numba_compile, "__file__", str(tmp_path / "numba_compile.py"))
    one = numba_compile._name_folder()
    (tmp_path / "other.py").write_text("x = 2\n")
    assert len({before, one, numba_compile._name_folder()}) == 3


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(monkeypatch):
    import numba

    from iknow.search import numba_compile

    asked = []

    def njit(function, **options):
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(numba, "njit", njit)
    before = numba.config.CACHE_DIR
    assert numba_compile.compiled(len) is len
    assert asked == [True, False]
    assert before == numba.config.CACHE_DIR
