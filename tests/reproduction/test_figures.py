"""The figures: what the experiments show, and that the pictures hold what the records do."""

import struct
import subprocess
import sys
import zlib
from dataclasses import fields

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.patches import Circle
from matplotlib.text import Text
from scipy.spatial.distance import cdist
from sklearn.neighbors import BallTree

from iknow import Assertion
from iknow.cards import COLORS
from iknow.errors import InputError
from iknow.evaluation.plots import STYLE
from reproduction.figures import matplotlib as drawing
from reproduction.figures import toy
from reproduction.figures.experiment import RADII, make_experiment
from reproduction.figures.pictures import make_figures
from reproduction.notebooks.settings import NOISES, load_blobs, plane
from reproduction.torch import one_thread, train_network

pytestmark = pytest.mark.slow
IK, IMK, IDK = Assertion.IK, Assertion.IMK, Assertion.IDK
NAMES = ["regions", "supports", "radius", "confusion", "noise", "signs"]


@pytest.fixture(scope="module")
def experiments():
    """One for each level of noise, as they are drawn."""
    return [make_experiment(noise) for noise in NOISES]


@pytest.fixture(scope="module")
def noisy(experiments):
    """The setting of the confusion matrices."""
    return experiments[1]


@pytest.fixture(scope="module")
def regions():
    return toy.make_regions(n_cells=60)


def test_the_points_are_those_that_the_network_learns_before_they_are_scaled(experiments):
    assert [each.noise for each in experiments] == list(NOISES)
    for each in experiments:
        data = load_blobs(2, 2, each.noise)
        X = np.concatenate([data.X_train, data.X_test]).astype(np.float64)
        assert np.bincount(each.labels).tolist() == [5000, 5000]
        ours, theirs = ((X - X.mean(axis=0)) / X.std(axis=0) for X in (each.points, X))
        np.testing.assert_allclose(np.sort(ours, axis=0), np.sort(theirs, axis=0), atol=1e-4)
        spreads = [each.points[each.labels == code].std(axis=0) for code in (0, 1)]
        np.testing.assert_allclose(spreads, each.noise, rtol=0.05)


def test_curve_and_reports_are_those_of_ball_trees_on_the_logits(noisy):
    notebook = plane(noisy.noise)
    data = notebook.load(0)
    train, test = (data.X_train, data.y_train), (data.X_test, data.y_test)
    with one_thread():
        network, _ = train_network(notebook.architecture, notebook.training, train, test, 2, 0)
        with torch.no_grad():
            known, asked = (network(torch.from_numpy(X)).numpy() for X in (train[0], test[0]))
    trees = [BallTree(known[data.y_train == code]) for code in (0, 1)]
    nearest = np.concatenate([tree.query(asked)[0] for tree in trees], axis=1)
    belief, rows = asked.argmax(axis=1), np.arange(len(asked))
    for radius, report in noisy.reports.items():
        support = nearest <= radius
        assertion = np.where(support.all(axis=1), IMK, np.where(support[rows, belief], IK, IDK))
        matrix = np.zeros((3, 2, 2), dtype=int)
        np.add.at(matrix, (assertion, belief, data.y_test), 1)
        np.testing.assert_array_equal(report.matrix, matrix)
    for name in ("f_ik", "f_imk", "f_idk", "a_ik"):
        drawn = getattr(noisy.curve, name)[noisy.curve.places(RADII)]
        expected = [getattr(report, name) for report in noisy.reports.values()]
        np.testing.assert_array_equal(drawn, expected)


def test_what_the_paper_says_of_the_radius_and_of_noise(experiments, noisy):
    for each in experiments:
        curve = each.curve
        assert (np.diff(curve.f_imk) >= 0).all()
        assert (np.diff(curve.f_idk) <= 0).all()
        assert (curve.f_idk[0], curve.f_imk[-1]) == (1, 1)
        # "accuracy for IK samples stays high over different coverage levels"
        accuracy = curve.right[:, 0].sum() / curve.n_samples
        assert curve.a_ik[curve.f_ik > 0.1].min() >= accuracy
    smallest, small, middle, large = noisy.reports.values()
    assert list(noisy.reports) == [0.001, 0.017, 0.237, 3.162]
    assert min(smallest.f_idk, large.f_imk) > 0.95
    assert smallest.f_ik < small.f_ik < middle.f_ik > 0.5  # knowledge comes ...
    assert large.f_ik < 0.05  # ... and goes,
    assert small.f_imk < 0.05 < 0.2 < middle.f_imk  # into confusion
    # "the confusion matrix under small ε for IDK and that under large ε for IMK is also similar"
    difference = np.abs(smallest.matrix[IDK] - large.matrix[IMK])
    assert difference.sum() <= 0.05 * smallest.n_samples
    little, some, much = (each.curve.f_ik.max() for each in experiments)
    assert little > 0.99
    assert little > some + 0.1 > much + 0.2


