"""Many seeds: stored and recalled, resumed, interrupted, side by side, by the command line."""

import csv
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import reproduction.__main__ as command
from iknow.errors import IknowError, InputError
from reproduction import reproduce as module
from reproduction.agreement import count_agreeing
from reproduction.comparison import write_comparison
from reproduction.entries import group_outcomes
from reproduction.methods import METHODS
from reproduction.protocol import Cell, Outcome, run_seed
from reproduction.reproduce import choose_setups, list_runs, reproduce
from reproduction.results import COLUMNS, read_csv, recall, store, to_csv
from reproduction.setups import READINGS, SETUPS, Training, find_setup
from reproduction.tables import Key, load_published

pytestmark = pytest.mark.slow
IRIS, ITALY = SETUPS["iris"], SETUPS["italy_power_demand"]
TINY = replace(IRIS, training=Training(batch=16, epochs=15, least=0.0))
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


def test_what_is_stored_comes_back_for_its_own_setup_and_seed_alone(tmp_path, outcome_of):
    assert recall(tmp_path / "nowhere", IRIS, 0) is None
    outcome = outcome_of("iris", 3, undefined)
    store(tmp_path / "new", IRIS, outcome)
    path = only_file(tmp_path)
    assert path == tmp_path / "new" / "runs" / "iris-3.json"
    assert recall(tmp_path / "new", replace(IRIS), 3) == outcome
    others = [
        IRIS.quick(),
        replace(IRIS, training=replace(IRIS.training, batch=64)),
        replace(IRIS, noise=replace(IRIS.noise, gaussian=0.04)),
        replace(IRIS, layers=("relu1", "logits")),
        SETUPS["mnist"],
    ]
    assert [recall(tmp_path / "new", other, 3) for other in others] == [None] * 5
    store(tmp_path / "new", IRIS.quick(), outcome_of("iris", 3))  # leaves the full one alone
    assert recall(tmp_path / "new", IRIS.quick(), 3) != recall(tmp_path / "new", IRIS, 3) == outcome
    path.rename(path.with_name("iris-4.json"))
    assert recall(tmp_path / "new", IRIS, 4) is None
    earlier = [replace(c, method=c.method.replace("default", "earlier")) for c in outcome.cells]
    for cells in (earlier, [cell for cell in outcome.cells if cell.method != "knn"]):
        store(tmp_path / "new", IRIS, replace(outcome, cells=cells))
        assert recall(tmp_path / "new", IRIS, 3) is None


def test_a_damaged_file_never_gives_another_result(tmp_path, outcome_of):
    outcome = coverages_of(outcome_of("iris"))
    store(tmp_path, IRIS, outcome)
    path = only_file(tmp_path)
    content, n_refused = path.read_bytes(), 0
    for place in range(len(content)):
        path.write_bytes(content[:place])
        assert recall(tmp_path, IRIS, 0) is None, place
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        found = recall(tmp_path, IRIS, 0)
        assert found in (None, outcome), place
        n_refused += found is None
    assert n_refused > 0.9 * len(content)
    for other in (b"", b"[]", b"{}", b"null", b"1", b'{"content": 1}', b"\xff\xfe\xfa", b"\0",
                  b'{"sha256": 1, "content": []}'):  # fmt: skip
        path.write_bytes(other)
        assert recall(tmp_path, IRIS, 0) is None
    sealed = json.loads(content)
    path.write_text(json.dumps(sealed), "utf-8")  # written otherwise, the same values
    assert recall(tmp_path, IRIS, 0) == outcome
    sealed["content"]["cells"][5][-1] = 0.123
    path.write_text(json.dumps(sealed), "utf-8")
    assert recall(tmp_path, IRIS, 0) is None


