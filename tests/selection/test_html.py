"""Selections in a notebook: the neighborhoods, how they fare, and what is promised."""

import re

import pytest

from iknow import Ball, Certificate, Selection
from iknow.cards import COLORS
from iknow.core.assertion import Assertion
from tests.markup import Page

EVIL = "<script>alert(1)</script>"


def select(certificate=None):
    rules = {"hidden": Ball(0.25), EVIL: Ball(2)}
    figures = 0.5, 0.9, float("nan"), "exact", True, 0.5, 40
    return Selection(rules, *figures, certificate, knowable=None if certificate is None else (0,))


@pytest.mark.parametrize(
    "certificate",
    [None, Certificate(0.95, 0.9, 0.96, 18, 1, 30, 7, "sequential", False, {"cat": 0.97})],
)
def test_the_card_says_what_the_record_says(certificate):
    selection = select(certificate)
    page = Page(selection._repr_html_())
    words = re.sub(r"\s+", " ", page.words)
    assert "hidden Ball(radius=0.25)" in words
    assert EVIL in words
    assert "script" not in page.tags
    assert "IK 20 50.0%" in words
    assert "coverage 50.0%, the largest possible; accuracy on it 90.0%" in words
    for sentence in selection.sentences():
        assert sentence in words
    promised = certificate is not None
    assert ("Guaranteed with confidence 0.9" in words) == promised
    assert ("each of 1 classes" in words) == ("ran out of time" in words) == promised
    green = f"border:1px solid {COLORS[Assertion.IK]}"
    assert (green in selection._repr_html_()) == promised
