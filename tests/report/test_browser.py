"""The page in a real browser: it is used as a person would, and compared with Python."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from iknow import (
    Assertion,
    Ball,
    BallElseNearest,
    BallWithNearest,
    Nearest,
    Reason,
    RelativeBall,
    evaluate,
)
from iknow.core.evidence import distances_for_and_against
from iknow.core.robustness import Movement
from iknow.explain.picture import as_features, as_series
from iknow.report import make_report

pytestmark = pytest.mark.slow  # a browser

HOSTILE = ["<img src=x onerror=window.ran=1>", "</script><script>window.ran=1</script>", "<!--"]


PAIRS = "return [...Report.page.summary.pairs].sort((one, other) => one[0] - other[0])"


def percent(fraction):
    return "–" if np.isnan(fraction) else f"{100 * fraction:.1f}%"


def assert_figures(page, report):
    """All figures in the page are those of a report of Python."""
    for assertion in Assertion:
        assert page.text(f"#share-{assertion.name}") == percent(report.fraction(assertion))
        assert page.text(f"#accuracy-{assertion.name}") == percent(report.accuracy(assertion))
    assert page.text("#accuracy-outside") == percent(report.a_not_ik)
    assert page.text("#accuracy-all") == percent(report.overall_accuracy)
    assert page.run(PAIRS) == [
        [place, count] for place, count in enumerate(report.matrix.ravel().tolist()) if count
    ]


def shown_matrix(page):
    """The numbers in the three tables, in the order IDK, IMK, IK."""
    tables = page.run(
        "return [...document.querySelectorAll('#matrices table')].map(table =>"
        "[...table.tBodies[0].rows].map(row => [...row.querySelectorAll('td')].map("
        "cell => cell.textContent === '·' ? 0 : Number(cell.textContent))))"
    )
    return np.array(tables[::-1])


def test_it_opens_with_the_given_figures_and_the_worst_sample(digits_page, open_page):
    assessment, y_true, html = digits_page
    page = open_page(html)
    report = evaluate(assessment, y_true)
    assert_figures(page, report)
    np.testing.assert_array_equal(shown_matrix(page), report.matrix)
    known = assessment.assertion == Assertion.IK
    wrong = np.flatnonzero(known & (assessment.belief != y_true))
    assert len(wrong) >= 2
    worst = wrong[np.argsort(-assessment.margin[wrong])]
    first = [row[1] for row in page.rows()[: len(wrong)]]
    assert first == [f"#{i}" for i in worst]
    assert f"Sample #{worst[0]}" in page.text("#detail h3")
    assert page.run("return document.querySelectorAll('.row.alarm').length") == len(wrong)


def test_sliders_move_the_numbers(digits_page, open_page):
    assessment, y_true, html = digits_page
    page = open_page(html)
    given = page.run("return Report.page.settings.map(s => s.radius)")
    for place in (50, 400, 900):
        page.set("#radius-0", place, "input")
        radii = page.run("return Report.page.settings.map(s => s.radius)")
        assert radii[0] != given[0]
        assert radii[1] == given[1]
        rules = {"hidden": Ball(radii[0]), "logits": Ball(radii[1])}
        moved = assessment.under(rules)
        assert_figures(page, evaluate(moved, y_true))
        np.testing.assert_array_equal(shown_matrix(page), evaluate(moved, y_true).matrix)
        for row in page.rows()[:5]:
            i = int(row[1].removeprefix("#"))
            assert row[4].endswith(Assertion(moved.assertion[i]).name)
            assert row[5] == Reason(moved.reason[i]).name.lower()
    assert page.run("return !document.querySelector('#reset').disabled")
    page.click("#reset")
    assert page.run("return Report.page.settings.map(s => s.radius)") == given
    assert_figures(page, evaluate(assessment, y_true))


def test_a_slider_moves_by_the_keyboard_and_comes_back_to_the_given_value(digits_page, open_page):
    assessment, _truth, html = digits_page
    page = open_page(html)
    radius = "return Report.page.settings[0].radius"
    page.press("#radius-0", "ARROW_RIGHT")
    assert page.run(radius) >= 0.8
    page.press("#radius-0", "ARROW_RIGHT", "ARROW_RIGHT")
    assert page.run(radius) > 0.8
    page.press("#radius-0", "ARROW_LEFT", "ARROW_LEFT", "ARROW_LEFT")
    assert page.run(radius) == assessment.neighborhoods["hidden"].radius


def test_an_exact_radius_can_be_typed(digits_page, open_page):
    assessment, y_true, html = digits_page
    page = open_page(html)
    exact = float(assessment.evidence["hidden"].class_distances[7].min())
    for typed, radius in [(repr(exact), exact), ("inf", np.inf), ("0", 0.0)]:
        page.set("#radius-0-exact", typed)
        rules = {"hidden": Ball(radius), "logits": assessment.neighborhoods["logits"]}
        assert_figures(page, evaluate(assessment.under(rules), y_true))
    for nonsense in ("-1", "far", ""):
        page.set("#radius-0-exact", nonsense)
        assert page.run("return Report.page.settings[0].radius") == 0
        assert page.run("return document.querySelector('#radius-0-exact').value") == "0"


@pytest.mark.parametrize(
    "make",
    [
        Ball,
        lambda radius: Nearest(3),
        lambda radius: BallElseNearest(radius, 3),
        lambda radius: BallWithNearest(radius, 3),
        lambda radius: RelativeBall(radius, 2.0),
    ],
    ids=["Ball", "Nearest", "BallElseNearest", "BallWithNearest", "RelativeBall"],
)
def test_every_rule_can_be_chosen(make, digits_page, open_page):
    assessment, y_true, html = digits_page
    page = open_page(html)
    rule = make(0.8)
    page.set("#rule", type(rule).__name__)
    if rule.n_neighbors:
        page.set("#k", 3, "input")
    if isinstance(rule, RelativeBall):
        for layer in range(2):
            page.set(f"#ratio-{layer}-exact", 2)
    under = assessment.under(dict.fromkeys(assessment.evidence, rule))
    assert_figures(page, evaluate(under, y_true))
    assert page.run("return [...Report.page.assessed.reason]") == list(under.reason)
    awake = "return document.querySelectorAll('#controls input[type=range]:enabled').length"
    assert page.run(awake) == (
        2 * ("radius" in vars(rule)) + ("k" in vars(rule)) + 2 * ("ratio" in vars(rule))
    )
    assert page.run("return document.querySelector('#k').disabled") == (rule.n_neighbors == 0)


def test_each_layer_keeps_its_own_rule(assessed, open_page):
    rules = {"hidden": Nearest(4), "logits": BallWithNearest(1.1, 2)}
    assessment, y_true = assessed(rules=rules)
    page = open_page(make_report(assessment, y_true))
    assert_figures(page, evaluate(assessment, y_true))
    page.set("#radius-1-exact", 0.5)
    changed = {"hidden": Nearest(4), "logits": BallWithNearest(0.5, 2)}
    assert_figures(page, evaluate(assessment.under(changed), y_true))
    page.set("#k", 5, "input")
    changed = {"hidden": Nearest(5), "logits": BallWithNearest(0.5, 5)}
    assert_figures(page, evaluate(assessment.under(changed), y_true))


def test_training_samples_may_be_numbered_beyond_what_a_float_holds(assessed, open_page):
    assessment, y_true = assessed(n=5)
    first = 2**62 + 1  # as the ids of a database may be
    evidence = {
        layer: replace(about, rows=np.where(about.rows >= 0, about.rows + first, -1))
        for layer, about in assessment.evidence.items()
    }
    training = {first + row: np.full(3, float(row)) for row in range(80)}
    numbered = replace(assessment, evidence=evidence)
    page = open_page(make_report(numbered, y_true, samples=np.zeros((5, 3)), training=training))
    layer = numbered.explain(page.run("return Report.page.chosen")).layers[0]
    shown = page.text("#detail")
    assert f"training #{layer.samples_for[0].row}" in shown
    assert f"against: #{layer.samples_against[0].row}" in shown  # the heading of its features


def test_a_click_opens_the_evidence(digits_page, open_page):
    assessment, _truth, html = digits_page
    page = open_page(html)
    i = int(page.rows()[4][1].removeprefix("#"))
    page.click(".rows .row", 4)
    explanation = assessment.explain(i)
    detail = page.text("#detail")
    assert f"Sample #{i}" in detail
    assert f"The model says “{explanation.belief}”" in detail
    for layer in explanation.layers:
        for exemplar in (layer.samples_for[0], layer.samples_against[0]):
            assert f"training #{exemplar.row}" in detail
            assert f"{exemplar.distance:.4g}" in detail
    # The sample and an exemplar for and against in each of two layers, drawn for real.
    drawn = page.run(
        "return [...document.querySelectorAll('#detail canvas')].map(canvas =>"
        "[...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"
        ".filter((_, at) => at % 4 < 3).reduce((sum, v) => sum + v, 0))"
    )
    assert len(drawn) == 5
    assert min(drawn) > 0


def sentences(page, assessment):
    """For each reason that occurs: a sample, and why it got its assertion, in the page's words."""
    found = {}
    for reason in Reason:
        samples = np.flatnonzero(assessment.reason == reason)
        if len(samples):
            page.run("Report.page.choose(arguments[0])", int(samples[0]))
            found[reason] = (int(samples[0]), page.text("#detail .sentence"))
    return found