def test_the_table_comes_back(tmp_path, outcome_of):
    outcomes = [
        outcome_of("synthetic_control", 0, undefined),
        outcome_of("synthetic_control", 1),
        outcome_of("grid_stability_12", 0),
    ]
    path = tmp_path / "results.csv"
    path.write_bytes(to_csv(outcomes))
    found = [(each.name, each.seed, each.cells, each.facts) for each in read_csv(path)]
    # Each cell once, though some are in two tables.
    assert found == [(each.name, each.seed, each.cells, {}) for each in outcomes]


@given(st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=8))
def test_values_come_back_to_six_digits(tmp_path_factory, values):
    cells = [Cell("two", f"m{i}", "nominal", "A_IK", value) for i, value in enumerate(values)]
    path = tmp_path_factory.mktemp("csv") / "results.csv"
    path.write_bytes(to_csv([Outcome("iris", 0, cells, {})]))
    (found,) = read_csv(path)
    for cell, value in zip(found.cells, values, strict=True):
        assert (cell.value is None) == (value is None)
        assert value is None or abs(cell.value - value) <= 0.5e-6 + 1e-15


def rows_of(outcomes):
    return list(csv.DictReader(to_csv(outcomes).decode().splitlines()))


def test_rows_say_which_table_has_the_cell(outcome_of):
    outcomes = [outcome_of(name) for name, s in SETUPS.items() if name == s.published]
    rows = rows_of(outcomes)
    assert tuple(rows[0]) == COLUMNS
    in_paper = [row for row in rows if row["table"] != "extra"]
    assert len(in_paper) == 648
    assert {Key(*(row[f] for f in Key._fields)) for row in in_paper} == set(load_published())
    extra = {Key(*(row[f] for f in Key._fields)) for row in rows if row["table"] == "extra"}
    assert not extra & set(load_published())
    assert len(extra) + len(load_published()) == sum(len(each.cells) for each in outcomes)
    variant = rows_of([outcome_of("grid_stability_12")])
    assert {(row["table"], row["dataset"]) for row in variant} == {("extra", "grid_stability_12")}


@handed_down
def test_columns_and_words_are_those_of_the_paper_s_tables(outcome_of):
    with TABLES.open(encoding="utf-8", newline="") as file:
        printed = list(csv.DictReader(file))
    assert (*printed[0], "seed") == COLUMNS
    rows = rows_of([outcome_of(name) for name in dict.fromkeys(row["dataset"] for row in printed)])

    def values(some):  # the made-up outcomes have the published values
        words = [field for field in printed[0] if field != "value"]
        return sorted(([row[f] for f in words], float(row["value"])) for row in some)

    assert values(row for row in rows if row["table"] != "extra") == values(printed)


# Running


class Stub:
    """In place of `run_seed`: made-up outcomes, a list of what ran, and errors at some seeds."""

    def __init__(self, make_outcome):
        self.make_outcome, self.ran, self.errors, self.devices = make_outcome, [], {}, set()

    def __call__(self, setup, seed, device="cpu"):
        self.devices.add(device)
        if error := self.errors.get((setup.name, seed)):
            raise error
        self.ran.append((setup.name, seed))
        return self.make_outcome(setup.name, seed, lambda key, value: value / (1 + seed))


@pytest.fixture
def stub(monkeypatch, outcome_of):
    it = Stub(outcome_of)
    monkeypatch.setattr(module, "run_seed", it)
    return it


def runs_of(n, *setups):
    return [(setup, seed) for setup in setups or (IRIS,) for seed in range(n)]


def stored(folder):
    return sorted(path.name for path in (folder / "runs").glob("*"))


def test_names_and_seeds():
    assert choose_setups("iris") == [IRIS]
    assert choose_setups("all") == list(SETUPS.values())
    assert choose_setups("gtsrb_short_attack") == [READINGS["gtsrb_short_attack"]]
    assert choose_setups("iris", quick=True) == [IRIS.quick()]
    assert all(setup.max_samples for setup in choose_setups("all", quick=True))
    assert list_runs([IRIS], None) == [(IRIS, seed) for seed in range(IRIS.seeds)]
    assert list_runs([IRIS, ITALY], 2) == [(IRIS, 0), (IRIS, 1), (ITALY, 0), (ITALY, 1)]


