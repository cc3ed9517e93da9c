"""The promise itself: certificates drawn again and again from a population whose truth is known.

One contract for every way to certify: by radii of balls, and by levels (see `populations`).
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from iknow.rules import Ball
from iknow.selection import certify
from iknow.selection.levels import certify_level, match_level
from tests.selection.populations import Outcome, disagreeing, leveled, of_kinds

N_CLASSES = 3


def by_radii(part, goal, draw):
    return certify(goal, part, Ball)


def by_levels(part, goal, draw):
    return certify_level(part, None, goal)


def by_all_voices(part, goal, draw):
    """With a premium that lets every voice speak fully."""
    return certify_level(part, None, replace(goal, premium=1000.0))


def by_voices_that_cost_nothing(part, goal, draw):
    return certify_level(part, None, replace(goal, premium=0.0))


def by_levels_of_others(part, goal, draw):
    """The path is laid by further samples."""
    return certify_level(part, replace(draw(50), y_true=None), goal)


def by_levels_of_the_same(part, goal, draw):
    """Even the samples that certify may lay the path, as long as their labels do not."""
    return certify_level(part, replace(part, y_true=None), goal)


# Populations for radii


def exactly_at(target):
    """Every setting is exactly at the target; radii from 0.1 to 4 differ in whom they cover."""
    rng = np.random.default_rng(0)
    own = np.round(rng.gamma(4, 0.25, size=400), 2)
    other = own * np.exp(rng.normal(0.6, 0.5, size=400))
    beliefs = rng.integers(N_CLASSES, size=400)
    return of_kinds(*((*each, 1.0, 1 - target) for each in zip(beliefs, own, other, strict=True)))


def two_atoms(target):
    """Two settings only, both exactly at the target: nothing is averaged out."""
    return of_kinds((0, 0.5, 2.0, 1.0, 1 - target), (1, 1.0, 2.0, 0.3, 1 - target))


def good_within_bad(target):
    """The small ball is perfect; the large one, of more coverage, is exactly at the target."""
    return of_kinds((0, 0.5, 9.0, 1.0, 0.0), (0, 1.0, 9.0, 1.0, 2 * (1 - target)))


def bad_within_good(target):
    """Every ball is below the target but the largest, which is exactly at it."""
    error = 1 - target
    return of_kinds(
        (0, 0.5, 9.0, 1.0, 2 * error), (1, 1.0, 9.0, 1.0, error), (2, 1.5, 9.0, 1.0, 0.0)
    )


def many_chances(target):
    """Six settings of the same coverage, each exactly at the target: one of them looks good."""
    return of_kinds(*((0, 1.0 + i, 2.0 + i, 1.0, 1 - target) for i in range(6)))


def rare_and_wrong(target):
    """One class is believed once in 2,000 samples, and always wrong."""
    few = (1 - target) / 5
    return of_kinds((0, 0.5, 2.0, 0.6, few), (1, 0.6, 2.0, 0.3995, few), (2, 0.4, 2.0, 0.0005, 1.0))


def one_class_exactly_at(target):
    few = (1 - target) / 5
    return of_kinds(
        (0, 0.5, 2.0, 1.0, few), (1, 0.6, 2.0, 1.0, 1 - target), (2, 0.4, 2.0, 1.0, few)
    )


def every_class_exactly_at(target):
    """Thrice the chance to find a class that looks good."""
    return of_kinds(*((code, 0.5, 2.0, 1.0, 1 - target) for code in range(3)))


# Populations for levels


def at_target(target):
    """Wherever one looks, exactly at the target."""
    return leveled(np.full(400, 1 - target))


def all_tied(target):
    return leveled(np.full(3, 1 - target), tied=True, n_layers=1)


def steep(target):
    """Never wrong up to half of the coverage, then always, until the target is just missed."""
    n_wrong = int(np.ceil(200 * (1 - target) / target))
    return leveled(np.repeat([0.0, 1.0], [200, 100 + n_wrong]))


def wrong_on_top(target):
    """The surest are the worst, and all together are exactly at the target."""
    error = np.full(400, 1 - target)
    error[:100] = 2 * (1 - target)
    error[100:] -= (1 - target) / 3
    return leveled(error)


def sure_and_wrong(target):
    """As the model's confidence sees it, the order is the reverse."""
    population = wrong_on_top(target)
    return replace(population, confidence=population.confidence[::-1].copy())


