"""Drawing is polite: on the given axes only, without pyplot, without a trace in the settings."""

import subprocess
import sys

import matplotlib
import pytest
from matplotlib.colors import to_hex

from iknow.evaluation.plots import column_figure


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_only_the_given_axes_is_drawn_on(plot):
    draw, *given = plot
    figure = column_figure(rows=1, columns=2)
    ours, other = figure.axes
    before = {child: child.__class__ for child in other.get_children()}
    limits = other.get_xlim(), other.get_ylim()
    assert draw(ours, *given) is None
    assert figure.axes == [ours, other]
    assert not figure.texts
    assert not figure.legends
    assert {child: child.__class__ for child in other.get_children()} == before
    assert (other.get_xlim(), other.get_ylim()) == limits


def test_settings_are_neither_changed_nor_needed(plot):
    draw, *given = plot

    def draw_all():
        figure = column_figure()
        draw(figure.axes[0], *given)
        figure.canvas.draw()
        return figure.axes[0]

    def looks(axes):
        texts = axes.texts + (axes.get_legend().get_texts() if axes.get_legend() else [])
        found = [(text.get_text(), text.get_size(), to_hex(text.get_color())) for text in texts]
        for line in axes.lines:
            found.append((line.get_color(), line.get_linestyle(), line.get_marker()))
            if len(line.get_xdata()) > 1:
                found.append(line.get_linewidth())
            if line.get_marker() not in ("", "None"):
                found.append(line.get_markersize())
        return [*found, axes.get_xlim(), axes.get_ylim()]

    usual = looks(draw_all())
    mine = {
        "font.size": 30,
        "lines.linewidth": 9,
        "lines.markersize": 9,
        "text.color": "red",
        "axes.xmargin": 0.4,
    }
    with matplotlib.rc_context(mine):
        before = dict(matplotlib.rcParams)
        assert looks(draw_all()) == usual
        assert dict(matplotlib.rcParams) == before


def test_letters_go_by_those_of_the_axes(plots):
    draw, *given = plots["evidence"]
    figure = column_figure()
    (axes,) = figure.axes
    axes.xaxis.label.set_size(16)
    draw(axes, *given)
    assert {text.get_size() for text in axes.texts} == {16, 15.5}
    assert axes.get_legend().get_texts()[0].get_size() == 15.5


def test_a_column_figure_is_as_wide_as_a_column():
    figure = column_figure(rows=3, columns=2, height=1.5)
    assert figure.get_size_inches().tolist() == [3.4, 4.5]
    assert len(figure.axes) == 6
    for axes in figure.axes:
        assert axes.xaxis.label.get_size() == 8
        assert axes.get_xticklabels()[0].get_size() == 7


def test_without_matplotlib_the_error_names_the_extra(run_without):
    code = """
import iknow.evaluation.curves, iknow.evaluation.curves, iknow.evaluation.curves
from iknow.errors import MissingExtraError
try:
    import iknow.evaluation.plots
except MissingExtraError as error:
    print(error)
"""
    assert "pip install 'iknow[plots]'" in run_without(["matplotlib"], code)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import iknow, iknow.evaluation.curves, iknow.evaluation.curves", "False False"),
        ("import iknow.evaluation.plots", "True False"),
    ],
)
def test_matplotlib_is_loaded_late_and_pyplot_never(statement, expected):
    modules = "'matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules"
    assert run(f"{statement}; import sys; print({modules})").stdout.strip() == expected
