"""Plots can be read: at the width of a column, in grey, and by the colour-blind."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from iknow import Assertion, Ball, RelativeBall
from iknow.cards import COLORS
from iknow.evaluation.plots import (
    ACCURACY_LOOK,
    FRACTION_LOOKS,
    KNOWN_STRENGTHS,
    LOOKS,
    UNKNOWN_SHADES,
    column_figure,
    draw_confusion,
    draw_evidence,
    tint,
)
from tests.evaluation.plots.conftest import with_distances

DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)
"""Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB."""


def linear(color):
    values = np.array(to_rgb(color))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lightness(color, seen_by=np.eye(3)):  # noqa: B008
    """CIE L*, from 0 to 100."""
    luminance = np.clip(seen_by @ linear(color), 0, 1) @ [0.2126, 0.7152, 0.0722]
    return 116 * np.cbrt(luminance) - 16 if luminance > 0.008856 else 903.3 * luminance


def all_words(axes):
    """All texts that are seen: ticks have labels beyond the ends of their axis, too."""
    found = [*axes.texts, axes.xaxis.label, axes.yaxis.label]
    found += axes.get_legend().get_texts() if axes.get_legend() else []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [text for text in found if text.get_text() and text.get_visible()]


def assert_words_are_apart(figure):
    """No words overlap others or are cut off, and all are large enough to be read."""
    figure.draw_without_rendering()
    # The words of an annotation without its line.
    words = [(t, Text.get_window_extent(t)) for axes in figure.axes for t in all_words(axes)]
    assert words
    for i, (text, box) in enumerate(words):
        assert text.get_size() >= 5, text
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0, text
        assert box.y1 <= figure.bbox.y1, text
        for other, other_box in words[:i]:
            assert not box.padded(-1).overlaps(other_box.padded(-1)), (text, other)


@pytest.mark.parametrize("height", [2.2, 2.6, 3.4])
def test_words_are_apart_at_the_width_of_a_column(plot, height):
    draw, *given = plot
    figure = column_figure(height=height)
    draw(figure.axes[0], *given)
    assert_words_are_apart(figure)


@pytest.mark.parametrize("labels", [np.arange(10), np.arange(43), [f"sign {i}" for i in range(43)]])
def test_matrices_of_many_classes_have_words_apart(plots, labels):
    report = plots["confusion"][1]
    n = len(labels)
    matrix = np.random.default_rng(0).poisson(300, size=(3, n, n))
    pairs = np.column_stack([*np.indices(matrix.shape).reshape(3, -1), matrix.ravel()])
    figure = column_figure(height=3.4)
    draw_confusion(
        figure.axes[0],
        replace(report, classes=np.array(labels), true_classes=np.array(labels), pairs=pairs),
    )
    assert_words_are_apart(figure)


@pytest.mark.parametrize("rule", [Ball(0.01), Ball(1.0), Ball(30.0), RelativeBall(1.0, 1.2)])
@pytest.mark.parametrize("spread", [0.2, 2.0])
def test_areas_have_their_names_apart_for_any_radius(rule, spread):
    own, other = np.exp(spread * np.random.default_rng(0).normal(size=(2, 100)))
    figure = column_figure()
    draw_evidence(figure.axes[0], with_distances(np.stack([own, other], axis=1), rule))
    assert_words_are_apart(figure)
    (axes,) = figure.axes
    for patch in axes.patches:  # each area is large enough for its name
        corners = axes.transAxes.inverted().transform(axes.transData.transform(patch.get_xy()))
        width, height = np.ptp(np.clip(corners, 0, 1), axis=0)
        assert width > 0.14
        assert height > 0.1


def test_lines_differ_in_more_than_colour():
    accuracies = [{**ACCURACY_LOOK, "marker": marker} for marker in "ox"]
    fractions = [{**look, "marker": ""} for look in FRACTION_LOOKS.values()]
    for one, other in combinations(fractions + accuracies, 2):
        assert any(
            one.get(name, default) != other.get(name, default)
            for name, default in (("linestyle", "-"), ("marker", ""))
        )


def test_points_differ_in_more_than_colour():
    assert len({look["marker"] for look in LOOKS.values()}) == 3


@pytest.mark.parametrize("seen_by", [np.eye(3), DEUTERANOPIA], ids=["grey", "deuteranopia"])
def test_shades_of_the_plane_differ_in_lightness(seen_by):
    known = [tint(COLORS[Assertion.IK], strength) for strength in KNOWN_STRENGTHS]
    levels = [lightness(shade, seen_by) for shade in (*UNKNOWN_SHADES, *known)]
    assert (np.diff(levels) < -8).all()
