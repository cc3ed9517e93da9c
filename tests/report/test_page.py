"""What is in the page: sizes, samples, pictures, words; no browser needed."""

import base64
import gzip
import json
import re
import time

import numpy as np
import pytest

from iknow import Assertion, Assessment, Ball, Evidence, RelativeBall, evaluate
from iknow.errors import InputError
from iknow.explain.picture import as_image
from iknow.report import make_report
from iknow.report.assemble import STATIC
from iknow.report.columns import MOST_EXTRAS

NUMPY = {
    "Float64Array": "<f8", "Float32Array": "<f4", "BigInt64Array": "<i8", "Int32Array": "<i4",
    "Uint16Array": "<u2", "Uint8Array": "u1",
}  # fmt: skip


def read_page(html):
    """The facts and the arrays in a page, read as a browser would."""
    facts = json.loads(re.search(r'id="facts">(.*?)</script>', html, re.S)[1])
    packed = gzip.decompress(
        base64.b64decode(re.search(r'id="arrays">(.*?)</script>', html, re.S)[1])
    )
    arrays = {
        name: np.frombuffer(packed, NUMPY[entry["type"]], entry["length"], entry["offset"])
        for name, entry in facts["arrays"].items()
    }
    return facts, arrays


def large_assessment(n, n_classes=10, n_neighbors=20, layers=("hidden", "logits"), seed=0):
    """Random distances, shaped as evidence is; a hundred thousand samples in no time."""
    rng = np.random.default_rng(seed)
    belief = rng.integers(n_classes, size=n)
    y_true = np.where(rng.random(n) < 0.97, belief, rng.integers(n_classes, size=n))
    evidence = {}
    for layer in layers:
        distances = rng.gamma(9, 0.4, size=(n, n_classes))
        distances[np.arange(n), belief] *= 0.4
        neighbors = np.sort(rng.gamma(9, 0.4, size=(n, n_neighbors)), axis=1)
        evidence[layer] = Evidence(distances, neighbors, rng.integers(60_000, size=distances.shape))
    assessment = Assessment(
        classes=np.arange(n_classes),
        belief_codes=belief,
        scores=np.zeros((n, n_classes)),
        evidence=evidence,
        neighborhoods=dict.fromkeys(layers, Ball(1.6)),
        invalid=np.zeros(n, dtype=bool),
    )
    return assessment, y_true


def test_the_same_report_has_the_same_bytes(assessed):
    assessment, y_true = assessed()
    assert make_report(assessment, y_true) == make_report(assessment, y_true)


def test_it_is_one_file_with_nothing_from_elsewhere(digits_page):
    html = digits_page[2]
    assert not re.search(r'(src|href)="(?!data:|#)', html)
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in html
    assert "default-src 'none'" in html
    assert "unsafe" not in html


def test_the_script_never_makes_markup_of_text():
    for path in STATIC.rglob("*.js"):
        text = path.read_text("utf-8")
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
            assert forbidden not in text, path.name


def test_labels_cannot_end_the_element_they_are_in(assessed):
    classes = np.array(["</script><script>x", "<!--<script>", "b", "c"])
    assessment, y_true = assessed(classes=classes)
    html = make_report(assessment, y_true, title="</title><script>y")
    facts, _ = read_page(html)
    assert facts["classes"] == classes.tolist()
    assert html.count("<script") == 3  # facts, arrays and the page's own
    assert "<script>x" not in html
    assert "<script>y" not in html


def test_all_samples_of_a_small_report_are_in_it_in_full_precision(assessed):
    assessment, y_true = assessed(n=70)
    facts, arrays = read_page(make_report(assessment, y_true))
    assert facts["n"] == 70
    assert arrays["counted"].all()
    np.testing.assert_array_equal(arrays["index"], np.arange(70))
    for place, evidence in enumerate(assessment.evidence.values()):
        distances = arrays[f"{place}.distances"].reshape(70, 3)
        expected = evidence.class_distances[np.arange(70), assessment.belief_codes]
        np.testing.assert_array_equal(distances[:, 0], expected)
        others = np.sort(evidence.class_distances, axis=1)
        assert np.isin(distances, others).all()


def test_a_hundred_thousand_samples_are_drawn_from_and_it_says_so():
    assessment, y_true = large_assessment(100_000)
    wrong = (assessment.belief != y_true) & (assessment.assertion == Assertion.IK)
    started = time.perf_counter()
    html = make_report(assessment, y_true)
    assert time.perf_counter() - started < 30
    assert len(html.encode()) < 9_500_000
    _, arrays = read_page(html)
    assert arrays["counted"].sum() == 10_000
    assert "This page holds 10,000 of 100,000 samples, drawn at random" in html
    extra = arrays["index"][arrays["counted"] == 0]
    assert 0 < len(extra) <= MOST_EXTRAS
    assert wrong[extra].all()
    assert f"Of the {wrong.sum():,} wrong IKs, {len(extra):,} that were not drawn" in html
    # The sentences count all samples, whatever was drawn.
    report = evaluate(assessment, y_true)
    known = int((assessment.assertion == Assertion.IK).sum())
    assert f"“I know” for {known:,} ({100 * report.f_ik:.1f}%)" in html
    # The draw is fair: each tenth of the samples has about a tenth of it.
    tenths = np.histogram(arrays["index"][arrays["counted"] == 1], 10, (0, 100_000))[0]
    assert tenths.min() > 850