def test_all_is_run_kept_and_written(stub, tmp_path):
    out, told, runs = tmp_path / "new" / "out", [], runs_of(2, ITALY, IRIS)
    written = reproduce(runs, out, jobs=1, report=lambda *each: told.append(each))
    assert written == [out / "results.csv", out / "comparison.md"]
    order = [(setup.name, seed) for setup, seed in runs]
    assert stub.ran == order
    assert told == [(*each, False) for each in order]
    outcomes = [stub(setup, seed) for setup, seed in runs]
    assert written[0].read_bytes() == to_csv(outcomes)
    page = write_comparison(tmp_path / "page.md", outcomes)
    assert written[1].read_bytes() == page.read_bytes()
    assert stored(out) == sorted(f"{name}-{seed}.json" for name, seed in order)
    assert sorted(path.name for path in out.iterdir()) == ["comparison.md", "results.csv", "runs"]


def test_only_what_is_missing_is_run_and_results_do_not_depend_on_it(stub, tmp_path):
    out, told = tmp_path / "out", []
    reproduce(runs_of(2), out, jobs=1)
    reproduce(runs_of(4), out, jobs=1, report=lambda *each: told.append(each))
    assert stub.ran == [("iris", seed) for seed in range(4)]
    assert told == [("iris", seed, seed < 2) for seed in range(4)]
    (out / "runs" / "iris-2.json").write_text("damaged")
    parts = reproduce(runs_of(4), out, jobs=1)
    assert stub.ran[4:] == [("iris", 2)]
    whole = reproduce(runs_of(4), tmp_path / "whole", jobs=1)
    assert [path.read_bytes() for path in parts] == [path.read_bytes() for path in whole]
    other = replace(IRIS, training=replace(IRIS.training, batch=64))
    n_ran = len(stub.ran)
    reproduce(runs_of(2, other), out, jobs=1)
    assert stub.ran[n_ran:] == [("iris", 0), ("iris", 1)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), IknowError("no network learned")])
