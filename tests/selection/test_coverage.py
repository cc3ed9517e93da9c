"""Selection against trying every radius by really applying the rule."""

import itertools
import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.core.rule import has_k
from iknow.errors import InputError, MissingExtraError, SelectionError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.selection import Goal, Selection, Validation
from iknow.selection import select as select_for
from iknow.selection.exact import cells, depth
from iknow.selection.exact.boxes import make_objective
from iknow.selection.method import search_range
from iknow.selection.selection import Candidate, record_choice

RULES_WITH_A_RADIUS = [Ball, BallElseNearest, BallWithNearest]
RULES_WITH_A_K = [BallElseNearest, BallWithNearest]


def select(evidence, belief, y_true, rule, *, n_trials=50, **options):
    return select_for(Goal(**options), Validation(evidence, belief, y_true), rule, n_trials)


def make_rule(rule, radius, k):
    return rule(radius, k) if has_k(rule) else rule(radius)


# The exact maximum


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("rule", RULES_WITH_A_RADIUS)
def test_coverage_is_the_largest_over_all_radii_and_then_has_the_most_right_beliefs(
    rule, n_layers, problem_of
):
    n_selected = n_split = 0
    for seed in range(100):
        problem = problem_of(seed, n_layers=n_layers)
        best = problem.best_of_all_radii(rule, problem.k)
        if best[0] == 0:
            with pytest.raises(SelectionError, match=f"no {rule.__name__} makes any of the"):
                select(*problem.data, rule, k=problem.k)
            continue
        chosen = select(*problem.data, rule, k=problem.k)
        assert problem.count(chosen.neighborhoods) == best, f"seed {seed}"
        n_selected += 1
        n_split += best[0] > best[1] > 0
    assert n_selected >= 25
    assert n_split >= 2


@pytest.mark.parametrize("rule", RULES_WITH_A_RADIUS)
def test_recorded_coverage_and_accuracy_are_those_of_applying_the_neighborhoods(rule, problem_of):
    n_outside = 0
    for seed in range(90):
        problem = problem_of(seed, n_layers=1 + seed % 3)
        try:
            chosen = select(*problem.data, rule, k=problem.k)
        except SelectionError:
            continue
        known, right = problem.count(chosen.neighborhoods)
        n, n_right = len(problem.belief), int((problem.belief == problem.y_true).sum())
        assert chosen.coverage == known / n
        assert chosen.accuracy == right / known
        if known < n:
            assert chosen.accuracy_outside == (n_right - right) / (n - known)
            n_outside += 1
        else:
            assert np.isnan(chosen.accuracy_outside)
        assert chosen.n_samples == n
        assert (chosen.method, chosen.optimal, chosen.certificate) == ("exact", True, None)
        assert (chosen.best_possible, chosen.gap) == (chosen.coverage, 0.0)
        assert {type(chosen_rule) for chosen_rule in chosen.neighborhoods.values()} == {rule}
        assert list(chosen.neighborhoods) == list(problem.evidence)
    assert n_outside >= 15


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rule=st.sampled_from(RULES_WITH_A_RADIUS),
    grid=st.lists(st.floats(0, 8), min_size=1, max_size=4),
)
def test_tuned_coverage_is_never_below_that_of_any_grid_point(problem_of, seed, rule, grid):
    problem = problem_of(seed)
    try:
        coverage = select(*problem.data, rule, k=problem.k).coverage
    except SelectionError:
        coverage = 0.0
    for radii in itertools.product(grid, repeat=len(problem.evidence)):
        neighborhoods = {
            layer: make_rule(rule, radius, problem.k)
            for layer, radius in zip(problem.evidence, radii, strict=True)
        }
        known, _ = problem.count(neighborhoods)
        assert known / len(problem.belief) <= coverage


