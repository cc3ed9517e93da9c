"""What is drawn is what is in the record."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.patches import Polygon
from matplotlib.path import Path

from iknow import (
    Assertion,
    Ball,
    BallElseNearest,
    BallWithNearest,
    Nearest,
    RelativeBall,
    evaluate,
)
from iknow.cards import COLORS
from iknow.core.assertion import Reason
from iknow.errors import InputError
from iknow.evaluation.curves import radius_curve, robust_fraction
from iknow.evaluation.plots import (
    WRONG,
    column_figure,
    draw_confusion,
    draw_evidence,
    draw_radius_curve,
    draw_regions,
    draw_robust,
)
from tests.evaluation.plots.conftest import with_distances


def drawn(draw, *given, **more):
    figure = column_figure()
    draw(figure.axes[0], *given, **more)
    figure.draw_without_rendering()
    return figure.axes[0]


def names(axes):
    return [text.get_text() for text in axes.texts]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def places_of(dots):
    """Where dots are drawn; none is masked, which numpy would count as equal to anything."""
    places = dots.get_offsets()
    assert not np.ma.is_masked(places)
    return np.asarray(places)


# The radius


def test_the_lines_against_the_radius_are_the_record_s(plots):
    draw, curve = plots["radius"]
    axes = drawn(draw, curve, chosen=0.25)
    *lines, mark = axes.lines
    expected = [curve.f_ik, curve.f_imk, curve.f_idk, curve.a_ik, curve.a_not_ik]
    for line, values in zip(lines, expected, strict=True):
        np.testing.assert_array_equal(line.get_xdata()[:-1], curve.radii)
        np.testing.assert_array_equal(line.get_ydata(), [*values, values[-1]])
        assert line.get_drawstyle() == "steps-post"
    assert legend(axes) == ["$F_{IK}$", "$F_{IMK}$", "$F_{IDK}$", "$A_{IK}$", r"$A_{\neg IK}$"]
    assert list(mark.get_xdata()) == [0.25, 0.25]
    assert names(axes) == ["ε = 0.25"]
    assert axes.get_xlim()[0] == 0
    assert axes.get_xlim()[1] > curve.radii[-1]


def test_without_a_chosen_radius_the_best_is_marked(plots):
    draw, curve = plots["radius"]
    best = curve.radii[curve.best]
    assert list(drawn(draw, curve).lines[-1].get_xdata()) == [best, best]


def test_radii_of_many_magnitudes_get_a_logarithmic_axis():
    own = 10.0 ** np.linspace(-5, 2, 100)
    curve = radius_curve(with_distances(np.stack([own, 2 * own], axis=1)), np.zeros(100))
    axes = drawn(draw_radius_curve, curve)
    assert axes.get_xscale() == "log"
    assert 0 < axes.get_xlim()[0] < 1e-2
    assert axes.get_xlim()[1] > 200
    np.testing.assert_array_equal(axes.lines[0].get_xdata()[:-1], curve.radii)


# Certified fractions


def test_certified_steps_end_at_the_radii(assessment, y_true):
    known = assessment.robust_radius[assessment.assertion == Assertion.IK]
    radii = np.unique([0.0, *known[np.isfinite(known)]])
    lines = drawn(draw_robust, assessment, y_true).lines
    for line, truth in zip(lines, (y_true, None), strict=True):
        drawn_at, values = line.get_data()
        np.testing.assert_array_equal(drawn_at[:-1], radii)
        assert drawn_at[-1] > radii[-1]
        np.testing.assert_array_equal(values, robust_fraction(assessment, drawn_at, truth))
        assert line.get_drawstyle() == "steps-pre"
    axes = drawn(draw_robust, assessment)
    assert legend(axes) == ["IK"]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), lines[1].get_ydata())


# Regions


def test_the_plane_is_shaded_and_named_as_computed(plots):
    _, assess, x_limits, y_limits, points, labels, resolution = plots["regions"]
    axes = drawn(*plots["regions"])
    xs, ys = (np.linspace(*ends, resolution) for ends in (x_limits, y_limits))
    plane = assess([[x, y] for y in ys for x in xs])
    belief, assertions = (
        each.reshape(resolution, resolution) for each in (plane.belief_codes, plane.assertion)
    )
    (image,) = axes.images
    shown = image.get_array()
    left, right, bottom, top = image.get_extent()
    assert left + right == pytest.approx(sum(x_limits))
    assert (right - left) / 60 == pytest.approx(xs[1] - xs[0])
    assert (top - bottom) / 60 == pytest.approx(ys[1] - ys[0])
    assert image.origin == "lower"
    kinds = [(0, None), (1, None), (2, 0), (2, 1)]
    assert names(axes) == ["IDK", "IMK", "IK: down", "IK: up"]
    for code, (assertion, believed) in enumerate(kinds):
        expected = assertions == assertion
        if believed is not None:
            expected &= belief == believed
        np.testing.assert_array_equal(shown == code, expected)
        x, y = axes.texts[code].get_position()
        assert expected[np.abs(ys - y).argmin(), np.abs(xs - x).argmin()]
    dots = axes.collections[-2:]
    for name, group in zip(["down", "up"], dots, strict=True):
        np.testing.assert_array_equal(places_of(group), points[labels == name])


def test_ten_classes_have_ten_looks(plots):
    _, assess, *limits, points, _, _ = plots["regions"]
    labels = np.arange(10)

    def assess_many(places):
        return replace(assess(places), classes=labels)

    dots = drawn(draw_regions, assess_many, *limits, points[:10], labels).collections[-10:]
    looks = {
        (group.get_paths()[0].vertices.tobytes(), group.get_facecolor().tobytes()) for group in dots
    }
    assert len(looks) == 10


def test_points_need_their_labels(plots):
    _, *plane, points, labels, _ = plots["regions"]
    with pytest.raises(InputError, match=r"a label for each; got shapes \(200, 2\) and \(199,\)"):
        drawn(draw_regions, *plane, points, labels[:-1])


@pytest.mark.parametrize("limits", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1)])
def test_limits_must_be_a_stretch(classifier, limits):
    with pytest.raises(InputError, match="the lower first"):
        drawn(draw_regions, classifier.assess, (0, 1), limits)


def test_a_grid_has_more_than_one_place(classifier):
    with pytest.raises(InputError, match="at least 2 places each way; got 1"):
        drawn(draw_regions, classifier.assess, (0, 1), (0, 1), resolution=1)


# The confusion matrix


def test_counts_stand_in_the_cells_of_their_block(plots):
    draw, report = plots["confusion"]
    axes = drawn(draw, report)
    blocks = {"IK": report.matrix[2], "IMK": report.matrix[1], "IDK": report.matrix[0]}
    blocks["all"] = report.matrix.sum(axis=0)
    images = dict(zip(blocks, axes.images, strict=True))
    for name, counts in blocks.items():
        left, right, bottom, top = images[name].get_extent()
        cells = np.zeros_like(counts)
        for text in axes.texts:
            x, y = text.get_position() if text.get_text().isdigit() else (np.inf, np.inf)
            if left < x < right and top < y < bottom:
                cells[round(y - top - 0.5), round(x - left - 0.5)] = int(text.get_text())
        np.testing.assert_array_equal(cells, counts)
        share = f"{counts.sum()}" if name == "all" else f"{counts.sum() / report.n_samples:.1%}"
        assert f"{name} {share}" in names(axes)
        assert f"{np.trace(counts) / counts.sum():.1%} right" in names(axes)


def test_many_classes_and_unknown_ones_are_shades_alone():
    rng = np.random.default_rng(0)
    belief, y_true = rng.integers(43, size=500), rng.integers(45, size=500)
    assessment = with_distances(rng.random((500, 43)))
    report = evaluate(replace(assessment, belief_codes=belief), y_true)
    axes = drawn(draw_confusion, report)
    assert not [name for name in names(axes) if name.isdigit()]
    whole = axes.images[-1].get_array()
    assert whole.shape == (43, 45, 3)
    counts = report.matrix.sum(axis=0)
    np.testing.assert_array_equal((whole == 1).all(axis=2), counts == 0)
    # The more, the darker; and a mistake is not coloured like what is right.
    darkness = 1 - whole.mean(axis=2)
    for chosen in (np.eye(43, 45, dtype=bool), ~np.eye(43, 45, dtype=bool)):
        order = np.argsort(counts[chosen], kind="stable")
        assert (np.diff(darkness[chosen][order]) >= -1e-12).all()
    for image, assertion in zip(axes.images, [Assertion.IK, Assertion.IMK], strict=False):
        shades = image.get_array()
        colored = report.matrix[assertion] > 0
        for chosen, color in ((np.eye(43, 45, dtype=bool), COLORS[assertion]),
                              (~np.eye(43, 45, dtype=bool), WRONG)):  # fmt: skip
            tints = 1 - shades[chosen & colored]
            full = 1 - np.array(to_rgb(color))
            np.testing.assert_allclose(tints / tints.max(axis=1, keepdims=True),
                                       np.tile(full / full.max(), (len(tints), 1)))  # fmt: skip
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [*map(str, range(0, 43, 5))] * 2


# Distances for and against


@pytest.mark.parametrize("rule", [Ball(0.2), RelativeBall(0.3, 1.6), Nearest(5)], ids=repr)
def test_every_sample_is_a_point_marked_by_its_assertion(assessment, rule):
    alone = assessment.only(["input"]).under({"input": rule})
    axes = drawn(draw_evidence, alone)
    found = alone.evidence["input"].class_distances  # of two classes
    rows = np.arange(len(found))
    sides = np.stack([found[rows, alone.belief_codes], found[rows, 1 - alone.belief_codes]], axis=1)
    marks = set()
    for assertion, dots in zip(reversed(Assertion), axes.collections, strict=True):
        these = alone.assertion == assertion
        expected = sides[these]
        np.testing.assert_array_equal(places_of(dots), expected)
        if these.any():
            assert tuple(dots.get_edgecolor()[0])[:3] == to_rgba(COLORS[assertion])[:3]
        marks.add(dots.get_paths()[0].vertices.tobytes())
    assert len(marks) == 3
    assert legend(axes) == [f"{a.name} ({(alone.assertion == a).sum()})" for a in
                            reversed(Assertion)]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "decided"),
    [
        (Ball(1.0), {0, 1, 3, 4}),
        (RelativeBall(1.0, 1.7), {0, 1, 3}),
        (RelativeBall(1.0, 0.6), {0, 1, 3}),
        (BallElseNearest(1.0, 2), {0, 1, 4}),
        (BallWithNearest(1.0, 2), {1, 3}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("start", [0.0, 0.01])
def test_areas_are_where_the_rule_says_so(rule, decided, start):
    """Every place in the plane as a sample of its own, with any neighbours it could have."""
    rng = np.random.default_rng(0)
    places = rng.uniform(start, 3.0, size=(3000, 2))
    assessment = with_distances(places, rule)
    extra = places.min(axis=1, keepdims=True) + rng.exponential(0.5, size=(3000, 2))
    neighbors = np.sort(np.concatenate([places, extra], axis=1), axis=1)
    evidence = replace(assessment.evidence["a"], neighbor_distances=neighbors)
    reasons = replace(assessment, evidence={"a": evidence}).reason
    areas = rule.drawing().areas((start, 3.0), (start, 3.0))
    assert set(areas) == decided
    nowhere = np.ones(len(places), dtype=bool)
    for reason, corners in areas.items():
        inside = Path([*corners, corners[0]]).contains_points(places)
        assert (reasons[inside] == reason).all()
        assert inside.any() or rule == RelativeBall(1.0, 1.0)
        nowhere &= ~inside
    if len(areas) == 4:
        assert not nowhere.any()
    for reason in {Reason(code) for code in decided} - set(reasons[nowhere].tolist()):
        assert (Path([*areas[reason]]).contains_points(places) == (reasons == reason)).all()


def test_the_areas_are_drawn_and_named(plots):
    draw, assessment = plots["evidence"]
    axes = drawn(draw, assessment)
    areas = assessment.neighborhoods["input"].drawing().areas(axes.get_xlim(), axes.get_ylim())
    shapes = [patch for patch in axes.patches if isinstance(patch, Polygon)]
    for patch, corners in zip(shapes, areas.values(), strict=True):
        np.testing.assert_array_equal(patch.get_xy()[:-1], corners)
    assert names(axes) == ["IK", "IMK", "IDK: extrapolation", "IDK: contradiction", "ε = 0.2"]


def test_of_the_k_nearest_only_the_diagonal_is_known(plots):
    axes = drawn(*plots["evidence nearest"])
    assert not axes.patches
    assert names(axes) == []
    (diagonal,) = axes.lines
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())


def test_an_infinite_radius_draws_no_lines():
    assert not drawn(draw_evidence, with_distances([[1.0, 2.0]], Ball(np.inf))).patches


def test_what_has_no_place_lies_on_the_edge():
    own = np.array([0.0, 1e-3, 1e-2, 1e-2, 10.0, np.inf])
    other = np.array([1e-2, 1e-1, np.inf, 1e-2, 1e-3, 20.0])
    assessment = with_distances(np.stack([own, other], axis=1), Ball(1e-2))
    axes = drawn(draw_evidence, assessment)
    assert axes.get_xscale() == axes.get_yscale() == "log"
    (x_low, x_high), (_, y_high) = axes.get_xlim(), axes.get_ylim()
    assert 0 < x_low < 1e-3
    assert x_high > 10
    assert y_high > 20
    expected = np.stack([own, other], axis=1)
    expected[0, 0], expected[5, 0], expected[2, 1] = x_low, x_high, y_high
    for assertion, dots in zip(reversed(Assertion), axes.collections, strict=True):
        these = assessment.assertion == assertion
        np.testing.assert_array_equal(places_of(dots), expected[these])


def test_a_quorum_is_named_where_its_distances_are_shown(plots):
    plain, quorum = (drawn(*plots[name]) for name in ("evidence relative", "evidence quorum"))
    assert plain.get_ylabel().endswith("distance to any other")
    assert quorum.get_xlabel().endswith("distance to the believed class")
    assert quorum.get_ylabel().endswith("distance to 3 of any other")


def test_epsilon_is_named_at_a_line_that_is_there(plots):
    for name, transform in (("evidence", "y"), ("evidence relative", "x")):
        axes = drawn(*plots[name])
        label = next(text for text in axes.texts if text.get_text().startswith("ε"))
        place = getattr(axes, f"get_{transform}axis_transform")().transform(label.xy)
        at = axes.transData.inverted().transform(place)[int(transform == "y")]
        assert at == pytest.approx(plots[name][1].neighborhoods["input"].radius)
