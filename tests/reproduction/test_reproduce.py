"""Many seeds: resumed, interrupted, side by side, and from the command line."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from iknow.errors import IknowError, InputError
from reproduction import reproduce as module
from reproduction.__main__ import app
from reproduction.comparison import write_comparison
from reproduction.methods import METHODS
from reproduction.readings import READINGS
from reproduction.reproduce import choose_setups, list_runs, reproduce
from reproduction.results import read_csv, recall, to_csv
from reproduction.setups import SETUPS, Training

IRIS, ITALY = SETUPS["iris"], SETUPS["italy_power_demand"]
TINY = replace(IRIS, training=Training(batch=16, epochs=15, least=0.0))


class Stub:
    """In place of `run_seed`: made-up outcomes, a list of what ran, and errors at some seeds."""

    def __init__(self, make_outcome):
        self.make_outcome, self.ran, self.errors = make_outcome, [], {}
        self.devices = set()

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


# What to run


def test_a_name_stands_for_its_experiments():
    assert choose_setups("iris") == [IRIS]
    assert choose_setups("all") == list(SETUPS.values())
    assert choose_setups("gtsrb_short_attack") == [READINGS["gtsrb_short_attack"]]
    assert choose_setups("iris", quick=True) == [IRIS.quick()]
    assert all(setup.max_samples for setup in choose_setups("all", quick=True))
    with pytest.raises(InputError, match="no experiment is named 'cifar'"):
        choose_setups("cifar")


def test_seeds_are_counted_from_zero():
    assert list_runs([IRIS], None) == [(IRIS, seed) for seed in range(IRIS.seeds)]
    assert list_runs([IRIS, ITALY], 2) == [(IRIS, 0), (IRIS, 1), (ITALY, 0), (ITALY, 1)]
    for n in (0, -1):
        with pytest.raises(InputError, match=f"at least one seed is needed; got {n}"):
            list_runs([IRIS], n)


# Running


def test_all_is_run_kept_and_written(stub, tmp_path, outcome_of):
    out, told = tmp_path / "new" / "out", []
    written = reproduce(
        runs_of(2, ITALY, IRIS), out, jobs=1, report=lambda *each: told.append(each)
    )
    assert written == [out / "results.csv", out / "comparison.md"]
    order = [(name, seed) for name in ("italy_power_demand", "iris") for seed in range(2)]
    assert stub.ran == order
    assert told == [(*each, False) for each in order]
    outcomes = [stub(setup, seed) for setup, seed in runs_of(2, ITALY, IRIS)]
    assert written[0].read_bytes() == to_csv(outcomes)
    page = write_comparison(tmp_path / "page.md", outcomes)
    assert written[1].read_bytes() == page.read_bytes()
    assert stored(out) == [
        f"{name}-{seed}.json" for name in ("iris", ITALY.name) for seed in (0, 1)
    ]
    assert sorted(path.name for path in out.iterdir()) == ["comparison.md", "results.csv", "runs"]


def test_only_what_is_missing_is_run(stub, tmp_path):
    reproduce(runs_of(2), tmp_path, jobs=1)
    before = stub.ran.copy()
    told = []
    reproduce(runs_of(4), tmp_path, jobs=1, report=lambda *each: told.append(each))
    assert stub.ran == [*before, ("iris", 2), ("iris", 3)]
    assert told == [("iris", seed, seed < 2) for seed in range(4)]
    assert [each.seed for each in read_csv(tmp_path / "results.csv")] == [0, 1, 2, 3]
    (tmp_path / "runs" / "iris-2.json").write_text("damaged")
    reproduce(runs_of(4), tmp_path, jobs=1)
    assert stub.ran[4:] == [("iris", 2)]


def test_results_do_not_depend_on_what_was_kept(stub, tmp_path):
    whole = reproduce(runs_of(4, IRIS, ITALY), tmp_path / "whole", jobs=1)
    reproduce([(IRIS, 2), (ITALY, 1)], tmp_path / "parts", jobs=1)
    parts = reproduce(runs_of(4, IRIS, ITALY), tmp_path / "parts", jobs=1)
    assert [path.read_bytes() for path in parts] == [path.read_bytes() for path in whole]


def test_seeds_of_another_setup_are_run_again(stub, tmp_path):
    reproduce(runs_of(2), tmp_path, jobs=1)
    other = replace(IRIS, training=replace(IRIS.training, batch=64))
    reproduce(runs_of(2, other), tmp_path, jobs=1)
    assert stub.ran == [("iris", 0), ("iris", 1)] * 2


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


class Threads(ThreadPoolExecutor):
    """In place of processes, which know nothing of a stub."""

    def __init__(self, max_workers, mp_context):
        assert mp_context.get_start_method() == "spawn"
        super().__init__(max_workers)


def test_seeds_side_by_side_are_stored_as_they_finish_and_written_in_order(
    stub, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "ProcessPoolExecutor", Threads)
    second = threading.Event()
    told = []

    def wait_for_the_second(setup, seed, device):
        if seed == 0:
            assert second.wait(30)
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


def fail_first(stub, monkeypatch, n_workers):
    """Seed 0 fails at once; seed 1 has begun by then and goes on for a while.

    The others take long enough for the failure to be noticed before all of them have run.
    """
    monkeypatch.setattr(module, "ProcessPoolExecutor", Threads)
    begun, failed = threading.Event(), threading.Event()

    def run(setup, seed, device):
        if seed == 0:
            assert begun.wait(30)
            failed.set()
            raise IknowError("no network learned")
        if seed == 1:
            begun.set()
            assert failed.wait(30)
            threading.Event().wait(0.3)
        if seed > 1:
            threading.Event().wait(0.05)
        return stub(setup, seed)

    monkeypatch.setattr(module, "run_seed", run)


def test_when_a_seed_fails_no_other_begins(stub, tmp_path, monkeypatch):
    fail_first(stub, monkeypatch, 2)
    with pytest.raises(IknowError, match="no network learned"):
        reproduce(runs_of(50), tmp_path, jobs=2)
    assert len(stub.ran) < 49
    assert not (tmp_path / "results.csv").exists()


def test_a_seed_that_runs_beside_a_failing_one_is_kept(stub, tmp_path, monkeypatch):
    fail_first(stub, monkeypatch, 2)
    with pytest.raises(IknowError, match="no network learned"):
        reproduce(runs_of(2), tmp_path, jobs=2)
    assert stored(tmp_path) == ["iris-1.json"]


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path):
    runs = runs_of(2, TINY)
    one = reproduce(runs, tmp_path / "one", jobs=1)
    two = reproduce(runs, tmp_path / "two", jobs=2)
    for path, other in zip(one, two, strict=True):
        assert path.read_bytes() == other.read_bytes()
    for seed in (0, 1):
        found = [recall(tmp_path / folder, TINY, seed) for folder in ("one", "two")]
        assert found[0] == found[1] is not None


def test_a_file_in_place_of_the_folder_is_refused(stub, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(InputError, match=r"results go into a folder; .*file is a file"):
        reproduce(runs_of(2), path, jobs=1)
    assert path.read_text() == "mine"
    assert stub.ran == []


def test_quick_runs_are_called_so(stub, tmp_path):
    _, page = reproduce(runs_of(1, IRIS.quick()), tmp_path / "quick", jobs=1)
    assert "A quick run on few samples" in page.read_text("utf-8")
    _, page = reproduce(runs_of(1), tmp_path / "full", jobs=1)
    assert "A quick run on few samples" not in page.read_text("utf-8")


# The command line


def run(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def joined(text):
    """Without the line breaks of a narrow terminal."""
    return " ".join(text.split())


def test_iris_end_to_end_and_again(tmp_path):
    out = tmp_path / "out"
    words = ("iris", "--quick", "--seeds", 1, "--out", out, "--jobs", 1)
    first = run(*words)
    assert first.exit_code == 0, first.output + first.stderr
    assert "iris" in first.stdout
    for name in ("results.csv", "comparison.md"):
        assert name in first.stdout
        assert (out / name).stat().st_size > 1000
    assert "had been run before" not in first.output
    (outcome,) = read_csv(out / "results.csv")
    assert (outcome.name, outcome.seed, len(outcome.cells)) == ("iris", 0, 2 * len(METHODS) * 4 * 3)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert len(before) == 3

    again = run(*words)
    assert again.exit_code == 0
    assert "1 of 1 seeds had been run before and were kept" in joined(again.stdout)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_the_agreement_is_shown_by_experiment(stub, tmp_path):
    result = run("italy_power_demand", "--seeds", 1, "--out", tmp_path, "--jobs", 1)
    assert result.exit_code == 0, result.output
    # Its 48 published cells but for two accuracies over 0.1% of the samples; all of them agree.
    row = next(line for line in result.stdout.splitlines() if "italy" in line)
    assert row.split()[:4] == ["italy_power_demand", "1", "46", "46"]
    assert "100" in row.split()[4]


@pytest.mark.slow
def test_all_runs_all_experiments_but_no_other_readings(stub, tmp_path):
    result = run("all", "--seeds", 1, "--out", tmp_path, "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert stub.ran == [(name, 0) for name in SETUPS]
    for name in SETUPS:
        assert name in result.stdout


def test_without_a_number_each_experiment_says_how_many_seeds(stub, tmp_path):
    assert run("iris", "--out", tmp_path, "--jobs", 1).exit_code == 0
    assert len(stub.ran) == IRIS.seeds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cifar"], "no experiment is named 'cifar': choose"),
        (["iris", "--seeds", "0"], "at least one seed is needed; got 0"),
        (["iris", "--seeds", "-3"], "at least one seed is needed; got -3"),
    ],
)
def test_mistakes_are_told_in_a_line_and_nothing_is_written(stub, tmp_path, words, message):
    result = run(*words, "--out", tmp_path / "out", "--jobs", 1)
    assert result.exit_code == 1
    assert "error:" in result.stderr
    assert message in joined(result.stderr)
    assert "Traceback" not in result.output + result.stderr
    assert stub.ran == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_told(stub, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    for name in ("iris", "figures"):
        result = run(name, "--quick", "--out", path)
        assert result.exit_code == 1
        assert "is a file" in joined(result.stderr)
        assert path.read_text() == "mine"


def test_the_device_is_handed_down(stub, tmp_path):
    assert run("iris", "--seeds", 1, "--out", tmp_path / "here").exit_code == 0
    assert stub.devices == {"cpu"}
    assert run("iris", "--seeds", 1, "--device", "cuda", "--out", tmp_path / "gpu").exit_code == 0
    assert stub.devices == {"cpu", "cuda"}
    results = [(tmp_path / each / "results.csv").read_bytes() for each in ("here", "gpu")]
    assert results[0] == results[1]
    assert run("iris", "--device", "tpu", "--out", tmp_path / "none").exit_code == 2


def test_no_jobs_at_all_are_refused(stub, tmp_path):
    assert run("iris", "--jobs", 0, "--out", tmp_path).exit_code == 2
    assert stub.ran == []


@pytest.mark.slow
def test_figures_without_the_signs(tmp_path, monkeypatch):
    nowhere, out = tmp_path / "nowhere", tmp_path / "out"
    nowhere.mkdir()
    monkeypatch.setenv("IKNOW_DATA", str(nowhere))
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))
    result = run("figures", "--quick", "--out", out)
    assert result.exit_code == 0, result.output + result.stderr
    assert "signs.png is left out: " in joined(result.stderr)
    names = sorted(path.name for path in out.iterdir())
    assert names == ["confusion.png", "noise.png", "radius.png", "regions.png", "supports.png"]
    for name in names:
        assert name in result.stdout.replace("\n", "")
    shutil.rmtree(out)


def test_all_is_the_tables_and_the_figures(tmp_path, monkeypatch):
    import reproduction.__main__ as command

    calls = []
    monkeypatch.setattr(command, "reproduce_tables", lambda *words: calls.append(words[:2]))
    monkeypatch.setattr(command, "reproduce_figures", lambda *words: calls.append(words[:1]))
    assert run("all", "--out", tmp_path).exit_code == 0
    assert calls == [("all", tmp_path), (tmp_path / "figures",)]
    assert run("iris", "--out", tmp_path).exit_code == 0
    assert calls[2:] == [("iris", tmp_path)]