def test_among_equal_coverages_the_one_with_more_right_beliefs_is_taken(evidence_of):
    evidence = {"a": evidence_of([[1.0, 2.0], [3.0, 4.0]])}
    belief = np.array([0, 0])
    low = select(evidence, belief, np.array([0, 1]), Ball)
    high = select(evidence, belief, np.array([1, 0]), Ball)
    assert low.neighborhoods == {"a": Ball(1.5)}
    assert high.neighborhoods == {"a": Ball(3.5)}
    assert (low.coverage, low.accuracy) == (high.coverage, high.accuracy) == (0.5, 1.0)


def test_coverage_comes_before_right_beliefs(evidence_of):
    evidence = {"a": evidence_of([[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]])}
    chosen = select(evidence, np.zeros(3, dtype=int), np.array([0, 1, 1]), Ball)
    assert chosen.neighborhoods == {"a": Ball(3.5)}
    assert (chosen.coverage, chosen.accuracy) == (2 / 3, 0.0)


# Several k


@pytest.mark.parametrize("rule", RULES_WITH_A_K)
def test_of_several_k_the_best_single_one_is_taken(rule, problem_of):
    n_selected = 0
    for seed in range(50):
        problem = problem_of(seed, n_layers=1 + seed % 2)
        ks = range(1, problem.n_neighbors + 1)
        best = max(problem.best_of_all_radii(rule, k) for k in ks)
        if best[0] == 0:
            with pytest.raises(SelectionError, match=f"no {rule.__name__} makes any"):
                select(*problem.data, rule, k=ks)
            continue
        chosen = select(*problem.data, rule, k=ks)
        assert problem.count(chosen.neighborhoods) == best, f"seed {seed}"
        assert chosen.optimal
        assert len({each.k for each in chosen.neighborhoods.values()}) == 1
        n_selected += 1
    assert n_selected >= 20


def test_a_k_with_which_nothing_can_be_known_does_not_spoil_the_others(evidence_of):
    evidence = {"a": evidence_of([[1, 3], [1, 3]], [[1, 2, 3], [1, 2, 3]])}
    belief = np.array([0, 0])
    with pytest.raises(SelectionError, match="no BallWithNearest makes any"):
        select(evidence, belief, belief, BallWithNearest, k=3)
    alone = select(evidence, belief, belief, BallWithNearest, k=2)
    for ks in ([3, 2], [2, 3], np.array([2, 3])):
        assert repr(select(evidence, belief, belief, BallWithNearest, k=ks)) == repr(alone)


@pytest.mark.parametrize("rule", RULES_WITH_A_K)
@pytest.mark.parametrize("k", [None, [], ()])
def test_a_rule_with_a_k_needs_one(rule, k, problem_of):
    with pytest.raises(InputError, match=f"{rule.__name__} needs k, one number or several"):
        select(*problem_of(0).data, rule, k=k)


@pytest.mark.parametrize("k", [0, -1, 2.5, [1, 2.5], [True], "3"])
def test_a_k_that_is_no_number_of_neighbours_is_refused(k, problem_of):
    with pytest.raises(InputError, match="k must be"):
        select(*problem_of(0).data, BallElseNearest, k=k)


def test_a_k_beyond_the_evidence_is_refused(problem_of):
    problem = problem_of(0)
    with pytest.raises(InputError, match=f"too few for k={problem.n_neighbors + 1}"):
        select(*problem.data, BallElseNearest, k=[1, problem.n_neighbors + 1])


# Time, and what is left


def test_when_time_is_up_the_gap_is_honest(problem_of, monkeypatch):
    monkeypatch.setattr(cells, "GRID_SIZE", 3)
    monkeypatch.setattr(depth, "GRID_SIZE", 256)
    n_open = 0
    for seed in range(40):
        problem = problem_of(seed, n_layers=3, n_queries=30, exact=False)
        best = select(*problem.data, Ball, time_limit=np.inf)
        hurried = select(*problem.data, Ball, time_limit=0)
        assert best.optimal
        assert hurried.coverage == problem.count(hurried.neighborhoods)[0] / 30
        assert hurried.coverage <= best.coverage <= hurried.best_possible <= 1
        assert hurried.gap == hurried.best_possible - hurried.coverage
        if hurried.optimal:
            assert (hurried.coverage, hurried.accuracy) == (best.coverage, best.accuracy)
            assert hurried.gap == 0
        n_open += not hurried.optimal
    assert n_open >= 20