def test_the_reason_is_told_in_words_that_name_the_facts(assessed, open_page):
    assessment, y_true = assessed(n=400, rules={"hidden": Ball(0.5), "logits": Ball(0.5)})
    assessment.invalid[5] = True
    scores = np.random.default_rng(0).normal(size=assessment.scores.shape)
    knowable = range(1, len(assessment.classes))
    assessment = replace(assessment, knowable=knowable, scores=scores, least_confidence=-2.0)
    page = open_page(make_report(assessment, y_true))
    found = sentences(page, assessment)
    assert set(found) == set(Reason)
    verdicts = {
        Assertion.IK: "I know.",
        Assertion.IMK: "I may know.",
        Assertion.IDK: "I don't know.",
    }
    for reason, (i, words) in found.items():
        assert words.startswith(f"The model says “{assessment.belief[i]}”.")
        assert words.endswith(f". So: {verdicts[Assertion(assessment.assertion[i])]}")
        if reason not in (Reason.INVALID, Reason.UNCERTIFIED, Reason.DOUBT):
            assert "0.5" in words
            assert "#" in words
    i, words = found[Reason.OVERLAP]
    layers = assessment.explain(i).layers
    mixed = next(layer for layer in layers if len(layer.support) > 1)
    assert f"of “{mixed.samples_against[0].label}” (#{mixed.samples_against[0].row})" in words
    assert f"at {mixed.samples_against[0].distance:.4g}" in words


