"""Pages about any number of classes, texts of any length, and names that are not names."""

import json
import re
import tracemalloc

import numpy as np

from iknow import Assertion, Assessment, Ball, Evidence, RelativeBall, evaluate
from iknow.explain.picture import as_features
from iknow.report import make_report

EVIL = [
    "</script><script>document.title='run'</script>", "<img src=x onerror=document.title='run'>",
    "\ud800 alone", "\u202egpj.exe", "\x1b[31m", "a" * 5000, "**bold** `code`", "🦉 שלום", "",
    "{{script}}", "'\"&", "a\nb",
]  # fmt: skip


def facts_of(page):
    text = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page, re.S)[1]
    return json.loads(text)


def many_classes(n, n_classes, rule=None):
    """Samples near their own class, and a little further from the next."""
    rng = np.random.default_rng(0)
    belief = rng.choice(n_classes, size=n, replace=False)
    distances = np.full((n, n_classes), np.inf, dtype=np.float32)
    distances[np.arange(n), belief] = 0.5
    distances[np.arange(n), (belief + 1) % n_classes] = 2.0
    exemplars = np.where(np.isfinite(distances), np.arange(n_classes), -1)
    names = np.array([f"class {code}" for code in range(n_classes)])
    assessment = Assessment(
        classes=names,
        belief_codes=belief,
        scores=np.zeros((n, n_classes), dtype=np.float32),
        evidence={"a": Evidence(distances, np.empty((n, 0)), exemplars)},
        neighborhoods={"a": rule or Ball(1.0)},
        invalid=np.zeros(n, dtype=bool),
    )
    y_true = names[belief].astype("<U20")
    y_true[::3] = names[(belief[::3] + 1) % n_classes]
    y_true[0] = "beyond all"
    return assessment, y_true


def test_classes_beyond_65535_are_called_by_their_names(open_page):
    assessment, y_true = many_classes(60, 100_000)
    assert (assessment.belief_codes > 65_535).any()
    html = make_report(assessment, y_true)
    assert len(html) < 300_000
    page = open_page(html)
    page.set("#order", "index")
    page.run("document.querySelector('#grid .view').style.height = '10000px'")
    page.settle()
    rows = page.rows()
    assert [row[1] for row in rows] == assessment.belief.tolist()
    assert [row[2].lstrip("✓✗ ") for row in rows] == y_true.tolist()
    report = evaluate(assessment, y_true)
    for name, figure in (("#accuracy-IK", report.a_ik), ("#accuracy-all", report.overall_accuracy)):
        assert page.text(name) == f"{100 * figure:.1f}%"
    assert "said “class" in page.text("#matrices")
    page.run("Report.page.choose(0)")
    page.settle()
    code = int(assessment.belief_codes[0])
    assert f"“class {code}”" in page.text("#detail .sentence")
    assert f"against: class {code + 1}" in page.text("#detail")


def test_many_classes_with_reaches_of_their_own_keep_them(open_page):
    assessment, y_true = many_classes(30, 2_000, RelativeBall(1.0, 0.5))
    page = open_page(make_report(assessment, y_true))
    assert page.run("return [...Report.page.assessed.assertion]") == assessment.assertion.tolist()


def test_without_the_truth_many_classes_are_listed_by_how_often_they_were_said(open_page):
    assessment, _ = many_classes(50, 70_000)
    page = open_page(make_report(assessment))
    listed = page.run(
        "return [...document.querySelectorAll('#matrices tbody th')].map(cell => cell.textContent)"
    )
    assert set(assessment.belief.tolist()) <= set(listed)


def test_names_of_all_kinds_are_text_and_nothing_else(assessed, open_page):
    classes = np.array(EVIL, dtype=object)
    rules = {name: Ball(0.8) for name in ("</script><b>", "\ud800")}
    assessment, y_true = assessed(
        n=60, n_classes=len(EVIL), layers=tuple(rules), classes=classes, rules=rules
    )
    samples, named = np.array([EVIL] * 60, dtype=object), as_features(EVIL)
    title = EVIL[0] + "\udfff"
    html = make_report(assessment, y_true, samples=samples, renderer=named, title=title, notes=EVIL)
    html.encode()  # no half of a pair is left
    page = open_page(html)
    assert page.run("return document.title").startswith("</script>")
    shown = page.text("body")
    assert "\\u202egpj.exe" in shown
    assert not set("\u202e\x1b") & set(shown)
    names = facts_of(html)["classes"]
    assert max(map(len, names)) <= 200
    assert names[0] == EVIL[0]
    for code in range(len(EVIL)):
        page.set("#filter-belief", code)
        page.settle()


def test_cells_of_5000_characters_take_the_room_of_200(assessed):
    assessment, y_true = assessed(n=400)
    rng = np.random.default_rng(0)
    cells = rng.integers(97, 123, size=(400, 8, 5000), dtype=np.uint32).view("<U5000")[:, :, 0]
    tracemalloc.start()
    page = make_report(assessment, y_true, samples=cells.astype(object))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(page) < 1_200_000  # 400 x 8 x 5000 letters of noise would be over 10 MB
    assert peak < 60_000_000


def test_any_value_can_be_a_feature(assessed):
    assessment, y_true = assessed(n=3)
    for value in (np.inf, -np.inf, np.nan, 1e308, 10**400, 10**5000, 1j, None):
        samples = np.empty((3, 2), dtype=object)
        samples[:] = [value, "text"]
        make_report(assessment, y_true, samples=samples, training=samples).encode()
    make_report(assessment, y_true, samples=np.full((3, 4, 4), 1.7e308) * [1, -1, 1, -1]).encode()
    make_report(assessment, y_true, samples=np.full((3, 1, 4), 1.7e308) * [1, -1, 1, -1]).encode()


def test_samples_without_an_answer_are_neither_right_nor_wrong(assessed, open_page):
    assessment, y_true = assessed(n=40)
    codes = assessment.belief_codes.copy()
    codes[[2, 5]] = -1
    invalid = codes < 0
    silent = Assessment(
        classes=assessment.classes,
        belief_codes=codes,
        scores=np.where(invalid[:, None], np.nan, assessment.scores),
        evidence=assessment.evidence,
        neighborhoods=assessment.neighborhoods,
        invalid=invalid,
    )
    page = open_page(make_report(silent, y_true))
    report = evaluate(silent, y_true)
    assert page.text("#accuracy-IDK") == f"{100 * report.accuracy(Assertion.IDK):.1f}%"
    assert page.text("#accuracy-all") == f"{100 * report.overall_accuracy:.1f}%"
    assert "gave no answer for 2 of them" in page.text("#summary")
    page.set("#order", "index")
    rows = page.rows()
    assert rows[2][1] == rows[5][1] == "no answer"
    assert rows[2][2] == y_true[2]
    page.run("Report.page.choose(2)")
    page.settle()
    assert page.text("#detail .sentence").startswith("The model gives no answer.")
    page.set("#filter-right", "0")
    assert page.run("return document.querySelectorAll('.rows .row').length") == report.wrong(
        *Assertion
    )
