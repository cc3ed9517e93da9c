"""Results: what was stored comes back, what is not a result does not."""

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.methods import METHODS
from reproduction.protocol import Cell, Outcome
from reproduction.results import COLUMNS, read_csv, recall, store, to_csv
from reproduction.setups import SETUPS
from reproduction.tables import Key, load_published

IRIS = SETUPS["iris"]
TABLES = Path(os.environ.get("IKNOW_DATA") or "nowhere").parent / "paper" / "tables.csv"
handed_down = pytest.mark.skipif(not TABLES.is_file(), reason="IKNOW_DATA has no paper beside it")


def undefined(key, value):
    """Some accuracies are over no samples."""
    return None if key.method == "ball" and key.metric == "A_IK" else value


def only_file(folder):
    (path,) = (path for path in folder.rglob("*") if path.is_file())
    return path


def coverages_of(outcome):
    """A short outcome: one cell of each method."""
    return replace(outcome, cells=outcome.cells[: 3 * len(METHODS) : 3])


# Seeds that are finished


def test_what_is_stored_comes_back(tmp_path, outcome_of):
    outcome = outcome_of("iris", 3, undefined)
    store(tmp_path / "new", IRIS, outcome)
    assert only_file(tmp_path) == tmp_path / "new" / "runs" / "iris-3.json"
    assert recall(tmp_path / "new", IRIS, 3) == outcome


def test_what_was_not_stored_is_none(tmp_path, outcome_of):
    assert recall(tmp_path / "nowhere", IRIS, 0) is None
    store(tmp_path, IRIS, outcome_of("iris", 3))
    assert recall(tmp_path, IRIS, 4) is None
    assert recall(tmp_path, SETUPS["mnist"], 3) is None


def test_a_file_cut_anywhere_is_none(tmp_path, outcome_of):
    store(tmp_path, IRIS, coverages_of(outcome_of("iris")))
    path = only_file(tmp_path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert recall(tmp_path, IRIS, 0) is None, length


def test_a_changed_byte_never_gives_another_result(tmp_path, outcome_of):
    outcome = coverages_of(outcome_of("iris"))
    store(tmp_path, IRIS, outcome)
    path = only_file(tmp_path)
    content = path.read_bytes()
    n_refused = 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        found = recall(tmp_path, IRIS, 0)
        assert found in (None, outcome), place
        n_refused += found is None
    assert n_refused > 0.9 * len(content)


def change(path, edit):
    sealed = json.loads(path.read_text("utf-8"))
    edit(sealed["content"])
    path.write_text(json.dumps(sealed), "utf-8")


def test_a_value_changed_by_hand_is_none(tmp_path, outcome_of):
    store(tmp_path, IRIS, outcome_of("iris"))
    path = only_file(tmp_path)
    change(path, lambda content: None)
    assert recall(tmp_path, IRIS, 0) is not None  # written otherwise, the same values
    change(path, lambda content: content["cells"][5].__setitem__(-1, 0.123))
    assert recall(tmp_path, IRIS, 0) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", "1", '{"content": 1}', '{"sha256": 1, "content": []}', "\x00"]
)
def test_other_json_is_none(tmp_path, text):
    path = tmp_path / "runs" / "iris-0.json"
    path.parent.mkdir()
    path.write_text(text, "utf-8")
    assert recall(tmp_path, IRIS, 0) is None


def test_bytes_that_are_no_text_are_none(tmp_path):
    path = tmp_path / "runs" / "iris-0.json"
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe\xfa")
    assert recall(tmp_path, IRIS, 0) is None


def test_another_setup_is_none(tmp_path, outcome_of):
    store(tmp_path, IRIS, outcome_of("iris"))
    others = [
        IRIS.quick(),
        replace(IRIS, training=replace(IRIS.training, batch=64)),
        replace(IRIS, noise=replace(IRIS.noise, gaussian=0.04)),
        replace(IRIS, layers=("relu1", "logits")),
    ]
    for other in others:
        assert recall(tmp_path, other, 0) is None
    assert recall(tmp_path, replace(IRIS), 0) is not None
    store(tmp_path, IRIS.quick(), outcome_of("iris"))
    assert recall(tmp_path, IRIS.quick(), 0) is not None