def test_the_table_is_used_by_the_keyboard(digits_page, open_page):
    page = open_page(digits_page[2])
    order = [row[1] for row in page.rows()]
    page.press("#grid", "ARROW_DOWN", "ARROW_DOWN", "ARROW_UP", "ARROW_DOWN")
    assert page.text("#detail h3").startswith(f"Sample {order[2]} ")
    assert (
        page.run("return document.querySelector('.row.chosen .of-index').textContent") == order[2]
    )
    page.press("#grid", "ENTER")
    assert page.run("return document.activeElement.id") == "detail"
    page.press("#detail", "ESCAPE")
    assert page.run("return document.activeElement.id") == "grid"
    page.press("#grid", "END")
    last = page.rows()[-1][1]
    assert page.text("#detail h3").startswith(f"Sample {last} ")
    assert last not in order
    page.press("#grid", "HOME")
    assert page.text("#detail h3").startswith(f"Sample {order[0]} ")


def listed(page):
    """All samples in the table, in order, the rows out of view as well."""
    return page.run(
        "const { page } = Report; return Table.arrange(page.evidence, page.assessed,"
        "{ ...Table.EMPTY, assertion: value('assertion'), reason: value('reason'),"
        "belief: value('belief'), truth: value('truth'), right: right() },"
        "document.getElementById('order').value);"
        "function value(name) { const v = document.getElementById('filter-' + name).value;"
        "return v === '' ? null : Number(v); }"
        "function right() { const v = document.getElementById('filter-right').value;"
        "return v === '' ? null : v === '1'; }"
    )


