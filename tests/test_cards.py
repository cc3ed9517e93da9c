"""One table of colors: whatever shows an assertion takes its color from there."""

import io
import re
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from rich.console import Console

from iknow.cards import COLORS, SHADES
from iknow.cli.report import show_figures
from iknow.core.assertion import Assertion
from iknow.report import make_report

ROOT = Path(__file__).parents[1]


def luminance(color):
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """WCAG 2: the ratio of luminances, from 1 to 21."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("assertion", Assertion)
def test_words_can_be_read_and_areas_seen_on_light_and_dark(assertion):
    shades = SHADES[assertion]
    assert contrast(shades.light_ink, "#ffffff") >= 4.5
    assert contrast(shades.dark_ink, "#1d2326") >= 4.5
    for paper in ("#ffffff", "#111111"):
        assert contrast(COLORS[assertion], paper) >= 3
    assert contrast(shades.dark, "#1d2326") >= 3


def test_no_other_file_has_a_color_of_its_own():
    known = {shade for shades in SHADES.values() for shade in shades}
    for folder in ("src/iknow", "benchmarks", "reproduction", "docs/figures"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".css", ".js", ".html") and path.name != "cards.py":
                assert not known & set(re.findall("#[0-9a-f]{6}", path.read_text("utf-8"))), path


def test_the_pages_of_the_documentation_have_the_same():
    style = (ROOT / "docs/assets/iknow.css").read_text("utf-8")
    for assertion in Assertion:
        assert f"--{assertion.name.lower()}: {COLORS[assertion]};" in style


def test_the_report_and_the_terminal_have_them(assessment):
    page = make_report(assessment)
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor")
    show_figures(assessment, None, console)
    for assertion, shades in SHADES.items():
        for on, shade in shades._asdict().items():
            assert f"--{assertion.name.lower()}-{on.replace('_', '-')}: {shade};" in page
        red, green, blue = (round(255 * part) for part in to_rgb(COLORS[assertion]))
        assert f"38;2;{red};{green};{blue}m{assertion.name}" in console.file.getvalue()
