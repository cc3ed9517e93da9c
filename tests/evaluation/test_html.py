"""Reports in a notebook: the figures of the record, and its matrix, as text."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from iknow import Assertion, evaluate
from iknow.evaluation.metrics import MOST_CLASSES
from tests.markup import Page


@pytest.fixture
def report(assessment):
    return evaluate(assessment, ["cat", "dog", "cat", "owl", "newt", "cat"])


def test_the_card_says_what_the_record_says(report):
    words = re.sub(r"\s+", " ", Page(report._repr_html_()).words)
    for line in str(report).splitlines()[3:7]:
        name, *figures = re.split(r"\s{2,}", line)
        assert f"{name} {' '.join(figures)}".replace(" -", " –") in words
    assert "on 6 samples, 50.0% right" in words
    assert str(report).splitlines()[-1] in words


def test_the_matrices_are_scikit_learns(assessment):
    y_true = np.array(["cat", "dog", "cat", "owl", "newt", "cat"])
    report = evaluate(assessment, y_true)
    labels = ["cat", "dog", "owl", "newt"]
    belief, assertion = assessment.belief, assessment.assertion
    expected = [
        [str(a), label, *(str(n or "") for n in row)]
        for a in reversed(Assertion)
        for label, row in zip(
            labels[:3],
            confusion_matrix(belief[assertion == a], y_true[assertion == a], labels=labels)[:3],
            strict=True,
        )
        if row.any()
    ]
    rows = re.findall(r"<tr>(.*?)</tr>", report._repr_html_())
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    plain = [[re.sub("<.*?>", "", cell).strip() for cell in row] for row in cells]
    assert [row for row in plain if row[1:2] and row[1] in labels] == expected


def test_of_many_classes_there_are_the_figures_alone(report):
    wide = replace(report, classes=np.arange(MOST_CLASSES + 1))
    page = Page(wide._repr_html_())
    assert page.tags.count("table") == 1
    assert page.tags.count("tr") == 5


def test_labels_with_markup_are_text(assessment):
    names = np.array(["<script>alert(1)</script>", '"><img src=x>', "&amp;"])
    report = evaluate(replace(assessment, classes=names), np.array(["<b>new"] * 6))
    page = Page(report._repr_html_())
    assert not {"script", "img"} & set(page.tags)
    assert "<script>" in page.words.replace(" ", "")[: 10**6] or "<scrip" in page.words
    many = replace(report, classes=np.append(names, ["x"] * 20))
    assert not {"script", "img"} & set(Page(many._repr_html_()).tags)