def constant_scores(target):
    return replace(at_target(target), confidence=np.zeros(400))


def saturated(target):
    """Half of the scores are certain, and no better."""
    return replace(at_target(target), confidence=np.repeat([np.inf, -np.inf], 200))


def three_classes(target):
    return replace(at_target(target), belief=np.arange(400) % 3)


def voices_apart(target):
    """No two voices agree, and whatever they say, it is exactly at the target."""
    return disagreeing(np.full(400, 1 - target))


def strange_and_wrong(target):
    """What is like nothing in training is always wrong, and all together exactly at the target."""
    population = disagreeing(np.full(400, 1 - target))
    strange = np.isinf(population.tenth[0])
    error = np.where(strange, 1.0, 1 - target - strange.mean() * target / (1 - strange.mean()))
    return replace(population, error=error)


def nine_tenths_right(target):
    """The usual goal: a tenth of the errors among the samples that choose."""
    return leveled(np.repeat([0.0, 0.3], [300, 100]))


class Promise(NamedTuple):
    """Certificates of a population; some must be issued, or some broken, to tell anything."""

    make: Any
    certify: Any
    accuracy: float | None
    confidence: float
    n: int
    n_draws: int
    each_class: bool = False
    issued: int = 0
    broken: int = 0

    def __str__(self):
        each = " for each class" if self.each_class else ""
        return f"{self.make.__name__} {self.certify.__name__}, {self.n} samples{each}"

    def keep(self):
        goal = {"each_class": True} if self.each_class else {}
        goal |= {} if self.accuracy is None else {"accuracy": self.accuracy}
        sizes = self.confidence, self.n_draws, self.n
        outcome = Outcome(self.make(self.accuracy), self.certify, *sizes, **goal)
        outcome.check_promise()
        assert outcome.issued >= self.issued
        assert outcome.broken >= self.broken, "the case is too easy to tell anything"
        return outcome


FAST = [
    Promise(exactly_at, by_radii, 0.9, 0.9, 600, 100),
    Promise(many_chances, by_radii, 0.9, 0.9, 600, 100),
    Promise(all_tied, by_levels, 0.8, 0.8, 100, 40),
    Promise(at_target, by_levels, 0.8, 0.8, 100, 40),
    # The promise is not kept by promising nothing.
    Promise(steep, by_levels, 0.9, 0.9, 1500, 10, issued=10),
    Promise(voices_apart, by_all_voices, 0.8, 0.8, 100, 40),
]
SLOW = [
    Promise(exactly_at, by_radii, 0.9, 0.9, 600, 1000, broken=1),
    Promise(two_atoms, by_radii, 0.9, 0.9, 600, 1000, broken=1),
    Promise(good_within_bad, by_radii, 0.95, 0.95, 600, 1000, broken=1),
    Promise(bad_within_good, by_radii, 0.8, 0.5, 600, 1000, broken=1),
    Promise(many_chances, by_radii, 0.8, 0.5, 600, 1000, broken=1),
    Promise(rare_and_wrong, by_radii, 0.95, 0.95, 1500, 500, each_class=True, issued=476),
    Promise(one_class_exactly_at, by_radii, 0.95, 0.95, 1500, 500, each_class=True),
    Promise(every_class_exactly_at, by_radii, 0.95, 0.95, 1500, 500, each_class=True),
    Promise(exactly_at, by_radii, 0.95, 0.95, 1500, 500, each_class=True),
    Promise(good_within_bad, by_radii, 0.9, 0.9, 20_000, 60, issued=56),
    Promise(at_target, by_levels, 0.9, 0.9, 400, 300),
    Promise(all_tied, by_levels, 0.9, 0.9, 400, 300),
    Promise(steep, by_levels, 0.9, 0.9, 400, 300),
    Promise(wrong_on_top, by_levels, 0.9, 0.9, 400, 300),
    *(
        Promise(make, by_levels, 0.7, 0.8, 40, 300)
        for make in (at_target, all_tied, sure_and_wrong, constant_scores, saturated)
    ),
    Promise(voices_apart, by_levels, 0.8, 0.7, 200, 300, broken=1),
    Promise(voices_apart, by_all_voices, 0.8, 0.7, 200, 300, broken=1),
    Promise(voices_apart, by_voices_that_cost_nothing, 0.8, 0.7, 200, 300, broken=1),
    Promise(strange_and_wrong, by_levels, 0.8, 0.7, 200, 300, issued=30),
    Promise(strange_and_wrong, by_all_voices, 0.8, 0.7, 200, 300, issued=30),
    Promise(at_target, by_levels_of_others, 0.9, 0.9, 300, 200),
    Promise(at_target, by_levels_of_the_same, 0.9, 0.9, 300, 200),
    Promise(nine_tenths_right, by_levels, None, 0.9, 1500, 300, issued=101),
    Promise(three_classes, by_levels, 0.8, 0.8, 400, 150, each_class=True),
]


