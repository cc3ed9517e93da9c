"""The figures: what is in the pictures is what is in the records, and files are written safely."""

import struct
import subprocess
import sys
import zlib

import matplotlib
import numpy as np
import pytest
from matplotlib.patches import Circle
from matplotlib.text import Text

from iknow import Assertion
from iknow.cards import COLORS
from iknow.errors import InputError
from iknow.evaluation.plots import STYLE
from reproduction.figures import matplotlib as drawing
from reproduction.figures import toy
from reproduction.figures.pictures import make_figures

NAMES = ["regions", "supports", "radius", "confusion", "noise", "signs"]


def make_signs(n_groups=8, m=3):
    images = np.random.default_rng(0).integers(256, size=(n_groups, m, 32, 32, 3), dtype=np.uint8)
    return images, [f"group {i}" for i in range(n_groups)]


def read_png(content):
    """Width, height and names of the chunks; every checksum is verified."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        name, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack(">I", content[at + 8 + length : at + 12 + length])
        assert zlib.crc32(name + data) == checksum
        chunks[name] = data
        at += 12 + length
    return *struct.unpack(">II", chunks[b"IHDR"][:8]), set(chunks)


def texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.slow
def test_make_figures_writes_every_picture_and_nothing_else(tmp_path):
    out = tmp_path / "new" / "folder"
    paths = make_figures(out, quick=True, signs=make_signs(m=10))
    assert paths == [out / f"{name}.png" for name in NAMES]
    assert sorted(out.iterdir()) == sorted(paths)
    for path in paths:
        width, height, chunks = read_png(path.read_bytes())
        assert 900 <= width <= 1600
        assert 600 <= height <= 1600
        assert chunks <= {b"IHDR", b"pHYs", b"IDAT", b"IEND"}  # no text: no date, no version


@pytest.mark.slow  # it draws all of them three times
def test_the_same_seed_gives_the_same_bytes_whatever_the_user_s_settings(tmp_path):
    first = make_figures(tmp_path / "first", seed=1, quick=True)
    mine = {"axes.facecolor": "black", "font.size": 30, "savefig.dpi": 20, "savefig.bbox": "tight"}
    with matplotlib.rc_context(mine):
        before = {name: matplotlib.rcParams[name] for name in {**mine, **STYLE}}
        again = make_figures(tmp_path / "again", seed=1, quick=True)
        after = {name: matplotlib.rcParams[name] for name in {**mine, **STYLE}}
    assert after == before
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    other = make_figures(tmp_path / "other", seed=2, quick=True)
    assert all(a.read_bytes() != b.read_bytes() for a, b in zip(first, other, strict=True))
    assert "signs.png" not in {path.name for path in first}


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(InputError, match="file is a file"):
        make_figures(path, quick=True)
    assert path.read_text() == "mine"


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_without_matplotlib_the_error_names_the_extra(run_without):
    code = """
from iknow.errors import MissingExtraError
from reproduction.figures.pictures import make_figures
try:
    make_figures("never-written")
except MissingExtraError as error:
    print(error)
"""
    assert "pip install 'iknow[plots]'" in run_without(["matplotlib"], code)


@pytest.mark.slow
def test_drawing_is_loaded_late_and_pyplot_never():
    code = """
import sys
import reproduction.figures, reproduction.figures.toy
print("matplotlib" in sys.modules)
from reproduction.figures import matplotlib as drawing
drawing.to_png(drawing.draw_supports(reproduction.figures.toy.make_supports()))
print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""
    assert run(code).stdout.split() == ["False", "True", "False"]


def test_regions_are_named_and_coloured_as_computed():
    regions = toy.make_regions(n_cells=60)
    (axes,) = drawing.draw_regions(regions).axes
    assert texts(axes) == [
        "IDK",
        "IMK",
        "IK0",
        "IK1",
        "x = (2, 2): belief 1, support {0, 1} → IMK",
        "x = (8, 0): belief 1, support {1} → IK",
    ]
    (image,) = axes.images
    shown = image.get_array()
    assert image.origin == "lower"
    assert image.get_extent() == [regions.x[0], regions.x[-1], regions.y[0], regions.y[-1]]
    for code, (assertion, belief) in enumerate([(0, None), (1, None), (2, 0), (2, 1)]):
        expected = (regions.assertion == assertion) & (
            True if belief is None else regions.belief == belief
        )
        np.testing.assert_array_equal(shown == code, expected)
        x, y = axes.texts[code].get_position()
        at = np.abs(regions.y - y).argmin(), np.abs(regions.x - x).argmin()
        assert expected[at]  # the name lies in its region
    assert sum(len(dots.get_offsets()) for dots in axes.collections) == len(regions.points)


def test_supports_are_circles_with_their_neighbours_and_words():
    supports = toy.make_supports()
    figure = drawing.draw_supports(supports)
    (axes,) = figure.axes
    circles = [patch for patch in axes.patches if isinstance(patch, Circle)]
    assert [circle.get_radius() for circle in circles] == [supports.radius] * 3
    assert [circle.center for circle in circles] == [tuple(q.point) for q in supports.queries]
    assert texts(axes) == [
        "belief 0, support {0}\n→ IK",
        "belief 1, support {0, 1}\n→ IMK",
        "belief 1, support ∅\n→ IDK",
    ]
    figure.draw_without_rendering()
    for text in axes.texts:  # words stay among the points
        box = text.get_window_extent()
        assert axes.bbox.x0 <= box.x0
        assert box.x1 <= axes.bbox.x1
        assert axes.bbox.y0 <= box.y0
        assert box.y1 <= axes.bbox.y1
    n_dots = sum(len(dots.get_offsets()) for dots in axes.collections)
    n_inside = sum(len(query.neighbors) for query in supports.queries)
    assert n_dots == len(supports.points) + n_inside