def test_filters_and_orders(digits_page, open_page):
    assessment, y_true, html = digits_page
    page = open_page(html)
    right = assessment.belief == y_true
    codes = np.unique(y_true, return_inverse=True)[1]
    filters = {
        ("assertion", "1"): assessment.assertion == Assertion.IMK,
        ("reason", "3"): assessment.reason == Reason.EXTRAPOLATION,
        ("belief", "2"): assessment.belief_codes == 2,
        ("truth", "0"): codes == 0,
        ("right", "0"): ~right,
    }
    for (name, value), expected in filters.items():
        page.set(f"#filter-{name}", value)
        assert set(listed(page)) == set(np.flatnonzero(expected).tolist())
        assert page.text("#shown") == f"{expected.sum()} of 120 samples"
        page.click("#clear")
        assert page.text("#shown") == "120 samples"
    page.set("#filter-assertion", "2")
    page.set("#filter-right", "0")
    both = (assessment.assertion == Assertion.IK) & ~right
    assert set(listed(page)) == set(np.flatnonzero(both).tolist())
    page.click("#clear")
    page.set("#filter-index", "#17", "input")
    assert [row[1] for row in page.rows()] == ["#17"]
    page.set("#filter-index", "", "input")
    page.set("#order", "margin")
    assert (np.diff(assessment.margin[listed(page)]) >= 0).all()
    page.click(".row.head .of-index button")
    assert listed(page) == list(range(120))


def test_a_cell_of_the_matrix_shows_its_samples(digits_page, open_page):
    assessment, y_true, html = digits_page
    page = open_page(html)
    known = assessment.assertion == Assertion.IK
    wrong = np.flatnonzero(known & (assessment.belief != y_true))
    cell = page.find("#matrices .alarm button")
    said, true = page.run(
        "const cell = arguments[0].closest('td'); return [cell.parentNode.rowIndex - 1,"
        "cell.cellIndex - 1]", cell,
    )  # fmt: skip
    cell.click()
    page.settle()
    names = assessment.classes
    same = [i for i in wrong if (assessment.belief[i], y_true[i]) == (names[said], names[true])]
    assert sorted(row[1] for row in page.rows()) == sorted(f"#{i}" for i in same)
    assert page.run("return document.querySelector('#filter-assertion').value") == "2"


def test_a_point_of_the_scatter_shows_its_sample(digits_page, open_page):
    assessment, _truth, html = digits_page
    page = open_page(html)
    spots = np.array(page.run("return [...Report.page.plots[1].spots]")).reshape(-1, 2)
    own, other = distances_for_and_against(assessment.evidence["logits"], assessment.belief_codes)
    inside = (own < np.quantile(own, 0.9)) & (other < np.quantile(other, 0.9))
    assert np.corrcoef(own[inside], spots[inside, 0])[0, 1] == pytest.approx(1, abs=1e-6)
    assert np.corrcoef(other[inside], spots[inside, 1])[0, 1] == pytest.approx(-1, abs=1e-6)
    page.set("#filter-index", "3", "input")  # a point that the filter hides is shown all the same
    canvas = page.find("canvas.plot", 1)
    width, height = page.run("return [arguments[0].clientWidth, arguments[0].clientHeight]", canvas)
    gaps = np.linalg.norm(spots[:, None] - spots[None], axis=2) + 1e9 * np.eye(len(spots))
    lonely = int(np.argmax(np.where(inside, gaps.min(axis=1), 0)))
    page.click_at(canvas, *(np.round(spots[lonely] - [width / 2, height / 2]).astype(int).tolist()))
    assert page.text("#detail h3").startswith(f"Sample #{lonely} ")
    assert page.text(".row.chosen .of-index") == f"#{lonely}"
    assert page.text("#shown") == "120 samples"