# Grid search and Bayesian optimisation, to compare with


@pytest.mark.parametrize("rule", RULES_WITH_A_RADIUS)
@pytest.mark.parametrize(("method", "n_problems"), [("grid", 60), ("bayes", 9)])
def test_searches_are_recorded_as_they_are_and_never_exceed_the_exact_maximum(
    rule, method, n_problems, problem_of
):
    n_less = 0
    for seed in range(n_problems):
        problem = problem_of(seed, n_layers=1 + seed % 3)
        options = {"k": problem.k, "n_trials": 15}
        try:
            best = select(*problem.data, rule, **options)
        except SelectionError:
            with pytest.raises(SelectionError, match="makes any of the"):
                select(*problem.data, rule, method=method, **options)
            continue
        found = select(*problem.data, rule, method=method, random_state=seed, **options)
        again = select(*problem.data, rule, method=method, random_state=seed, **options)
        assert repr(again) == repr(found)
        known, right = problem.count(found.neighborhoods)
        assert (known, right) <= problem.count(best.neighborhoods)
        assert found.coverage == known / len(problem.belief)
        assert found.accuracy == right / known if known else np.isnan(found.accuracy)
        assert (found.method, found.optimal, found.best_possible) == (method, False, 1.0)
        assert found.gap == 1 - found.coverage
        n_less += found.coverage < best.coverage
    if method == "grid":
        assert n_less >= 1  # there is a reason for the exact one


@pytest.mark.parametrize("n_layers", [1, 2])
def test_grid_search_takes_the_best_point_of_a_logarithmic_grid(n_layers, problem_of):
    n_searched = 0
    for seed in range(40):
        problem = problem_of(seed, n_layers=n_layers)
        try:
            objective = make_objective(Validation(*problem.data), Ball, None)
        except SelectionError:
            continue
        low, high = search_range(objective)
        axes = [np.geomspace(a, b, 4) for a, b in zip(low, high, strict=True)]
        best = max(
            problem.count(dict(zip(problem.evidence, map(Ball, radii), strict=True)))
            for radii in itertools.product(*axes)
        )
        found = select(*problem.data, Ball, method="grid", n_trials=4**n_layers)
        assert problem.count(found.neighborhoods) == best
        n_searched += 1
    assert n_searched >= 15


def test_the_searched_range_runs_from_the_smallest_to_the_largest_positive_end(evidence_of):
    evidence = {"a": evidence_of([[0, 2], [1, 9], [3, np.inf]]), "b": evidence_of([[0, 0.5]] * 3)}
    none = np.zeros(3, int)
    objective = make_objective(Validation(evidence, none, none), Ball, None)
    low, high = search_range(objective)
    assert low.tolist() == [1, 0.5]
    assert high.tolist() == [9, 0.5]


@pytest.mark.parametrize("method", ["grid", "bayes"])
def test_a_search_where_nothing_changes_at_any_radius_still_finds_one(method, evidence_of):
    evidence = {"a": evidence_of([[0, np.inf], [0, np.inf]])}
    belief = np.zeros(2, dtype=int)
    found = select(evidence, belief, belief, Ball, method=method, n_trials=3)
    assert found.coverage == 1


def test_another_seed_makes_bayesian_optimisation_try_other_radii(problem_of):
    problem = problem_of(2, n_layers=2, n_queries=7)
    found = [
        select(*problem.data, Ball, method="bayes", n_trials=3, random_state=seed)
        for seed in range(4)
    ]
    assert len({selection.neighborhoods["layer0"].radius for selection in found}) == 4


def test_bayesian_optimisation_leaves_optunas_verbosity_alone(problem_of):
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        select(*problem_of(2, n_layers=2).data, Ball, method="bayes", n_trials=2)
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(before)


