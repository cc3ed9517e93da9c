import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the figure needs matplotlib")

from benchmarks.matplotlib import draw_cost, spread_apart, to_png, to_svg
from benchmarks.records import CELLS


def test_each_contestant_is_a_line_with_its_name(results):
    left, right = draw_cost(results).axes
    for axes in (left, right):
        assert len(axes.lines) == 4  # all that the results have: FAISS is not among them
        names = {text.get_text() for text in axes.texts}
        assert names == {"iknow, cells", "iknow, dense", "bare products", "BallTree"}
    sizes = [line.get_xdata().tolist() for line in left.lines]
    assert sizes == [[1_000, 100_000]] * 4


def test_lines_show_the_best_times(results):
    (left, _) = draw_cost(results).axes
    expected = [results.find(f"rows {n}", "assertion", CELLS).best for n in ("1,000", "100,000")]
    assert left.lines[0].get_ydata().tolist() == pytest.approx(expected)


def test_both_panels_are_logarithmic_with_ticks_at_the_sizes(results):
    for axes, ticks in zip(draw_cost(results).axes, (["1k", "100k"], ["2", "128"]), strict=True):
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert [label.get_text() for label in axes.get_xticklabels()] == ticks


def test_pictures_are_files_and_always_the_same(results):
    first, again = ((to_png(draw_cost(results)), to_svg(draw_cost(results))) for _ in range(2))
    assert first[0].startswith(b"\x89PNG")
    assert b"<svg" in first[1]
    assert first == again


def test_labels_keep_their_order_and_their_distance():
    places = [0.5, 0.51, 0.1, 0.49, 0.9]
    moved = spread_apart(places, 0.05)
    assert np.argsort(moved).tolist() == np.argsort(places).tolist()
    assert np.diff(np.sort(moved)).min() > 0.05 - 1e-6
    assert moved[2] == pytest.approx(0.1)
    assert moved[4] == pytest.approx(0.9)
    assert spread_apart([0.1, 0.9], 0.05) == [0.1, 0.9]
    assert spread_apart([], 0.05) == []