def test_labels_are_shown_as_text_and_never_run(assessed, open_page):
    classes = np.array([*HOSTILE, "a & b"])
    assessment, y_true = assessed(classes=classes, layers=("<b>layer</b>",))
    y_true = y_true.astype(object)
    y_true[3] = "<svg onload=window.ran=1>"
    names = ["<i>name</i>", "</script>"]
    samples = np.random.default_rng(0).random((60, 2))
    html = make_report(
        assessment, y_true, samples=samples, training=samples, renderer=as_features(names),
        title="<script>window.ran=1</script>", notes=["<img src=x onerror=window.ran=1>"],
    )  # fmt: skip
    page = open_page(html)
    for i in range(60):
        page.run("Report.page.choose(arguments[0])", i)
    page.settle()
    assert page.run("return window.ran") is None
    assert page.run("return document.querySelectorAll('img, i, b b, svg[onload]').length") == 0
    assert page.text("h1") == "<script>window.ran=1</script>"
    assert page.text("#notes p") == "<img src=x onerror=window.ran=1>"
    assert "<b>layer</b>" in page.text("#controls")
    options = page.run(
        "return [...document.querySelectorAll('#filter-belief option')].map(o => o.textContent)"
    )
    assert options[1:] == classes.tolist()
    assert "<i>name</i>" in page.text("#detail .features")


def test_it_loads_nothing_and_may_not(digits_page, open_page):
    page = open_page(digits_page[2])
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    refused = page.browser.execute_async_script(
        "const done = arguments[0]; document.addEventListener('securitypolicyviolation',"
        "(event) => done(event.effectiveDirective), { once: true });"
        "const image = new Image(); image.src = 'http://127.0.0.1:9/x.png';"
    )
    assert refused == "img-src"
    assert [entry["source"] for entry in page.browser.get_log("browser")] == ["security"]


def test_a_phone_has_no_sideways_scroll(digits_page, open_page):
    page = open_page(digits_page[2])
    try:
        page.resize(390, 844)
        assert page.run("return document.documentElement.scrollWidth") <= 390
        page.click(".rows .row", 1)
        top = page.run("return document.querySelector('#detail').getBoundingClientRect().top")
        assert -5 <= top < 700
        assert page.run("return document.documentElement.scrollWidth") <= 390
    finally:
        page.restore_size()