def test_two_blobs_give_both_of_the_paper_s_numbers():
    """The largest F_IK is about 1.00 with noise 0.5, and about 0.44 with noise 1.5."""
    for noise, paper, mean, near in ((0.5, 1.00, 0.987, 0.01), (1.5, 0.44, 0.456, 0.05)):
        largest = [make_experiment(noise, seed).curve.f_ik.max() for seed in range(20)]
        assert np.median(largest) == pytest.approx(paper, abs=near)  # a few networks learn little
        assert np.mean(largest) == pytest.approx(mean, abs=0.02)  # what the module says


def test_a_seed_decides_the_network_and_not_the_data(noisy):
    other, again = (make_experiment(noisy.noise, seed=seed) for seed in (1, 0))
    np.testing.assert_array_equal(other.points, noisy.points)
    np.testing.assert_array_equal(other.labels, noisy.labels)
    np.testing.assert_array_equal(again.curve.radii, noisy.curve.radii)
    np.testing.assert_array_equal(again.curve.counts, noisy.curve.counts)
    assert other.curve.f_ik.max() != noisy.curve.f_ik.max()


@pytest.mark.parametrize("seed", range(6))
def test_the_paper_s_two_examples(seed):
    confused, known = toy.make_regions(n_cells=2, seed=seed).examples
    assert [each.point.tolist() for each in (confused, known)] == [[2, 2], [8, 0]]
    assert (confused.belief, confused.support, confused.assertion) == (1, (0, 1), IMK)
    assert (known.belief, known.support, known.assertion) == (1, (1,), IK)


def test_regions_follow_from_belief_and_labels_within_reach_and_all_four_are_there(regions):
    places = np.stack(np.meshgrid(regions.x, regions.y), axis=-1)
    for row, column in np.ndindex(regions.assertion.shape):
        place = places[row, column].astype(np.float32).astype(np.float64)
        steps = regions.points.astype(np.float32).astype(np.float64) - place
        found = set(regions.labels[np.sqrt((steps**2).sum(axis=1)) <= regions.radius].tolist())
        belief = regions.belief[row, column]
        expected = IDK if belief not in found else IK if len(found) == 1 else IMK
        assert regions.assertion[row, column] == expected
    for belief in (0, 1):
        assert ((regions.assertion == IK) & (regions.belief == belief)).mean() > 0.05
    assert (regions.assertion == IMK).mean() > 0.01
    assert (regions.assertion == IDK).mean() > 0.2
    assert (regions.assertion[[0, 0, -1, -1], [0, -1, 0, -1]] == IDK).all()


@pytest.mark.parametrize("seed", range(12))
def test_one_support_is_pure_one_mixed_one_empty(seed):
    supports = toy.make_supports(seed)
    assert [query.assertion for query in supports.queries] == [IK, IMK, IDK]
    assert [len(query.support) for query in supports.queries] == [1, 2, 0]
    for query in supports.queries:
        distances = cdist(query.point[None], supports.points)[0]
        assert query.neighbors.tolist() == np.flatnonzero(distances <= supports.radius).tolist()
        assert query.support == tuple(sorted(set(supports.labels[query.neighbors].tolist())))
    centers = np.stack([query.point for query in supports.queries])
    assert cdist(centers, centers)[2, :2].min() > 3 * supports.radius  # with words between


def flatten(record):
    """All arrays and numbers of a record, in order."""
    if isinstance(record, np.ndarray | float | int | str):
        return [np.asarray(record)]
    parts = (
        record if isinstance(record, tuple) else [getattr(record, f.name) for f in fields(record)]
    )
    return [leaf for part in parts for leaf in flatten(part)]


