import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.console import show
from benchmarks.report import to_markdown, write_report
from benchmarks.tables import (
    Table,
    cases_table,
    quantity_tables,
    race_tables,
    scaling_tables,
    targets_table,
)
from benchmarks.targets import judge
from benchmarks.wording import amount, duration, ratio, three_digits


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0.0123, "0.012 µs"),
        (1.234, "1.23 µs"),
        (99.96, "100 µs"),
        (999.4, "999 µs"),
        (999.6, "1.00 ms"),
        (12345.0, "12.3 ms"),
        (2_500_000.0, "2.50 s"),
        (3.2e9, "3,200 s"),
    ],
)
def test_durations_have_the_unit_that_suits_them(microseconds, text):
    assert duration(microseconds) == text


def test_other_numbers_are_words_too():
    assert amount(1.5, "s") == "1.50 s"
    assert amount(2e3, "ms") == "2.00 s"
    assert amount(123.4, "MiB") == "123 MiB"
    assert ratio(None) == "–"
    assert ratio(0.5) == "0.500×"
    assert three_digits(0.0) == "0"
    assert three_digits(1234.5) == "1,230"


def test_a_race_is_told_as_times_and_ratios(results):
    (table,) = [each for each in race_tables(results) if each.title == "mnist: assertion"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["bare products"] == ("100", "9.00 µs", "18.0 µs", "0.900×", "1.00×")
    assert rows["iknow, cells"] == ("100", "10.0 µs", "20.0 µs", "1.00×", "1.11×")
    assert rows["FAISS, flat"] == ("100", "35.0 µs", "70.0 µs", "3.50×", "3.89×")


def test_neighbours_stand_beside_class_distances(results):
    (table,) = [e for e in race_tables(results) if e.title == "mnist, relu2: class distances"]
    contestants = [row[0] for row in table.rows]
    assert "iknow, dense, with 10 neighbours" in contestants
    assert "iknow, dense, 5 nearest of each class" in contestants


def test_curves_have_tables_of_their_own(results):
    rows, features = scaling_tables(results)
    assert [row[0] for row in rows.rows] == ["1,000", "100,000"]
    assert [row[0] for row in features.rows] == ["2", "128"]
    assert rows.headings[0] == "rows"
    assert not any("rows" in table.title for table in race_tables(results))
    assert "rows 1,000" not in [row[0] for row in cases_table(results).rows]


def test_a_contestant_without_a_number_has_a_dash(results):
    fewer = replace(
        results,
        timings=tuple(
            each
            for each in results.timings
            if (each.case, each.contestant) != ("rows 1,000", "scikit-learn, BallTree")
        ),
    )
    table = scaling_tables(fewer)[0]
    assert table.rows[0][table.headings.index("BallTree")] == "–"
    assert table.rows[1][table.headings.index("BallTree")] != "–"


def test_every_number_is_in_a_table(results):
    cells = {cell for table in quantity_tables(results) for row in table.rows for cell in row}
    for each in results.quantities:
        assert amount(each.value, each.unit) in cells


def test_markdown_is_a_table_with_its_bars_escaped():
    text = to_markdown(Table("T", ("a", "b", "c"), (("x", "1", "y|z"),), words=("c",)))
    assert text == "## T\n\n| a | b | c |\n|---|---:|---|\n| x | 1 | y\\|z |\n"
    assert to_markdown(Table("T", ("a",), ())) == ""


def test_the_page_has_all_tables_and_the_figure(results):
    page = write_report(results, "cost.png")
    assert "](cost.png)" in page
    for title in (
        "What was measured",
        "Cases",
        "mnist: assertion",
        "Left out",
        "Machine",
        "Memory",
    ):
        assert f"## {title}\n" in page
    widths = [line.count("|") for line in page.replace("\\|", "").splitlines() if "|" in line]
    assert min(widths) >= 3
    assert "an abacus" in page
    assert "](cost.png)" not in write_report(results, None)


def test_a_quick_run_says_so(results):
    quick = replace(results, quick=True)
    assert "quick run" in write_report(quick, None)
    assert "quick run" not in write_report(results, None)
    assert targets_table(judge(quick), quick=True).note


def test_the_terminal_shows_all_of_it_in_100_columns(results):
    stream = io.StringIO()
    show(results, Console(file=stream, width=100))
    text = stream.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 100
    for word in ("Targets", "an abacus", "mnist: assertion", "no room | on the shelf"):
        assert word in text
    shown = text[text.index("Targets") :]
    assert len(re.findall(r"\byes\b", shown)) == len(judge(results))
