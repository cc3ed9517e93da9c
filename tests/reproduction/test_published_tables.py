"""The published numbers against the tables as they were handed down."""

import csv
import os
from collections import Counter
from pathlib import Path

import pytest

from reproduction.tables import ACCURACIES, METRICS, Key, find_tables, load_published

TABLES = Path(os.environ.get("IKNOW_DATA") or "nowhere").parent / "paper" / "tables.csv"
handed_down = pytest.mark.skipif(not TABLES.is_file(), reason="IKNOW_DATA has no paper beside it")


def read_tables():
    with TABLES.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def key_of(row):
    return Key(*(row[field] for field in Key._fields))


@handed_down
def test_every_number_is_the_printed_one():
    rows = read_tables()
    assert len(rows) == 648
    printed = {key_of(row): float(row["value"]) for row in rows}
    assert load_published() == printed
    assert len(printed) == 504


@handed_down
def test_every_number_is_in_the_tables_it_is_printed_in():
    tables = {}
    for row in read_tables():
        tables.setdefault(key_of(row), []).append(row["table"])
    for key, where in tables.items():
        assert sorted(find_tables(*key)) == sorted(where), key


@handed_down
def test_the_accuracies_are_those_of_the_tables_own_text():
    tex = next(TABLES.parent.glob("*.tex")).read_text("utf-8")
    for dataset, accuracy in ACCURACIES.items():
        assert f"{100 * accuracy:g}" in tex, dataset


def test_there_are_504_numbers_of_which_144_are_printed_twice():
    published = load_published()
    assert len(published) == 504
    counts = Counter(find_tables(*key) for key in published)
    # 3 datasets with 4 methods; 3 with 4 in both tables and the rest (H-1, logit) in one.
    assert counts == {
        ("main",): 3 * 4 * 12,
        ("main", "supplement"): 3 * 4 * 12,
        ("supplement",): 3 * (1 + 5) * 12,
    }
    assert all(0 <= value <= 1 for value in published.values())
    assert {key.metric for key in published} == set(METRICS)


def test_a_number_the_paper_does_not_have_is_in_no_table():
    assert find_tables("iris", "logit", "ball", "nominal", "F_IK") == ()
    assert find_tables("iris", "two", "h1", "nominal", "F_IK") == ()
    assert find_tables("iris", "two", "ball", "adversarial", "F_IK") == ()
    assert find_tables("iris", "two", "ball", "large", "F_IK") == ("main",)


def test_some_numbers_read_by_eye():
    published = load_published()
    assert published["iris", "two", "ball", "large", "A_notIK"] == 0.459
    assert published["gtsrb", "logit", "h2", "adversarial", "F_IK"] == 0.153
    assert published["mnist", "two", "knn", "uniform", "A_IK"] == 0.976
