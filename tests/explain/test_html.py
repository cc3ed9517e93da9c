"""Explanations in a notebook: all that the record says, and nothing that could run."""

import re
from dataclasses import replace

import numpy as np
import pytest

from iknow.explain.picture import (
    FEATURES_SHOWN,
    Features,
    Series,
    as_image,
    as_series,
    picture_to_html,
)
from tests.markup import Page


def test_the_card_says_what_the_record_says(assessment):
    explanation = assessment.explain(1)
    words = re.sub(r"\s+", " ", Page(explanation._repr_html_()).words)
    for said in ["IMK", "I may know", "dog", "hidden finds cat and dog within the reach 1.5"]:
        assert said in words
    for layer in explanation.layers:
        assert str(layer.samples_for[0]) in words
        assert str(layer.samples_against[0]) in words
        assert str(layer.slack) in words


def test_only_an_ik_rests_on_samples(assessment):
    assert "Rests on 1 training sample" in assessment.explain(0)._repr_html_()
    assert "ests on" not in assessment.explain(1)._repr_html_()


def test_sample_and_exemplars_are_shown_side_by_side(assessment):
    rng = np.random.default_rng(0)
    samples, training = rng.random((6, 4)), rng.random((20, 4))
    images = assessment.explain(0, samples=samples, training=training, renderer=as_image(2, 2))
    assert Page(images._repr_html_()).tags.count("img") == 5  # for and against in two layers
    series = assessment.explain(0, samples=samples, training=training, renderer=as_series(2))
    assert Page(series._repr_html_()).tags.count("svg") == 5
    assert Page(series._repr_html_()).tags.count("polyline") == 10


@pytest.mark.parametrize("i", range(6))
def test_labels_with_markup_are_text(assessment, i):
    evil = "<script>alert(1)</script>"
    names = np.array([evil, "<img src=x onerror=alert(1)>", "&amp;"])
    marked = replace(assessment, classes=names)
    page = Page(marked.explain(i)._repr_html_())
    assert not {"script", "img"} & set(page.tags)
    assert names[assessment.belief_codes[i]] in page.words


def test_the_card_of_an_assessment_counts_and_names_its_rules(assessment):
    words = re.sub(r"\s+", " ", Page(assessment._repr_html_()).words)
    for said in ["of 6 predictions", "IK 1 16.7%", "IMK 2 33.3%", "IDK 3 50.0%", "extrapolation 1"]:
        assert said in words
    for layer, rule in assessment.neighborhoods.items():
        assert f"{layer} {rule!r}" in words
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", assessment._repr_html_())]
    assert widths == pytest.approx([100 / 6, 200 / 6, 300 / 6], abs=1e-3)
    assert "of 0 predictions" in Page(assessment[:0]._repr_html_()).words


def test_layers_with_markup_are_text(assessment):
    evil = "<script>alert(1)</script>"
    marked = {
        name: {evil: getattr(assessment, name)["hidden"]} for name in ("evidence", "neighborhoods")
    }
    page = Page(replace(assessment, **marked)._repr_html_())
    assert "script" not in page.tags
    assert evil in page.words


def test_features_are_a_short_table_of_text():
    names = tuple(f"<b>{i}</b>" for i in range(20))
    page = Page(picture_to_html(Features(("<i>", *map(float, range(19))), names, 5)))
    assert page.tags.count("tr") == FEATURES_SHOWN + 1
    assert "and 13 more" in page.words
    assert "<b>0</b>" in page.words
    assert "<i>" in page.words
    assert not {"b", "i"} & set(page.tags)


def test_a_series_fills_its_box_from_the_lowest_to_the_highest():
    markup = picture_to_html(Series(np.array([[0.0, 1.0, 3.0]])))
    points = re.search(r'points="([^"]+)"', markup)[1].split()
    heights = [float(point.split(",")[1]) for point in points]
    assert heights[0] > heights[1] > heights[2]
    assert (heights[0] - heights[1]) * 2 == pytest.approx(heights[1] - heights[2])
    flat = picture_to_html(Series(np.ones((1, 3))))
    assert "nan" not in flat
