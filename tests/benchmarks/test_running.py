import io
import json
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks import console, running
from benchmarks.plan import SECTIONS, make_plan
from benchmarks.recording import Recorder
from benchmarks.records import ASSERTION, CELLS, from_json
from benchmarks.running import run_plan
from benchmarks.synthetic import Shape
from iknow.errors import DataError, InputError


def tiny(sections):
    """A quick plan made so small that it takes a second."""
    plan = make_plan(sections, quick=True, repeats=1)
    shapes = {"rows 200": Shape(200, 4, 2, 20), "rows 400": Shape(400, 4, 2, 20)}
    return replace(
        plan,
        synthetic={"synthetic, 2 classes": Shape(300, 4, 2, 20)},
        scaling={"rows": shapes, "features": {"features 4": Shape(200, 4, 2, 20)}},
    )


def test_sections_are_chosen_by_name():
    assert make_plan(None, False, None).sections == SECTIONS
    assert make_plan("scaling, mnist", False, None).sections == ("mnist", "scaling")


@pytest.mark.parametrize("sections", ["", ",", "mnist,nonsense"])
def test_unknown_sections_are_refused(sections):
    with pytest.raises(InputError, match="choose from mnist, synthetic"):
        make_plan(sections, False, None)


def test_repeats_are_counted_from_one():
    assert make_plan(None, False, 9).effort.repeats == 9
    assert make_plan(None, False, 9).scaling_effort.repeats == 9
    with pytest.raises(InputError, match="at least one round"):
        make_plan(None, False, 0)


def test_every_section_can_be_run():
    assert all(callable(getattr(running._Sections, name)) for name in SECTIONS)


def test_a_quick_plan_is_smaller_in_everything():
    full, quick = make_plan(None, False, None), make_plan(None, True, None)
    assert max(s.n_rows for s in quick.synthetic.values()) < max(
        s.n_rows for s in full.synthetic.values()
    )
    assert quick.mnist_rows is not None
    assert quick.bundle.n_rows < full.bundle.n_rows


def test_a_run_says_what_it_does_and_keeps_what_it_finds():
    said, begun = [], []
    results = run_plan(tiny("synthetic,scaling"), Recorder(said.append), begun.append)
    assert begun == ["synthetic", "scaling"]
    assert any("rows 400" in text for text in said)
    assert results.find("synthetic, 2 classes", ASSERTION, CELLS) is not None
    assert results.find("features 4", ASSERTION, CELLS) is not None
    assert not any("warm-up" in each.case for each in results.timings)


def test_missing_data_leaves_out_a_section_and_not_the_rest(monkeypatch):
    def fail(n_rows):
        raise DataError("no digits here")

    monkeypatch.setattr(running, "train_digits", fail)
    results = run_plan(tiny("mnist,synthetic,selection"), Recorder(), lambda name: None)
    assert [(e.case, e.reason) for e in results.left_out if e.task == "all"] == [
        ("mnist", "no digits here"),
        ("selection", "no digits here"),
    ]
    assert results.find("synthetic, 2 classes", ASSERTION, CELLS) is not None


def test_the_command_writes_all_files(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the figure needs matplotlib")
    monkeypatch.setattr(console, "make_plan", lambda *_: tiny("scaling"))
    stream = io.StringIO()
    shown = Console(file=stream, width=100)
    console.run(tmp_path / "out", only=None, quick=True, repeats=None, console=shown)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"benchmark.json", "report.md", "cost.png", "cost.svg"}
    results = from_json((tmp_path / "out/benchmark.json").read_text("utf-8"))
    assert results.quick
    targets = json.loads((tmp_path / "out/benchmark.json").read_text("utf-8"))["targets"]
    assert {each["target"]: each["met"] for each in targets}[
        "memory beyond index and result"
    ] is None
    assert "Written to" in stream.getvalue()


def test_a_run_that_fails_destroys_nothing(tmp_path, monkeypatch):
    (tmp_path / "benchmark.json").write_text("precious")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(console, "run_plan", fail)
    with pytest.raises(KeyboardInterrupt):
        console.run(
            tmp_path, only="scaling", quick=True, repeats=1, console=Console(file=io.StringIO())
        )
    assert [path.name for path in tmp_path.iterdir()] == ["benchmark.json"]
    assert (tmp_path / "benchmark.json").read_text() == "precious"


def test_without_matplotlib_there_is_a_page_without_a_figure(tmp_path, monkeypatch, results):
    from benchmarks.files import write_all

    monkeypatch.setitem(sys.modules, "benchmarks.matplotlib", None)
    assert {path.name for path in write_all(results, tmp_path)} == {"benchmark.json", "report.md"}
    assert "cost.png" not in (tmp_path / "report.md").read_text("utf-8")


@pytest.mark.slow
def test_a_quick_run_measures_every_section(tmp_path):
    """Needs MNIST and torch for two of the sections, which otherwise are left out."""
    shown = Console(file=io.StringIO(), width=100)
    console.run(tmp_path, only=None, quick=True, repeats=1, console=shown)
    results = from_json((tmp_path / "benchmark.json").read_text("utf-8"))
    left_out = {each.case for each in results.left_out if each.task == "all"}
    assert left_out <= {"mnist", "selection"}
    kinds = {each.kind for each in results.quantities}
    assert {"build", "latency", "memory", "import", "bundle"} <= kinds
    if left_out:
        pytest.skip("; ".join(each.reason for each in results.left_out if each.task == "all"))
    assert {"tuning", "selection", "growth"} <= kinds
    assert [each for each in results.left_out if "its answer differs" in each.reason] == []


def test_nothing_optional_is_needed_to_begin(run_without):
    optional = ["torch", "faiss", "matplotlib", "art", "PIL", "optuna", "pandas"]
    assert run_without(optional, "import benchmarks.console; print('begun')") == "begun\n"