def test_what_was_finished_before_an_interruption_is_kept(stub, tmp_path, error):
    stub.errors["iris", 2] = error
    with pytest.raises(type(error)):
        reproduce(runs_of(4), tmp_path, jobs=1)
    assert stored(tmp_path) == ["iris-0.json", "iris-1.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    stub.errors.clear()
    reproduce(runs_of(4), tmp_path, jobs=1)
    assert stub.ran == [("iris", seed) for seed in range(4)]
    assert len(read_csv(tmp_path / "results.csv")) == 4


@pytest.fixture
def threads(monkeypatch):
    """Threads in place of processes, which know nothing of a stub."""

    def make(max_workers, mp_context):
        assert mp_context.get_start_method() == "spawn"
        return ThreadPoolExecutor(max_workers)

    monkeypatch.setattr(module, "ProcessPoolExecutor", make)


def test_seeds_side_by_side_are_stored_as_they_finish_and_written_in_order(
    stub, threads, tmp_path, monkeypatch
):
    second, told = threading.Event(), []

    def wait_for_the_second(setup, seed, device):
        assert seed or second.wait(30)
        return stub(setup, seed)

    def report(name, seed, kept):
        told.append(seed)
        assert (tmp_path / "runs" / f"iris-{seed}.json").exists()
        if seed == 1:
            second.set()

    monkeypatch.setattr(module, "run_seed", wait_for_the_second)
    reproduce(runs_of(2), tmp_path, jobs=2, report=report)
    assert told == [1, 0]
    assert [each.seed for each in read_csv(tmp_path / "results.csv")] == [0, 1]


@pytest.mark.parametrize("n", [2, 50])
def test_when_a_seed_fails_no_other_begins_and_one_that_had_begun_is_kept(
    stub, threads, tmp_path, monkeypatch, n
):
    begun, failed = threading.Event(), threading.Event()

    def run(setup, seed, device):  # seed 1 has begun when seed 0 fails, and goes on for a while
        if seed == 0:
            assert begun.wait(30)
            failed.set()
            raise IknowError("no network learned")
        if seed == 1:
            begun.set()
            assert failed.wait(30)
            threading.Event().wait(0.3)
        return stub(setup, seed)

    monkeypatch.setattr(module, "run_seed", run)
    with pytest.raises(IknowError, match="no network learned"):
        reproduce(runs_of(n), tmp_path, jobs=2)
    assert len(stub.ran) < max(n - 1, 2)
    assert "iris-1.json" in stored(tmp_path)
    assert not (tmp_path / "results.csv").exists()


def test_two_processes_give_what_one_gives(tmp_path):
    one, two = (reproduce(runs_of(2, TINY), tmp_path / str(n), jobs=n) for n in (1, 2))
    for path, other in zip(one, two, strict=True):
        assert path.read_bytes() == other.read_bytes()
    for seed in (0, 1):
        found = [recall(tmp_path / folder, TINY, seed) for folder in ("1", "2")]
        assert found[0] == found[1] is not None


# The command line


def run(*words):
    return CliRunner().invoke(command.app, [*map(str, words)])


def test_iris_end_to_end_and_again(tmp_path):
    out = tmp_path / "out"
    words = ("iris", "--quick", "--seeds", 1, "--out", out, "--jobs", 1)
    first = run(*words)
    assert first.exit_code == 0, first.output + first.stderr
    for name in ("iris, 1 seeds: ", "results.csv", "comparison.md"):
        assert name in first.stdout
    assert "had been run before" not in first.output
    assert "A quick run on few samples" in (out / "comparison.md").read_text("utf-8")
    (outcome,) = read_csv(out / "results.csv")
    assert (outcome.name, outcome.seed, len(outcome.cells)) == ("iris", 0, 2 * len(METHODS) * 4 * 3)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert len(before) == 3
    again = run(*words)
    assert again.exit_code == 0
    assert "1 of 1 seeds had been run before and were kept" in again.stdout
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_the_agreement_is_shown_by_experiment(stub, tmp_path):
    result = run("all", "--seeds", 1, "--out", tmp_path, "--jobs", 1, "--quick")
    assert result.exit_code == 0, result.output
    assert stub.ran == [(name, 0) for name in SETUPS]  # and no other readings
    # Its 48 published cells but for two accuracies over 0.1% of the samples; all of them agree.
    assert "italy_power_demand, 1 seeds: 46 of 46 counted cells agree, 100" in result.stdout
    assert run("iris", "--out", tmp_path / "iris", "--jobs", 1).exit_code == 0
    assert len(stub.ran) == len(SETUPS) + IRIS.seeds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cifar"], "no experiment is named 'cifar': choose"),
        (["iris", "--seeds", "0"], "at least one seed is needed; got 0"),
        (["notebooks", "--seeds", "-3"], "at least one seed is needed; got -3"),
    ],
)
def test_mistakes_are_told_in_a_line_and_nothing_is_written(stub, tmp_path, words, message):
    result = run(*words, "--out", tmp_path / "out", "--jobs", 1)
    assert result.exit_code == 1
    assert "error:" in result.stderr
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output + result.stderr
    assert (stub.ran, list(tmp_path.iterdir())) == ([], [])


