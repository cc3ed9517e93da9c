"""Colors: what each assertion looks like, in terminals, notebooks, plots and the report alike.

The color-blind can tell them apart. The ink is for words in that color: of more contrast with the
paper than a filled area needs.
"""

from __future__ import annotations

from typing import NamedTuple

from iknow.core.assertion import Assertion


class Shades(NamedTuple):
    """One color for filled areas and its ink, on light paper and on dark."""

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
"""Where one color must do, whatever it is seen on."""
