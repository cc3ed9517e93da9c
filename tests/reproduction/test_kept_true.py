"""The results in docs/reproduction are what this code gives."""

import os
from pathlib import Path

import pytest

from reproduction.agreement import count_agreeing
from reproduction.comparison import write_comparison
from reproduction.entries import group_outcomes
from reproduction.protocol import run_seed
from reproduction.readings import find_setup
from reproduction.results import read_csv, recall, to_csv
from reproduction.setups import SETUPS

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"
RESULTS, PAGE = FOLDER / "results.csv", FOLDER / "comparison.md"
pytestmark = pytest.mark.skipif(not RESULTS.is_file(), reason="no committed results")
real = pytest.mark.skipif(not os.environ.get("IKNOW_DATA"), reason="IKNOW_DATA names no folder")

NAMES = [
    "iris",
    *(pytest.param(n, marks=real) for n in ("italy_power_demand", "synthetic_control")),
]
# On one machine the cells are equal. Other processors round otherwise, and training amplifies it.
TOLERANCE, LEAST_SHARE = 0.05, 0.9


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_what_is_committed(name):
    (committed,) = (o for o in read_csv(RESULTS) if (o.name, o.seed) == (name, 0))
    expected = {key_of(cell): cell.value for cell in committed.cells}
    found = {key_of(cell): cell.value for cell in run_seed(SETUPS[name], 0).cells}
    assert found.keys() == expected.keys()
    near = [is_near(found[key], expected[key]) for key in expected]
    assert sum(near) >= LEAST_SHARE * len(near)


def key_of(cell):
    return cell.layers, cell.method, cell.perturbation, cell.metric


def is_near(one, other):
    if one is None or other is None:
        return one is other
    return abs(one - other) <= TOLERANCE


def committed_runs():
    """The outcomes of the committed runs, in the order of results.csv."""
    places = [(outcome.name, outcome.seed) for outcome in read_csv(RESULTS)]
    found = [recall(FOLDER, find_setup(name), seed) for name, seed in places]
    missing = [place for place, outcome in zip(places, found, strict=True) if outcome is None]
    assert missing == [], "no runs, or made with another setup: run `python -m reproduction` again"
    return found


def test_the_committed_table_is_made_of_the_committed_runs():
    outcomes = committed_runs()
    assert RESULTS.read_bytes() == to_csv(outcomes)
    names = sorted(f"{outcome.name}-{outcome.seed}.json" for outcome in outcomes)
    assert sorted(path.name for path in (FOLDER / "runs").iterdir()) == names


def test_the_committed_page_is_made_of_the_committed_runs(tmp_path):
    made = write_comparison(tmp_path / "comparison.md", committed_runs())
    assert PAGE.read_bytes() == made.read_bytes()


def test_the_readme_says_how_much_agrees():
    published = [e for e in group_outcomes(read_csv(RESULTS)) if e.setup.name == e.setup.published]
    agreeing, counted = count_agreeing([each for e in published for each in e.comparisons])
    readme = (FOLDER.parents[1] / "README.md").read_text("utf-8")
    assert f"{agreeing} of the {counted} comparable numbers" in readme


def test_all_seeds_of_all_experiments_are_committed():
    committed = {(outcome.name, outcome.seed) for outcome in read_csv(RESULTS)}
    assert committed >= {(s.name, seed) for s in SETUPS.values() for seed in range(s.seeds)}
