"""The section of a comparison: complete, escaped, and without styles that the policy forbids."""

import re

import numpy as np
import pytest

from iknow import make_report
from iknow.evaluation.comparison import Comparison
from iknow.evaluation.risk import RiskCoverage


@pytest.fixture
def comparison():
    rng = np.random.default_rng(0)
    methods, sets = ("iknow", "softmax", "<b>peer"), ("test", "<script>")
    line = RiskCoverage(np.array([0.0, 1.0]), np.array([0.0, 0.2]))
    return Comparison(
        methods=methods, sets=sets, coverages=(0.5, 0.75, 0.9),
        wrong=rng.random((3, 2, 3)), wrong_between=rng.random((3, 2, 3, 2)),
        mean_between=rng.random((3, 3, 2)), asserted=rng.random((3, 2, 3)),
        augrc=rng.random((3, 2)), certified=np.array([0.8, 0.5, 0.0]),
        certified_by_mapie=0.4, errors=np.array([0.1, 1.0]), sizes=(9, 9), accuracy=0.99,
        confidence=0.95, curves={name: dict.fromkeys(methods, line) for name in sets},
    )  # fmt: skip


@pytest.fixture
def section(comparison, assessed):
    page = make_report(*assessed(), comparison=comparison)
    return re.search(r'<section class="card" id="comparison".*?</section>', page, re.DOTALL)[0]


def test_it_is_escaped_and_without_styles(section):
    assert "<script" not in section
    assert "<b>peer" not in section
    assert " style=" not in section


def test_the_figures_are_those_of_the_record(comparison, section):
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', section)
    cells = {name: re.findall(r"<td>(?:<b>)?(.*?)(?:</b>)?</td>", row) for name, row in rows[:4]}
    mean = comparison.mean_wrong[1]
    expected = [f"{value:.1%}" for value in mean] + [f"{comparison.mean_augrc[1]:.3f}", "50.0%"]
    assert cells["softmax"] == expected
    assert cells["&lt;b&gt;peer"][-1] == "none"
    assert cells["softmax by MAPIE"][-1] == "40.0%"
    best = comparison.methods[int(comparison.mean_wrong[:, 0].argmin())].replace("<b>", "&lt;b&gt;")
    bold = [name for name, row in rows[:3] if row.startswith("<td><b>")]
    assert bold == [best]


def test_as_a_section_of_the_report(comparison, assessed):
    assessment, y_true = assessed()
    plain = make_report(assessment, y_true)
    assert 'id="comparison"' not in plain
    page = make_report(assessment, y_true, comparison=comparison)
    assert page.count('id="comparison"') == 1
    assert "&lt;script&gt;" in page