@pytest.mark.parametrize("promise", FAST, ids=str)
def test_certificates_are_seldom_broken(promise):
    promise.keep()


@pytest.mark.slow
@pytest.mark.parametrize("promise", SLOW, ids=str)
def test_certificates_are_broken_as_rarely_as_promised(promise):
    promise.keep()


def test_a_class_believed_rarely_and_always_wrong_is_not_certified_with_the_others():
    options = {"each_class": True, "issued": 60}
    assert Promise(rare_and_wrong, by_radii, 0.95, 0.95, 2000, 60, **options).keep().broken == 0


def naive_radius(population, part, target):
    """The radius of largest coverage whose accuracy on all the validation data is the target."""
    own, other = part.evidence["layer0"].own, part.evidence["layer0"].other
    best, radius = 0, None
    for place in np.unique(population.own):
        known = (own <= place) & (place < other)
        if known.sum() > best and (part.belief == part.y_true)[known].mean() >= target:
            best, radius = known.sum(), place
    return radius


@pytest.mark.parametrize("make", [exactly_at, many_chances])
def test_exactly_at_the_target_most_that_are_chosen_naively_are_broken(make):
    population, rng = make(0.9), np.random.default_rng(1)
    radii = [naive_radius(population, population.draw(rng, 600), 0.9) for _ in range(100)]
    found = [accuracy_within(population, radius) for radius in radii if radius is not None]
    assert sum(accuracy <= 0.9 + 1e-12 for accuracy in found) > 90


def accuracy_within(population, radius):
    """The true accuracy on IK."""
    known = (population.own[0] <= radius) & (radius < population.other[0])
    share, error = population.share[known], population.error[known]
    return 1 - (share * error).sum() / share.sum() if len(share) else None


def test_accuracies_of_a_population_are_what_its_samples_say():
    population = good_within_bad(0.9)
    part = population.draw(np.random.default_rng(0), 100_000)
    assert accuracy_within(population, 0.7) == 1
    assert accuracy_within(population, 2.0) == pytest.approx(0.9)
    assert accuracy_within(population, 0.1) is None
    assert (part.belief == part.y_true).mean() == pytest.approx(0.9, abs=0.005)


def test_accuracies_and_coverages_of_levels_are_what_the_samples_say():
    population = steep(0.9)
    part = population.draw(np.random.default_rng(0), 50_000)
    for coverage in (0.3, 0.6, 1.0):
        found = match_level(part, part, coverage, premium=0.05)
        assert population.coverage(found) == pytest.approx(found.coverage, abs=0.01)
        assert population.is_broken(found, 0.9) == (found.accuracy < 0.9)
