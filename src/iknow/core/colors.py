"""Colors of assertions in terminals, notebooks, plots and the report. The color-blind can tell them
apart. Ink is for words: they need more contrast with the paper than a filled area.
"""

from __future__ import annotations

from typing import NamedTuple

from iknow.core.assertion import Assertion


class Shades(NamedTuple):
    """A color for filled areas and its ink, on light and on dark paper."""

    light: str
    light_ink: str
    dark: str
    dark_ink: str


SHADES = {
    Assertion.IK: Shades("#00795a", "#00664c", "#2bb28a", "#58d0ab"),
    Assertion.IMK: Shades("#c77700", "#8f5500", "#e69a2e", "#f2b45c"),
    Assertion.IDK: Shades("#6f757d", "#565c63", "#98a0a8", "#b6bec5"),
}

COLORS = {assertion: shades.light for assertion, shades in SHADES.items()}
"""For when one color must serve on any background."""