def test_without_optuna_bayesian_optimisation_names_what_to_install(problem_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'iknow\[bayes\]'"):
        select(*problem_of(2, n_layers=2).data, Ball, method="bayes")


# What is refused


def test_an_unknown_method_is_refused_by_naming_the_known_ones(problem_of):
    with pytest.raises(InputError, match="'exact', 'grid' or 'bayes'; got 'magic'"):
        select(*problem_of(2).data, Ball, method="magic")


def test_a_rule_without_a_radius_is_refused_with_the_way_out(problem_of):
    problem = problem_of(0)
    with pytest.raises(SelectionError, match=r"Nearest has no radius.*tune\(\.\.\., coverage=0.7"):
        select(*problem.data, Nearest, k=problem.k)


def test_a_relative_ball_is_refused_with_the_ways_out(problem_of):
    with pytest.raises(
        SelectionError,
        match=r"cannot choose a RelativeBall.*leave the method out, and levels choose it",
    ):
        select(*problem_of(0).data, RelativeBall)


def test_only_rules_whose_coverage_has_a_maximum_are_tuned_for_it():
    tuned = [Ball, BallElseNearest, BallWithNearest]
    every = (*tuned, Nearest, RelativeBall)
    assert [rule for rule in every if rule.why_not_for_coverage() is None] == tuned


def test_when_nothing_can_be_known_selection_says_so(evidence_of):
    evidence = {"a": evidence_of([[2.0, 1.0], [1.0, 1.0]])}
    with pytest.raises(SelectionError, match="any of the 2 validation samples IK"):
        select(evidence, np.array([0, 0]), np.array([0, 0]), Ball)


def test_layers_that_are_never_pure_together_cannot_be_selected(evidence_of):
    near, far = [[1.0, 2.0]], [[2.0, 1.0]]
    evidence = {"a": evidence_of(near), "b": evidence_of(far)}
    with pytest.raises(SelectionError, match="no Ball makes any of the 1 validation samples"):
        select(evidence, np.array([0]), np.array([0]), Ball)


def test_evidence_beliefs_and_truths_must_be_about_the_same_samples(evidence_of):
    two, three = evidence_of([[1, 2]] * 2), evidence_of([[1, 2]] * 3)
    codes = np.zeros(2, dtype=int)
    broken = [
        ({"a": three}, codes, codes),
        ({"a": two}, codes[:1], codes),
        ({"a": two}, codes, codes[:1]),
        ({"a": two, "b": three}, codes, codes),
        ({}, codes, codes),
    ]
    for evidence, belief, y_true in broken:
        with pytest.raises(InputError, match=f"got {len(belief)} beliefs, {len(y_true)} truths"):
            select(evidence, belief, y_true, Ball)


# The record


@pytest.mark.parametrize("rule", RULES_WITH_A_RADIUS)
def test_a_selection_survives_json(rule, problem_of):
    problem = problem_of(2, n_layers=2, n_queries=12)
    chosen = select(*problem.data, rule, k=problem.k)
    assert 0 < chosen.coverage < 1  # so that no accuracy is NaN, which equals nothing
    assert Selection.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen


def test_an_accuracy_of_nothing_survives_json_as_null(evidence_of):
    belief = np.zeros(2, dtype=int)
    chosen = select({"a": evidence_of([[1, 2], [1, 2]])}, belief, belief, Ball)
    assert np.isnan(chosen.accuracy_outside)
    text = json.dumps(chosen.to_dict(), allow_nan=False)
    assert repr(Selection.from_dict(json.loads(text))) == repr(chosen)


def test_the_accuracy_of_neighborhoods_that_know_nothing_is_nan(evidence_of):
    part = Validation({"a": evidence_of([[2.0, 3.0]])}, np.array([0]), np.array([0]))
    record = record_choice(part, Candidate({"a": Ball(1)}), "given")
    assert record.coverage == 0.0
    assert np.isnan(record.accuracy)
    assert record.accuracy_outside == 1.0
    assert (record.optimal, record.best_possible, record.gap) == (False, 1.0, 1.0)