@pytest.mark.parametrize("make", [lambda seed: toy.make_regions(20, seed), toy.make_supports])
def test_a_seed_decides_every_number(make):
    first, again, other = flatten(make(3)), flatten(make(3)), flatten(make(4))
    for left, right in zip(first, again, strict=True):
        np.testing.assert_array_equal(left, right)
    pairs = zip(first, other, strict=False)
    assert any(left.shape != right.shape or (left != right).any() for left, right in pairs)


# Files


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


def test_every_picture_is_written_and_the_same_seed_gives_the_same_bytes(tmp_path):
    out = tmp_path / "new" / "folder"
    first = make_figures(out, quick=True, signs=make_signs(m=10))
    assert first == [out / f"{name}.png" for name in NAMES]
    assert sorted(out.iterdir()) == sorted(first)
    for path in first:
        width, height, chunks = read_png(path.read_bytes())
        assert 900 <= width <= 1600
        assert 600 <= height <= 1600
        assert chunks <= {b"IHDR", b"pHYs", b"IDAT", b"IEND"}  # no text: no date, no version
    mine = {"axes.facecolor": "black", "font.size": 30, "savefig.dpi": 20, "savefig.bbox": "tight"}
    with matplotlib.rc_context(mine):
        before = {name: matplotlib.rcParams[name] for name in {**mine, **STYLE}}
        again = make_figures(tmp_path / "again", quick=True)
        assert {name: matplotlib.rcParams[name] for name in {**mine, **STYLE}} == before
    other = make_figures(tmp_path / "other", seed=2, quick=True)
    assert [path.name for path in again] == [f"{name}.png" for name in NAMES[:-1]]
    for one, same, another in zip(first, again, other, strict=False):
        assert one.read_bytes() == same.read_bytes() != another.read_bytes()
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(InputError, match="file is a file"):
        make_figures(path, quick=True)
    assert path.read_text() == "mine"