def test_it_prints(digits_page, open_page):
    page = open_page(digits_page[2])
    pdf = base64.b64decode(page.browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")
    assert 2 <= pdf.count(b"/Type /Page\n") <= 5


def test_without_the_truth(assessed, open_page):
    assessment, _ = assessed()
    html = make_report(assessment)
    page = open_page(html)
    assert "not given" in page.text("#summary")
    for absent in ("#accuracy-IK", "#accuracy-all", "#filter-truth", "#filter-right", ".of-truth"):
        assert page.run("return document.querySelector(arguments[0])", absent) is None
    counts = page.run("return Report.page.summary.counts")
    assert counts == [int((assessment.assertion == a).sum()) for a in Assertion]
    for said, row in enumerate(shown_matrix(page)[0]):
        believed = assessment.assertion[assessment.belief_codes == said]
        assert row.tolist() == [int((believed == a).sum()) for a in reversed(Assertion)]
    page.set("#radius-0", 700, "input")
    assert page.run("return Report.page.summary.counts") != counts


QUORUM = (1, 3)


def test_a_quorum_is_said_and_all_its_samples_are_shown(assessed, open_page):
    rule = RelativeBall(0.8, 1.5, quorum=QUORUM)
    rules = {"hidden": rule, "logits": rule}
    assessment, y_true = assessed(n=300, rules=rules, per_class=3)
    training = np.random.default_rng(0).random((80, 5, 4))
    page = open_page(make_report(assessment, y_true, training=training, max_bytes=10**7))
    said = "The class it says counts with one sample within reach, any other with 3."
    assert said in page.text("#controls")
    for reason in (Reason.KNOWN, Reason.OVERLAP):
        i = int(np.flatnonzero(assessment.reason == reason)[0])
        page.run("Report.page.choose(arguments[0])", i)
        shown, explanation = page.text("#detail"), assessment.explain(i)
        for layer in explanation.layers:
            for exemplar in (*layer.samples_for, *layer.samples_against):
                assert f"training #{exemplar.row}" in shown
            assert f"at {layer.samples_against[-1].distance:.4g}" in shown
            for voice in layer.voices:
                assert f"{voice.voice} {'✓' if voice.holds else '✗'}" in shown
        if reason == Reason.KNOWN and explanation.changes:
            are = "sample is" if explanation.changes == 1 else "samples are"
            assert f"whatever {explanation.changes} {are} added, removed or relabeled" in shown
    # Another rule keeps the quorum, and Python agrees.
    page.set("#rule", "Ball")
    assert said in page.text("#controls")
    balls = assessment.under({layer: Ball(0.8, quorum=QUORUM) for layer in rules})
    assert page.run("return [...Report.page.assessed.reason]") == list(balls.reason)


@pytest.mark.parametrize(
    ("quorum", "words"),
    [
        ((2, 2), "A class counts with 2 samples within reach."),
        ((2, 1), "The class it says counts with 2 samples within reach, any other with one."),
    ],
)
def test_every_quorum_has_its_words(quorum, words, assessed, open_page):
    rules = {"hidden": Ball(0.9, quorum=quorum), "logits": Ball(0.8)}
    assessment, y_true = assessed(n=100, rules=rules, per_class=2)
    page = open_page(make_report(assessment, y_true))
    assert f"Layer hidden: {words}" in page.text("#controls")
    assert f"Layer logits: {words}" not in page.text("#controls")
    found = sentences(page, assessment)
    assert not [each for _, each in found.values() if "undefined" in each or "NaN" in each]
    assert any("second nearest" in each for _, each in found.values())


def test_a_belief_that_is_far_is_said_to_be_far_whatever_else_is_near(assessed, open_page):
    rule = RelativeBall(0.5, 1.5)
    assessment, y_true = assessed(n=300, rules={"only": rule}, layers=("only",))
    page = open_page(make_report(assessment, y_true))
    distances = assessment.evidence["only"].class_distances
    near = (assessment.reason == Reason.EXTRAPOLATION) & (distances.min(axis=1) < 0.5)
    i = int(np.flatnonzero(near)[0])
    page.run("Report.page.choose(arguments[0])", i)
    own = assessment.explain(i).layers[0].samples_for[0]
    words = page.text("#detail .sentence")
    assert (
        f"of “{own.label}” (#{own.row}) is {own.distance:.4g} away; IK needs 0.5 or less" in words
    )


def test_without_neighbours_the_rules_with_k_are_closed(assessed, open_page):
    assessment, y_true = assessed(n_neighbors=0)
    page = open_page(make_report(assessment, y_true))
    closed = page.run(
        "return [...document.querySelectorAll('#rule option:disabled')].map(o => o.value)"
    )
    assert closed == ["Nearest", "BallElseNearest", "BallWithNearest"]
    assert "assess(X, k=20)" in page.text("#controls")
    page.set("#rule", "RelativeBall")
    for layer in range(2):
        page.set(f"#ratio-{layer}-exact", 2)
    rules = dict.fromkeys(assessment.evidence, RelativeBall(0.8, 2.0))
    assert_figures(page, evaluate(assessment.under(rules), y_true))


def test_one_layer_one_class_nothing_within_reach(assessed, open_page):
    assessment, y_true = assessed(n=5, n_classes=1, layers=("only",), rules={"only": Ball(0.0)})
    page = open_page(make_report(assessment, y_true))
    assert_figures(page, evaluate(assessment, y_true))
    page.set("#radius-0-exact", "inf")
    rules = {"only": Ball(np.inf)}
    assert_figures(page, evaluate(assessment.under(rules), y_true))
    assert "only “class 0” within reach" in page.text("#detail")


def test_a_true_class_that_nobody_learned(assessed, open_page):
    assessment, y_true = assessed()
    y_true = y_true.astype(object)
    y_true[:7] = "a stranger"
    page = open_page(make_report(assessment, y_true))
    report = evaluate(assessment, y_true)
    assert_figures(page, report)
    np.testing.assert_array_equal(shown_matrix(page), report.matrix)


def test_many_classes_are_a_picture_to_click(assessed, open_page):
    assessment, y_true = assessed(n=300, n_classes=43, n_neighbors=4)
    page = open_page(make_report(assessment, y_true))
    assert page.run("return document.querySelectorAll('#matrices canvas').length") == 3
    times = int(page.text("#matrices .largest button").split(" ")[0])
    page.click("#matrices .largest button")
    assert len(page.rows()) == times


@pytest.mark.parametrize("renderer", [None, as_series()])
def test_series_are_drawn_and_features_compared(renderer, assessed, open_page):
    assessment, y_true = assessed(n=40)
    rng = np.random.default_rng(3)
    page = open_page(
        make_report(
            assessment,
            y_true,
            samples=rng.random((40, 12)),
            training=rng.random((80, 12)),
            renderer=renderer,
        )
    )
    page.settle()
    if renderer is None:
        cells = page.run("return document.querySelectorAll('#detail .features')[0].rows?.length")
        rows = page.run("return document.querySelectorAll('#detail .features tbody tr').length")
        assert cells is None
        assert rows == 2 * 12
    else:
        assert page.run("return document.querySelectorAll('#detail polyline').length") == 5


def test_samples_that_cannot_be_drawn_are_shown_by_their_numbers(assessed, open_page):
    def broken(sample):
        raise RuntimeError("no picture today")

    assessment, y_true = assessed(n=20)
    samples = np.arange(80.0).reshape(20, 4)
    page = open_page(make_report(assessment, y_true, samples=samples, renderer=broken))
    page.run("Report.page.choose(7)")
    page.settle()
    assert page.text("#detail .features tbody tr td") == "28"


def test_a_browser_that_cannot_unpack_says_so(digits_page, browser, open_page):
    script = browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": "delete window.DecompressionStream"}
    )
    try:
        page = open_page(digits_page[2], state="failed")
        assert "cannot unpack" in page.text("#trouble")
        assert "Of 120 predictions" in page.text("#summary")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_of_a_drawn_sample_only_the_drawn_count(assessed, open_page):
    assessment, y_true = assessed(n=600)
    page = open_page(make_report(assessment, y_true, max_samples=100))
    drawn = np.array(page.run("return [...Report.page.evidence.index]"))
    counted = np.array(page.run("return [...Report.page.evidence.counted]"), dtype=bool)
    extra = drawn[~counted]
    assert len(extra) > 3
    assert (assessment.assertion[extra] == Assertion.IK).all()
    assert (assessment.belief[extra] != y_true[extra]).all()
    known = assessment.assertion[drawn[counted]] == Assertion.IK
    assert page.text("#share-IK") == percent(known.mean())
    assert page.text("#accuracy-all") == percent(
        (assessment.belief == y_true)[drawn[counted]].mean()
    )
    assert "100 of 600 samples, drawn at random" in page.text("#summary")
    numbers = [row[0] for row in page.rows()]  # without pictures the number comes first
    assert {f"#{i}*" for i in extra} & set(numbers)