def test_other_methods_are_none(tmp_path, outcome_of):
    outcome = outcome_of("iris")
    earlier = [replace(c, method=c.method.replace("default", "earlier")) for c in outcome.cells]
    for cells in (earlier, [cell for cell in outcome.cells if cell.method != "knn"]):
        store(tmp_path, IRIS, replace(outcome, cells=cells))
        assert recall(tmp_path, IRIS, 0) is None
    store(tmp_path, IRIS, outcome)
    assert recall(tmp_path, IRIS, 0) is not None


def test_the_file_of_another_seed_is_none(tmp_path, outcome_of):
    store(tmp_path, IRIS, outcome_of("iris", 0))
    path = only_file(tmp_path)
    path.rename(path.with_name("iris-1.json"))
    assert recall(tmp_path, IRIS, 1) is None


def test_a_quick_run_leaves_the_full_one_alone(tmp_path, outcome_of):
    outcome = outcome_of("iris")
    store(tmp_path, IRIS, outcome)
    store(tmp_path, IRIS.quick(), outcome_of("iris", 0, lambda key, value: 0.25))
    assert recall(tmp_path, IRIS, 0) == outcome


# The table


def test_the_table_comes_back(tmp_path, outcome_of):
    outcomes = [
        outcome_of("synthetic_control", 0, undefined),
        outcome_of("synthetic_control", 1),
        outcome_of("grid_stability_12", 0),
    ]
    path = tmp_path / "results.csv"
    path.write_bytes(to_csv(outcomes))
    found = read_csv(path)
    assert [(each.name, each.seed) for each in found] == [(o.name, o.seed) for o in outcomes]
    for one, other in zip(found, outcomes, strict=True):
        assert one.cells == other.cells  # once, though some are in two tables
        assert one.facts == {}


@given(st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=8))
def test_values_come_back_to_six_digits(tmp_path_factory, values):
    cells = [Cell("two", f"m{i}", "nominal", "A_IK", value) for i, value in enumerate(values)]
    path = tmp_path_factory.mktemp("csv") / "results.csv"
    path.write_bytes(to_csv([Outcome("iris", 0, cells, {})]))
    (found,) = read_csv(path)
    for cell, value in zip(found.cells, values, strict=True):
        assert (cell.value is None) == (value is None)
        assert value is None or abs(cell.value - value) <= 0.5e-6 + 1e-15


def read_rows(content):
    rows = list(csv.reader(content.decode().splitlines()))
    return rows[0], [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def test_rows_say_which_table_has_the_cell(outcome_of):
    names = [name for name, setup in SETUPS.items() if name == setup.published]
    columns, rows = read_rows(to_csv([outcome_of(name) for name in names]))
    assert tuple(columns) == COLUMNS
    published = load_published()
    in_paper = [row for row in rows if row["table"] != "extra"]
    assert len(in_paper) == 648
    assert {Key(*(row[f] for f in Key._fields)) for row in in_paper} == set(published)
    extra = {Key(*(row[f] for f in Key._fields)) for row in rows if row["table"] == "extra"}
    assert not extra & set(published)
    cells = sum(len(outcome_of(name).cells) for name in names)
    assert len(extra) + len(published) == cells


def test_a_variant_is_extra_throughout(outcome_of):
    _, rows = read_rows(to_csv([outcome_of("grid_stability_12")]))
    assert {row["table"] for row in rows} == {"extra"}
    assert {row["dataset"] for row in rows} == {"grid_stability_12"}


@handed_down
def test_columns_and_words_are_those_of_the_paper_s_tables(outcome_of):
    with TABLES.open(encoding="utf-8", newline="") as file:
        printed = list(csv.DictReader(file))
    assert (*printed[0], "seed") == COLUMNS
    names = dict.fromkeys(row["dataset"] for row in printed)
    _, rows = read_rows(to_csv([outcome_of(name) for name in names]))
    words = [field for field in printed[0] if field != "value"]
    ours = sorted([row[f] for f in words] for row in rows if row["table"] != "extra")
    assert ours == sorted([row[f] for f in words] for row in printed)
    # The made-up outcomes have the published values.
    values = {tuple(row[f] for f in words): float(row["value"]) for row in rows}
    for row in printed:
        assert values[tuple(row[f] for f in words)] == float(row["value"])