def test_matplotlib_is_loaded_late_pyplot_never_and_without_it_the_extra_is_named(run_without):
    code = """
from iknow.errors import MissingExtraError
from reproduction.figures.pictures import make_figures
try:
    make_figures("never-written")
except MissingExtraError as error:
    print(error)
"""
    assert "pip install 'iknow[plots]'" in run_without(["matplotlib"], code)
    code = """
import sys
import reproduction.figures, reproduction.figures.toy
print("matplotlib" in sys.modules)
from reproduction.figures import matplotlib as drawing
drawing.to_png(drawing.draw_supports(reproduction.figures.toy.make_supports()))
print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


# Pictures


def texts(axes):
    return [text.get_text() for text in axes.texts]


def n_dots(axes):
    return sum(len(dots.get_offsets()) for dots in axes.collections)


def test_regions_are_named_and_coloured_as_computed(regions):
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
    assert image.origin == "lower"
    assert image.get_extent() == [regions.x[0], regions.x[-1], regions.y[0], regions.y[-1]]
    for code, (assertion, belief) in enumerate([(0, None), (1, None), (2, 0), (2, 1)]):
        expected = regions.assertion == assertion
        if belief is not None:
            expected &= regions.belief == belief
        np.testing.assert_array_equal(image.get_array() == code, expected)
        x, y = axes.texts[code].get_position()
        at = np.abs(regions.y - y).argmin(), np.abs(regions.x - x).argmin()
        assert expected[at]  # the name lies in its region
    assert n_dots(axes) == len(regions.points)


def test_supports_are_circles_with_their_neighbours_and_words():
    supports = toy.make_supports()
    (axes,) = drawing.draw_supports(supports).axes
    circles = [patch for patch in axes.patches if isinstance(patch, Circle)]
    assert [circle.get_radius() for circle in circles] == [supports.radius] * 3
    assert [circle.center for circle in circles] == [tuple(q.point) for q in supports.queries]
    assert texts(axes) == [
        "belief 0, support {0}\n→ IK",
        "belief 1, support {0, 1}\n→ IMK",
        "belief 1, support ∅\n→ IDK",
    ]
    n_inside = sum(len(query.neighbors) for query in supports.queries)
    assert n_dots(axes) == len(supports.points) + n_inside


def test_curves_counts_and_clouds_are_those_of_the_records(experiments, noisy):
    curve = noisy.curve
    (axes,) = drawing.draw_radius(noisy).axes
    assert axes.get_xscale() == "log"
    drawn = [curve.f_idk, curve.f_imk, curve.f_ik, curve.a_ik]
    for line, values in zip(axes.lines, drawn, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), [*values, values[-1]])
        np.testing.assert_array_equal(line.get_xdata()[1:-1], np.maximum(curve.radii[1:], 1e-4))
        assert line.get_drawstyle() == "steps-post"
    assert [line.get_color() for line in axes.lines[:3]] == [COLORS[a] for a in Assertion]
    assert texts(axes) == ["$F_{IDK}$", "$F_{IMK}$", "$F_{IK}$", "$A_{IK}$, accuracy on IK"]

    figure = drawing.draw_confusion(noisy)
    assert "σ = 1.0" in figure.get_suptitle()
    grid = np.array(figure.axes).reshape(3, 4)
    for column, (radius, report) in zip(grid.T, noisy.reports.items(), strict=True):
        assert f"ε = {radius:g}" in texts(column[0])
        assert column[-1].get_xlabel() == "true class"
        for axes, assertion in zip(column, (IK, IMK, IDK), strict=True):
            for text in axes.texts[:4]:
                true, predicted = text.get_position()
                count = int(text.get_text().replace(",", ""))
                assert count == report.matrix[assertion, predicted, true]
            total = int(report.matrix[assertion].sum())
            assert axes.get_title("center").startswith(f"{total:,} ")
    for axes, name in zip(grid[:, 0], ["IK", "IMK", "IDK"], strict=True):
        assert name in texts(axes)
        assert axes.get_ylabel() == "predicted class"

    grid = np.array(drawing.draw_noise(experiments).axes).reshape(2, 3)
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


def test_signs_come_in_rows_with_their_names_and_others_are_refused():
    images, names = make_signs()
    for each in (images, images / 255):
        grid = np.array(drawing.draw_signs(each, names).axes).reshape(8, 3)
        assert [axes.get_ylabel() for axes in grid[:, 0]] == names
        for place in np.ndindex(8, 3):
            np.testing.assert_array_equal(grid[place].images[0].get_array(), each[place])
    with pytest.raises(InputError, match=r"shape \(7, m, height, width, 3\).*got \(8, 3, 32"):
        drawing.draw_signs(images, names[:7])
    for wrong in (images[..., :2], images[:, :0]):
        with pytest.raises(InputError, match="got"):
            drawing.draw_signs(wrong, names)


def drawn_texts(figure):
    """All texts that are seen: ticks have labels beyond the ends of their axis, too."""
    found = [*figure.texts]
    for axes in figure.axes:
        found += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        found += axes.get_legend().get_texts() if axes.get_legend() else []
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = axis.get_major_ticks()
            found += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
    return [text for text in found if text.get_text() and text.get_visible()]


def assert_texts_are_apart(figure):
    """No words overlap others or are cut off."""
    figure.draw_without_rendering()  # lays it out
    # The words of an annotation without its line.
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in drawn_texts(figure)]
    whole = figure.bbox.padded(1)
    for i, (words, box) in enumerate(boxes):
        assert whole.x0 <= box.x0 <= box.x1 <= whole.x1, words
        assert whole.y0 <= box.y0 <= box.y1 <= whole.y1, words
        for others, other in boxes[:i]:
            assert not box.padded(-1).overlaps(other.padded(-1)), (words, others)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_words_are_readable_in_the_plane(seed):
    assert_texts_are_apart(drawing.draw_regions(toy.make_regions(60, seed)))
    supports = drawing.draw_supports(toy.make_supports(seed))
    assert_texts_are_apart(supports)
    (axes,) = supports.axes
    for text in axes.texts if seed == 0 else ():  # words stay among the points
        box = text.get_window_extent()
        assert axes.bbox.x0 <= box.x0 <= box.x1 <= axes.bbox.x1
        assert axes.bbox.y0 <= box.y0 <= box.y1 <= axes.bbox.y1


def test_words_are_readable_beside_curves_and_in_matrices(experiments, noisy):
    for figure in (
        drawing.draw_radius(noisy),
        drawing.draw_confusion(noisy),
        drawing.draw_noise(experiments),
        drawing.draw_signs(*make_signs()),
    ):
        assert_texts_are_apart(figure)
