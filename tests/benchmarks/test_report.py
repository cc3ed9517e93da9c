"""What is made of results: JSON, verdicts, tables, the page and its figure."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.records import (
    ASSERTION,
    BALL_TREE,
    CELLS,
    CLASS_DISTANCES,
    DENSE,
    EXTRA_MEMORY,
    FAISS,
    LOAD,
    MEDIAN_LATENCY,
    PRODUCTS,
    SKLEARN,
    WITH_FEW,
    WITH_NEIGHBORS,
    CaseFacts,
    LeftOut,
    Quantity,
    Results,
    Timing,
    from_json,
    to_json,
)
from benchmarks.report import quantity_tables, race_tables, scaling_tables, write_report
from benchmarks.targets import amount, duration, judge, ratio, three_digits
from iknow.errors import InputError

pytestmark = pytest.mark.slow

RACED = {  # microseconds per query, by task and contestant; every target is met, some just so
    CLASS_DISTANCES: {PRODUCTS: 8.0, DENSE: 10.0, SKLEARN: 30.0, FAISS: 40.0},
    WITH_NEIGHBORS: {DENSE: 20.0},
    WITH_FEW: {DENSE: 15.0},
    ASSERTION: {PRODUCTS: 9.0, DENSE: 30.0, CELLS: 10.0, SKLEARN: 30.0, FAISS: 35.0},
}
CURVES = {"rows 1,000": (1_000, 64), "rows 100,000": (100_000, 64), "features 2": (5_000, 2),
          "features 128": (5_000, 128)}  # fmt: skip


def timing(case, task, contestant, us_per_query):
    """A timing of 100 queries whose best round is the given one, and whose others are worse."""
    seconds = us_per_query * 100 / 1e6
    return Timing(case, task, contestant, 100, (3 * seconds, seconds, 2 * seconds))


@pytest.fixture
def results():
    layers = "mnist, relu2", "mnist, logits", "synthetic, 10 classes"
    of = {task: layers if task != ASSERTION else ("mnist", layers[2]) for task in RACED}
    timings = [timing(case, task, who, us) for task, row in RACED.items() for case in of[task]
               for who, us in row.items()]  # fmt: skip
    for name, (n, d) in CURVES.items():
        cost = 1e-3 * n * d
        costs = {PRODUCTS: cost, DENSE: 1.5 * cost, CELLS: 2 * cost**0.5, BALL_TREE: 20 * cost}
        timings += [timing(name, ASSERTION, who, us) for who, us in costs.items()]
    facts = {"assertions": {"IK": 0.7, "IMK": 0.2, "IDK": 0.1}}
    cases = [
        CaseFacts("mnist", "digits", 50_000, 10, 100, {"relu2": 32, "logits": 10}, facts),
        CaseFacts("synthetic, 10 classes", "", 1_000_000, 10, 100, {"layer": 64}, facts),
        *(CaseFacts(name, "", n, 10, 100, {"layer": d}) for name, (n, d) in CURVES.items()),
    ]
    quantities = [
        Quantity("memory", "1,000,000 × 64", EXTRA_MEMORY, DENSE, 256.0, "MiB"),
        Quantity("latency", "mnist", MEDIAN_LATENCY, DENSE, 1500.0, "µs", "1,000 queries"),
        Quantity("latency", "mnist", MEDIAN_LATENCY, CELLS, 900.0, "µs", "1,000 queries"),
        Quantity("bundle", "1,000,000 × 64", LOAD, "iknow", 3.2, "ms"),
    ]
    left_out = [LeftOut("pixels", "all", "all", "no room | on the shelf")]
    machine = {"processor": "an abacus", "cores": "2"}
    return Results("9.9", False, 3, machine, cases, timings, quantities, left_out)


def test_results_survive_json_and_other_documents_are_refused(results):
    assert from_json(to_json(results)) == results
    for text in ("[]", "{}", '{"format": 999}', "null"):
        with pytest.raises(InputError, match="run the benchmark again"):
            from_json(text)


def test_a_ratio_is_between_best_rounds_of_one_case(results):
    assert Timing("c", "t", "s", 50, (4e-3, 1e-3, 2e-3, 9e-3)).best == pytest.approx(20.0)
    assert Timing("c", "t", "s", 50, (4e-3, 1e-3, 2e-3, 9e-3)).median == pytest.approx(60.0)
    for case, who, to, expected in (
        ("mnist, relu2", DENSE, PRODUCTS, 1.25), ("mnist, relu2", FAISS, DENSE, 4.0),
        ("mnist, relu2", "nobody", DENSE, None), ("no case", FAISS, DENSE, None),
    ):  # fmt: skip
        assert results.ratio(case, CLASS_DISTANCES, who, to) == pytest.approx(expected)


def test_numbers_are_as_people_read_them():
    durations = {0.0123: "0.012 µs", 1.234: "1.23 µs", 99.96: "100 µs", 999.4: "999 µs",
                 999.6: "1.00 ms", 12345.0: "12.3 ms", 2.5e6: "2.50 s",
                 3.2e9: "3,200 s"}  # fmt: skip
    assert {us: duration(us) for us in durations} == durations
    assert (amount(1.5, "s"), amount(2e3, "ms"), amount(123.4, "MiB")) == (
        "1.50 s", "2.00 s", "123 MiB",
    )  # fmt: skip
    assert (ratio(None), ratio(0.5)) == ("–", "0.500×")
    assert (three_digits(0.0), three_digits(1234.5)) == ("0", "1,230")


def slower(results, case, task, contestant, factor):
    key = case, task, contestant
    changed = [
        replace(each, seconds=tuple(factor * s for s in each.seconds))
        if (each.case, each.task, each.contestant) == key
        else each
        for each in results.timings
    ]
    assert changed != results.timings
    return replace(results, timings=changed)


def larger(results, what, factor, contestant=None):
    changed = [
        replace(e, value=factor * e.value)
        if e.what == what and contestant in (None, e.contestant)
        else e
        for e in results.quantities
    ]
    return replace(results, quantities=changed)


def missed(results):
    return [verdict.target for verdict in judge(results) if verdict.met is False]


def test_every_target_is_met_or_missed_by_its_worst_case(results):
    assert [verdict.met for verdict in judge(results)] == [True] * 13
    assert {v.met for v in judge(replace(results, cases=[], timings=[], quantities=[]))} == {None}
    assert "rows 100,000" not in {verdict.where for verdict in judge(results)}
    for case, task, contestant, factor, target in (
        ("mnist, relu2", CLASS_DISTANCES, DENSE, 1.01, "class distances ÷ bare products, 32+"),
        ("mnist, logits", CLASS_DISTANCES, DENSE, 1.61, "class distances ÷ bare products, 10"),
        ("mnist, relu2", WITH_NEIGHBORS, DENSE, 1.01, "with 10 neighbours"),
        ("mnist, logits", WITH_FEW, DENSE, 1.01, "5 nearest of each class"),
        ("mnist, logits", CLASS_DISTANCES, SKLEARN, 0.99, "class distances: scikit-learn"),
        ("mnist, logits", CLASS_DISTANCES, FAISS, 0.7, "class distances: FAISS"),
        ("synthetic, 10 classes", ASSERTION, SKLEARN, 0.99, "assertion: scikit-learn"),
        ("synthetic, 10 classes", ASSERTION, FAISS, 0.85, "assertion: FAISS"),
        ("mnist", ASSERTION, DENSE, 0.99, "assertion on MNIST"),
        ("rows 100,000", ASSERTION, CELLS, 4.0, "cells: cost grows"),
    ):
        worse = slower(results, case, task, contestant, factor)
        assert any(each.startswith(target) for each in missed(worse)), target
    for what, factor, target in (
        (EXTRA_MEMORY, 1.01, "memory"),
        (MEDIAN_LATENCY, 1.2, "single query"),
        (LOAD, 99, "loading"),
    ):
        (found,) = missed(larger(results, what, factor))
        assert found.startswith(target)
    verdict = judge(slower(results, "synthetic, 10 classes", CLASS_DISTANCES, DENSE, 1.6))[0]
    assert (verdict.where, verdict.measured) == ("synthetic, 10 classes", "2×")
    assert missed(larger(results, MEDIAN_LATENCY, 10, DENSE)) == []  # the faster index is judged
    assert missed(larger(results, MEDIAN_LATENCY, 10, CELLS)) != []


@pytest.mark.parametrize("exponent", [-0.5, 0, 0.3, 2])
def test_growth_is_the_exponent_of_a_power_law(results, exponent):
    rows = {case.name: case.n_rows for case in results.cases if case.name.startswith("rows")}
    timings = [
        replace(each, seconds=(7.0 * rows[each.case] ** exponent,)) if each.case in rows else each
        for each in results.timings
    ]
    (verdict,) = (v for v in judge(replace(results, timings=timings)) if "grows" in v.target)
    assert (float(verdict.measured), verdict.met) == (exponent, exponent <= 0.75)


def test_races_and_curves_are_told_as_times_and_ratios(results):
    tables = {table.title: table for table in race_tables(results)}
    rows = {row[0]: row[1:] for row in tables["mnist: assertion"].rows}
    assert rows["bare products"] == ("100", "9.00 µs", "18.0 µs", "0.900×", "1.00×")
    assert rows["iknow, cells"] == ("100", "10.0 µs", "20.0 µs", "1.00×", "1.11×")
    assert rows["FAISS, flat"] == ("100", "35.0 µs", "70.0 µs", "3.50×", "3.89×")
    contestants = [row[0] for row in tables["mnist, relu2: class distances"].rows]
    assert "iknow, dense, with 10 neighbours" in contestants
    assert "iknow, dense, 5 nearest of each class" in contestants
    fewer = [t for t in results.timings if (t.case, t.contestant) != ("rows 1,000", BALL_TREE)]
    rows, features = scaling_tables(replace(results, timings=fewer))
    assert [row[0] for row in rows.rows] == ["1,000", "100,000"]
    assert [row[0] for row in features.rows] == ["2", "128"]
    column = rows.headings.index("BallTree")
    assert [row[column] == "–" for row in rows.rows] == [True, False]


def test_the_page_has_every_number_and_names_the_machine(results):
    page = write_report(results, "cost.png")
    titles = "What was measured", "Cases", "mnist: assertion", "Left out", "Machine", "Memory"
    for words in (
        "](cost.png)",
        "an abacus",
        "no room \\| on the shelf",
        *(f"## {t}\n" for t in titles),
    ):
        assert words in page
    cells = {cell for table in quantity_tables(results) for row in table.rows for cell in row}
    assert {amount(each.value, each.unit) for each in results.quantities} <= cells
    assert "](cost.png)" not in write_report(results)
    assert ["quick run" in write_report(replace(results, quick=q)) for q in (True, False)] == [
        True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("figure", [True, False])
def test_the_command_writes_all_files_at_the_end(tmp_path, monkeypatch, results, figure):
    if figure:
        pytest.importorskip("matplotlib", reason="the figure needs matplotlib")
    else:
        monkeypatch.setitem(__import__("sys").modules, "benchmarks.matplotlib", None)
    (tmp_path / "benchmark.json").write_text("precious")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_sections", fail)
    CliRunner().invoke(command.app, ["--out", str(tmp_path)])
    assert (tmp_path / "benchmark.json").read_text() == "precious"
    monkeypatch.setattr(command, "run_sections", lambda *_: results)
    done = CliRunner().invoke(command.app, ["--out", str(tmp_path)])
    assert done.output.count("yes") == len(judge(results))
    pictures = {"cost.png", "cost.svg"} if figure else set()
    names = {"benchmark.json", "report.md", *pictures}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert from_json((tmp_path / "benchmark.json").read_text("utf-8")) == results
    assert ("cost.png" in (tmp_path / "report.md").read_text("utf-8")) == figure


def test_the_figure_shows_the_best_times_and_is_always_the_same(results):
    pytest.importorskip("matplotlib", reason="the figure needs matplotlib")
    from benchmarks.matplotlib import draw_cost, spread_apart, to_png, to_svg

    left, right = draw_cost(results).axes
    for axes, ticks in ((left, ["1k", "100k"]), (right, ["2", "128"])):
        names = {text.get_text() for text in axes.texts}  # all that the results have
        assert names == {"iknow, cells", "iknow, dense", "bare products", "BallTree"}
        assert len(axes.lines) == 4
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert [label.get_text() for label in axes.get_xticklabels()] == ticks
    assert [line.get_xdata().tolist() for line in left.lines] == [[1_000, 100_000]] * 4
    best = [results.find(f"rows {n}", ASSERTION, CELLS).best for n in ("1,000", "100,000")]
    assert left.lines[0].get_ydata().tolist() == pytest.approx(best)
    for write, start in ((to_png, b"\x89PNG"), (to_svg, b"<?xml")):
        first, again = (write(draw_cost(results)) for _ in range(2))
        assert first.startswith(start)
        assert first == again
    moved = spread_apart([0.5, 0.51, 0.1, 0.49, 0.9], 0.05)
    assert np.argsort(moved).tolist() == [2, 3, 0, 1, 4]
    assert np.diff(np.sort(moved)).min() > 0.05 - 1e-6
    assert (moved[2], moved[4]) == (pytest.approx(0.1), pytest.approx(0.9))
    assert spread_apart([], 0.05) == []