def test_a_file_in_place_of_the_folder_is_told(stub, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    for name in ("iris", "figures", "notebooks"):
        result = run(name, "--quick", "--out", path)
        assert result.exit_code == 1
        assert "is a file" in " ".join(result.stderr.split())
        assert path.read_text() == "mine"
    with pytest.raises(InputError, match=r"results go into a folder; .*file is a file"):
        reproduce(runs_of(2), path, jobs=1)


def test_the_device_is_handed_down_and_odd_options_are_refused(stub, tmp_path):
    for device in ("cpu", "cuda"):
        assert (
            run("iris", "--seeds", 1, "--device", device, "--out", tmp_path / device).exit_code == 0
        )
    assert stub.devices == {"cpu", "cuda"}
    results = [(tmp_path / each / "results.csv").read_bytes() for each in ("cpu", "cuda")]
    assert results[0] == results[1]
    for words in (["--device", "tpu"], ["--jobs", 0]):
        assert run("iris", *words, "--out", tmp_path / "none").exit_code == 2


def test_figures_without_the_signs(tmp_path, monkeypatch):
    nowhere, out = tmp_path / "nowhere", tmp_path / "out"
    nowhere.mkdir()
    monkeypatch.setenv("IKNOW_DATA", str(nowhere))
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))
    result = run("figures", "--quick", "--out", out)
    assert result.exit_code == 0, result.output + result.stderr
    assert "signs.png is left out: " in result.stderr
    names = ["confusion.png", "noise.png", "radius.png", "regions.png", "supports.png"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert all(name in result.stdout for name in names)


def test_all_is_the_tables_and_the_figures(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(command, "reproduce_tables", lambda *words: calls.append(words[:2]) or [])
    monkeypatch.setattr(command, "reproduce_figures", lambda *words: calls.append(words[:1]) or [])
    assert run("all", "--out", tmp_path).exit_code == 0
    assert calls == [("all", tmp_path), (tmp_path / "figures",)]
    assert run("iris", "--out", tmp_path).exit_code == 0
    assert calls[2:] == [("iris", tmp_path)]


# What is committed

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"
RESULTS, PAGE = FOLDER / "results.csv", FOLDER / "comparison.md"
real = pytest.mark.skipif(not os.environ.get("IKNOW_DATA"), reason="IKNOW_DATA names no folder")
# On one machine the cells are equal. Other processors round otherwise, and training amplifies it.
TOLERANCE, LEAST_SHARE = 0.05, 0.9


@pytest.mark.parametrize(
    "name", ["iris", *(pytest.param(n, marks=real) for n in (ITALY.name, "synthetic_control"))]
)
def test_a_seed_gives_what_is_committed(name):
    (committed,) = (o for o in read_csv(RESULTS) if (o.name, o.seed) == (name, 0))
    expected, found = (
        {replace(cell, value=None): cell.value for cell in outcome.cells}
        for outcome in (committed, run_seed(SETUPS[name], 0))
    )
    assert found.keys() == expected.keys()
    near = [
        one is other if None in (one, other) else abs(one - other) <= TOLERANCE
        for one, other in ((found[key], expected[key]) for key in expected)
    ]
    assert sum(near) >= LEAST_SHARE * len(near)


def test_the_committed_table_and_page_are_made_of_the_committed_runs(tmp_path):
    places = [(outcome.name, outcome.seed) for outcome in read_csv(RESULTS)]
    outcomes = [recall(FOLDER, find_setup(name), seed) for name, seed in places]
    missing = [place for place, outcome in zip(places, outcomes, strict=True) if outcome is None]
    assert missing == [], "no runs, or made with another setup: run `python -m reproduction` again"
    assert RESULTS.read_bytes() == to_csv(outcomes)
    names = sorted(f"{name}-{seed}.json" for name, seed in places)
    assert sorted(path.name for path in (FOLDER / "runs").iterdir()) == names
    assert set(places) >= {(s.name, seed) for s in SETUPS.values() for seed in range(s.seeds)}
    made = write_comparison(tmp_path / "comparison.md", outcomes)
    assert PAGE.read_bytes() == made.read_bytes()
    published = [e for e in group_outcomes(outcomes) if e.setup.name == e.setup.published]
    agreeing, counted = count_agreeing([each for e in published for each in e.comparisons])
    readme = (FOLDER.parents[1] / "README.md").read_text("utf-8")
    assert f"{agreeing} of the {counted} comparable numbers" in readme