def test_percentages_are_written_as_python_does(digits_page, open_page):
    page = open_page(digits_page[2])
    parts = [(part, whole) for whole in (7, 16, 400, 2000) for part in range(whole + 1)]
    found = page.run("return arguments[0].map(([part, whole]) => Dom.percent(part, whole))", parts)
    assert found == [percent(part / whole) for part, whole in parts]
    assert page.run("return Dom.percent(0, 0)") == "–"


def test_certified_radii_follow_the_sliders(assessed, open_page):
    assessment, y_true = assessed()
    certified = replace(assessment, movements={"hidden": Movement(0.5), "logits": Movement(np.inf)})
    page = open_page(make_report(certified, y_true))
    shown = "return [...Report.page.assessed.radius]"
    assert page.run(shown) == certified.robust_radius.tolist()
    page.set("#radius-0-exact", 1.5)
    changed = certified.under({"hidden": Ball(1.5), "logits": assessment.neighborhoods["logits"]})
    assert page.run(shown) == changed.robust_radius.tolist()
    assert (changed.robust_radius != certified.robust_radius).any()
    page.set("#order", "radius")
    largest = float(page.run("return document.querySelector('.rows .of-radius').textContent"))
    assert largest == pytest.approx(changed.robust_radius.max(), rel=5e-3)


def test_moved_sliders_leave_a_certified_accuracy_behind(
    assessed, open_page, selection_for, certificate
):
    assessment, y_true = assessed()
    selection = selection_for(assessment, certificate)
    page = open_page(make_report(assessment, y_true, selection=selection))
    hidden = "return document.querySelector('#uncertified').hidden"
    assert page.run(hidden)
    page.set("#radius-0", 600, "input")
    assert not page.run(hidden)
    page.click("#reset")
    assert page.run(hidden)