def test_the_draw_depends_on_the_seed_alone():
    assessment, y_true = large_assessment(500, n_neighbors=0)
    one, again, other = (
        read_page(make_report(assessment, y_true, max_samples=50, random_state=seed))[1]["index"]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_ten_thousand_samples_with_images_stay_below_ten_megabytes():
    assessment, y_true = large_assessment(10_000)
    rng = np.random.default_rng(0)
    strokes = rng.random((200, 28, 28)) < 0.15  # about as hard to compress as handwriting
    images = (
        strokes[rng.integers(200, size=12_000)] * rng.integers(90, 255, (12_000, 1, 1))
    ).astype(np.uint8)
    html = make_report(assessment, y_true, samples=images[:10_000], training=images[2_000:])
    assert len(html.encode()) < 9_500_000
    facts, arrays = read_page(html)
    assert facts["n"] == 10_000
    assert (arrays["samplePictures"] >= 0).mean() > 0.2


def test_pictures_give_way_to_evidence_and_the_wrong_iks_keep_theirs(assessed):
    assessment, y_true = assessed(n=300)
    noise = np.random.default_rng(0).integers(0, 255, (300, 40, 40)).astype(np.uint8)
    whole = make_report(assessment, y_true)
    room = len(whole.encode()) + 400_000
    html = make_report(assessment, y_true, samples=noise, max_bytes=room)
    assert len(html.encode()) <= room
    facts, arrays = read_page(html)
    pictured = arrays["samplePictures"] >= 0
    assert facts["n"] == 300
    assert 0 < pictured.sum() < 300
    wrong = (assessment.belief != y_true) & (assessment.assertion == Assertion.IK)
    assert wrong.any()
    assert pictured[wrong].all()
    assert f"{pictured.sum()} of 300 samples have a picture" in html


def test_too_much_evidence_is_drawn_from_as_well():
    assessment, y_true = large_assessment(5_000, n_classes=40)
    by_class = assessment.under(dict.fromkeys(assessment.evidence, RelativeBall(1.6, 0.9)))
    html = make_report(by_class, y_true, max_bytes=1_500_000)
    assert len(html.encode()) <= 1_500_000
    facts, _ = read_page(html)
    assert facts["n"] < 5_000
    assert "of 5,000 samples, drawn at random" in html


def test_training_samples_come_from_a_mapping_too(assessed):
    assessment, y_true = assessed(n=30)
    rows = np.unique(assessment.evidence["hidden"].exemplars)
    training = {int(row): np.full((3, 3), row / 80) for row in rows[:10]}
    _, arrays = read_page(make_report(assessment, y_true, training=training))
    assert 0 < len(arrays["trainingRows"]) <= 10
    assert set(arrays["trainingRows"].tolist()) <= set(training)


def test_what_cannot_be_reported_is_refused(assessed):
    assessment, y_true = assessed(n=10)
    with pytest.raises(InputError, match="a page needs an Assessment"):
        make_report(evaluate(assessment, y_true))
    with pytest.raises(InputError, match="10 inputs that were assessed; got 9"):
        make_report(assessment, y_true, samples=np.zeros((9, 2)))
    with pytest.raises(InputError, match="one label for each of the 10"):
        make_report(assessment, y_true[:9])
    with pytest.raises(InputError, match="max_samples must be >= 1; got 0"):
        make_report(assessment, y_true, max_samples=0)
    with pytest.raises(InputError, match="the assessment is empty"):
        make_report(assessment[:0])
    with pytest.raises(InputError, match="max_bytes"):
        make_report(assessment, y_true, max_bytes=1000)


def test_pictures_are_the_samples(assessed):
    assessment, y_true = assessed(n=4)
    images = np.arange(4 * 6).reshape(4, 6) / 24
    html = make_report(assessment, y_true, samples=images, renderer=as_image(2, 3))
    _, arrays = read_page(html)
    part = gzip.decompress(
        base64.b64decode(re.search(r'id="pictures-0">(.*?)</script>', html, re.S)[1])
    )
    index = arrays["pictures"].reshape(-1, 6)
    for i in range(4):
        kind, height, width, at, offset, length = index[arrays["samplePictures"][i]].tolist()
        assert (kind, height, width, at, length) == (0, 2, 3, 0, 6)
        pixels = np.frombuffer(part, np.uint8, length, offset)
        np.testing.assert_array_equal(pixels, np.rint(images[i] * 255))