def test_the_curves_against_the_radius_are_those_of_the_record(experiments):
    experiment = experiments[1]
    curve = experiment.curve
    (axes,) = drawing.draw_radius(experiment).axes
    assert axes.get_xscale() == "log"
    drawn = [curve.f_idk, curve.f_imk, curve.f_ik, curve.a_ik]
    for line, values in zip(axes.lines, drawn, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), [*values, values[-1]])
        np.testing.assert_array_equal(line.get_xdata()[1:-1], np.maximum(curve.radii[1:], 1e-4))
        assert line.get_drawstyle() == "steps-post"
    assert [line.get_color() for line in axes.lines[:3]] == [COLORS[a] for a in Assertion]
    assert texts(axes) == ["$F_{IDK}$", "$F_{IMK}$", "$F_{IK}$", "$A_{IK}$, accuracy on IK"]


def test_the_counts_in_the_cells_are_those_of_the_reports(experiments):
    experiment = experiments[1]
    figure = drawing.draw_confusion(experiment)
    assert "σ = 1.0" in figure.get_suptitle()
    grid = np.array(figure.axes).reshape(3, 4)
    for column, (radius, report) in zip(grid.T, experiment.reports.items(), strict=True):
        assert f"ε = {radius:g}" in texts(column[0])
        assert column[-1].get_xlabel() == "true class"
        for axes, assertion in zip(
            column, [Assertion.IK, Assertion.IMK, Assertion.IDK], strict=True
        ):
            for text in axes.texts[:4]:
                true, predicted = text.get_position()
                assert (
                    int(text.get_text().replace(",", ""))
                    == report.matrix[assertion, predicted, true]
                )
            count = int(report.matrix[assertion].sum())
            assert axes.get_title("center").startswith(f"{count:,} ")
    for axes, name in zip(grid[:, 0], ["IK", "IMK", "IDK"], strict=True):
        assert name in texts(axes)
        assert axes.get_ylabel() == "predicted class"


def test_each_noise_has_its_data_above_and_its_curves_below(experiments):
    figure = drawing.draw_noise(experiments)
    grid = np.array(figure.axes).reshape(2, 3)
    for (above, below), experiment in zip(grid.T, experiments, strict=True):
        assert above.get_title("left") == f"noise σ = {experiment.noise:.1f}"
        (cloud,) = above.collections
        np.testing.assert_array_equal(cloud.get_offsets(), experiment.points)
        assert texts(above) == ["0", "1"]
        accuracy, coverage, best = below.lines
        np.testing.assert_array_equal(accuracy.get_ydata()[:-1], experiment.curve.a_ik)
        np.testing.assert_array_equal(coverage.get_ydata()[:-1], experiment.curve.f_ik)
        assert best.get_ydata() == [experiment.curve.f_ik.max()]
        assert f"{experiment.curve.f_ik.max():.2f}" in below.get_title("left")


@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_signs_come_in_rows_with_their_names(kind):
    images, names = make_signs(n_groups=8, m=3)
    images = images if kind is np.uint8 else images / 255
    grid = np.array(drawing.draw_signs(images, names).axes).reshape(8, 3)
    assert [axes.get_ylabel() for axes in grid[:, 0]] == names
    for place in np.ndindex(8, 3):
        np.testing.assert_array_equal(grid[place].images[0].get_array(), images[place])


def test_signs_that_do_not_fit_their_names_are_refused():
    images, names = make_signs()
    with pytest.raises(InputError, match=r"shape \(7, m, height, width, 3\).*got \(8, 3, 32"):
        drawing.draw_signs(images, names[:7])
    with pytest.raises(InputError, match="got"):
        drawing.draw_signs(images[..., :2], names)
    with pytest.raises(InputError, match="got"):
        drawing.draw_signs(images[:, :0], names)


def drawn_texts(figure):
    """All texts that are seen: ticks have labels beyond the ends of their axis, too."""
    found = [*figure.texts]
    for axes in figure.axes:
        found += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        found += axes.get_legend().get_texts() if axes.get_legend() else []
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
    return [text for text in found if text.get_text() and text.get_visible()]


def assert_texts_are_apart(figure):
    """No words overlap others or are cut off."""
    figure.draw_without_rendering()  # lays it out
    # The words of an annotation without its line.
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in drawn_texts(figure)]
    whole = figure.bbox.padded(1)
    for i, (words, box) in enumerate(boxes):
        assert whole.x0 <= box.x0, words
        assert box.x1 <= whole.x1, words
        assert whole.y0 <= box.y0, words
        assert box.y1 <= whole.y1, words
        for others, other in boxes[:i]:
            assert not box.padded(-1).overlaps(other.padded(-1)), (words, others)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_words_are_readable_in_the_plane(seed):
    assert_texts_are_apart(drawing.draw_regions(toy.make_regions(60, seed)))
    assert_texts_are_apart(drawing.draw_supports(toy.make_supports(seed)))


def test_words_are_readable_beside_curves_and_in_matrices(experiments):
    assert_texts_are_apart(drawing.draw_radius(experiments[1]))
    assert_texts_are_apart(drawing.draw_confusion(experiments[1]))
    assert_texts_are_apart(drawing.draw_noise(experiments))
    assert_texts_are_apart(drawing.draw_signs(*make_signs()))
