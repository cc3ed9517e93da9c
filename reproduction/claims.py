"""The paper's claims about its tables, as statements that are true or false of a set of numbers.

Each stands beside the paper's words (from "Experiments and Discussion" and "Conclusion") and is
checked on the published numbers and on those of every seed. The paper names no sizes; ours are
constants here.

"Strongest" is the last of the four conditions: large noise, or the attack. A sample is known and
wrong if it is IK and the answer is not right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reproduction.protocol import Outcome
from reproduction.tables import Key, load_published

NOISE = ("gaussian", "uniform")


@dataclass(frozen=True)
class DatasetNumbers:
    """The numbers of one dataset, by method, condition and layers."""

    numbers: Mapping[Key, float]
    dataset: str

    @property
    def strongest(self) -> str:
        """The strongest of the conditions."""
        large = Key(self.dataset, "two", "ball", "large", "F_IK") in load_published()
        return "large" if large else "adversarial"

    @property
    def conditions(self) -> tuple[str, ...]:
        return ("nominal", *NOISE, self.strongest)

    def known(self, method: str, condition: str, layers: str = "two") -> float:
        """F_IK."""
        return self.numbers[Key(self.dataset, layers, method, condition, "F_IK")]

    def right(self, method: str, condition: str, layers: str = "two") -> float:
        """A_IK; NaN if nothing is known."""
        return self.numbers[Key(self.dataset, layers, method, condition, "A_IK")]

    def right_outside(self, method: str, condition: str) -> float:
        """A_¬IK; NaN if all is known."""
        return self.numbers[Key(self.dataset, "two", method, condition, "A_notIK")]

    def known_wrong(self, method: str, condition: str, layers: str = "two") -> float:
        """The share of the samples that are known and wrong."""
        known = self.known(method, condition, layers)
        return known * (1 - self.right(method, condition, layers)) if known else 0.0


def list_numbers(dataset: str, outcome: Outcome) -> dict[Key, float]:
    """The numbers of one seed under the name of a dataset of the paper; NaN if undefined."""
    return {
        Key(dataset, cell.layers, cell.method, cell.perturbation, cell.metric): (
            float("nan") if cell.value is None else cell.value
        )
        for cell in outcome.cells
    }


HALF = 0.5
ABOUT = 0.02
SIMILAR = 0.1
LOW = 0.2
HIGH_ACCURACY = 0.9
DATASETS = tuple(dict.fromkeys(key.dataset for key in load_published()))
WITH_LOGIT = tuple(dict.fromkeys(key.dataset for key in load_published() if key.layers == "logit"))


@dataclass(frozen=True)
class Claim:
    """A claim about some datasets. words: the paper's. holds: whether a reading confirms it."""

    text: str
    words: str
    holds: Callable[[DatasetNumbers], bool]
    datasets: tuple[str, ...] = DATASETS


def _matches_coverage(its: DatasetNumbers) -> bool:
    ball = its.known("ball", "nominal")
    return all(abs(its.known(each, "nominal") - ball) <= SIMILAR for each in ("softmax", "knn"))


def _separates(its: DatasetNumbers) -> bool:
    known = its.known("ball", "nominal")
    inside, outside = its.right("ball", "nominal"), its.right_outside("ball", "nominal")
    return inside > known * inside + (1 - known) * outside > outside


def _softmax_separates_under_noise(its: DatasetNumbers) -> bool:
    return all(its.right("softmax", each) > its.right_outside("softmax", each) for each in NOISE)


def _is_sure_and_wrong(its: DatasetNumbers) -> bool:
    known, right = (each("softmax", its.strongest) for each in (its.known, its.right))
    return known > HALF and right < HALF


def _falls(its: DatasetNumbers) -> bool:
    return all(
        its.known(each, its.strongest) < HALF * its.known(each, "nominal")
        for each in ("ball", "h2")
    )


def _stays_right_under_attack(its: DatasetNumbers) -> bool:
    kept = (its.right(each, its.strongest) >= HIGH_ACCURACY for each in ("knn", "ball", "h2"))
    return all(kept) and its.right("softmax", its.strongest) < HIGH_ACCURACY


def _is_safer_than(method: str, margin: float) -> Callable[[DatasetNumbers], bool]:
    def holds(its: DatasetNumbers) -> bool:
        most = its.known_wrong(method, its.strongest) + margin
        return all(its.known_wrong(each, its.strongest) <= most for each in ("ball", "h2"))

    return holds


def _are_similar(one: str, other: str, its: DatasetNumbers, conditions: tuple[str, ...]) -> bool:
    return all(
        _near(figure(one, each), figure(other, each))
        for figure in (its.known, its.right)
        for each in conditions
    )


def _near(one: float, other: float) -> bool:
    """Both undefined, or not far apart."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return abs(one - other) <= SIMILAR


def _two_are_safer(its: DatasetNumbers, conditions: tuple[str, ...]) -> bool:
    return all(
        its.known_wrong("ball", each) <= its.known_wrong("ball", each, "logit")
        for each in conditions
    )


CLAIMS = (
    Claim(
        f"on nominal data softmax and k-NN cover as much as ε, within {SIMILAR}",
        "they have the similar coverage as ε-ball support",
        _matches_coverage,
    ),
    Claim(
        "on nominal data A_IK > accuracy > A_¬IK, with ε",
        "ability of developed approach to provide individual reliability",
        _separates,
    ),
    Claim(
        "under normal and uniform noise A_IK > A_¬IK, with softmax",
        "performs well on zero-mean small perturbations",
        _softmax_separates_under_noise,
    ),
    Claim(
        f"under normal and uniform noise F_IK and A_IK of softmax and k-NN differ by {SIMILAR} "
        "at most",
        "is comparable to performance with k-NN neighborhood operator",
        lambda its: _are_similar("softmax", "knn", its, NOISE),
    ),
    Claim(
        f"under the strongest perturbation F_IK > {HALF} and A_IK < {HALF}, with softmax",
        "baseline has high fraction of IK but very poor accuracy on IK",
        _is_sure_and_wrong,
        ("grid_stability", "mnist", "gtsrb"),
    ),
    Claim(
        "under the strongest perturbation F_IK falls below half of its nominal value, with ε and "
        "H-2",
        "be able to assert IDK and get very low F_IK for detection of malicious perturbations",
        _falls,
    ),
    Claim(
        f"under the strongest perturbation F_IK is below {LOW}, with ε and H-2",
        "This is true for ε-NN and H-2 neighborhood operator as highlighted in bold",
        lambda its: all(its.known(each, its.strongest) < LOW for each in ("ball", "h2")),
        tuple(each for each in DATASETS if each != "synthetic_control"),
    ),
    Claim(
        f"under attack A_IK is {HIGH_ACCURACY} or more with k-NN, ε and H-2, not with softmax",
        "high F_IK and high A_IK for adversarial robustness",
        _stays_right_under_attack,
        ("synthetic_control",),
    ),
    Claim(
        f"under every condition ε covers no more than k-NN, within {ABOUT}",
        "ε-NN and H-2 cases have lower coverage than k-NN in all cases",
        lambda its: all(
            its.known("ball", each) <= its.known("knn", each) + ABOUT for each in its.conditions
        ),
    ),
    Claim(
        "under every condition H-2 covers less than k-NN",
        "ε-NN and H-2 cases have lower coverage than k-NN in all cases",
        lambda its: all(its.known("h2", each) < its.known("knn", each) for each in its.conditions),
    ),
    Claim(
        "under the strongest perturbation no more is known and wrong with ε and H-2 than with "
        f"k-NN, within {ABOUT}",
        "it has superior reliability under large perturbations",
        _is_safer_than("knn", ABOUT),
    ),
    Claim(
        "under the strongest perturbation no more is known and wrong with ε and H-2 than with "
        "softmax",
        "demonstrated superiority in robustness",
        _is_safer_than("softmax", 0.0),
    ),
    Claim(
        f"under every condition F_IK and A_IK of H-1 and k-NN differ by {SIMILAR} at most",
        "it is similar to k-NN operator",
        lambda its: _are_similar("h1", "knn", its, its.conditions),
        WITH_LOGIT,
    ),
    Claim(
        "on nominal data the logit alone covers more than two layers, with ε",
        "support in only logit layer has good coverage",
        lambda its: its.known("ball", "nominal", "logit") > its.known("ball", "nominal"),
        WITH_LOGIT,
    ),
    Claim(
        "under normal and uniform noise no more is known and wrong in two layers than in the logit "
        "alone, with ε",
        "but lacks robustness under perturbations",
        lambda its: _two_are_safer(its, NOISE),
        WITH_LOGIT,
    ),
    Claim(
        "under attack no more is known and wrong in two layers than in the logit alone, with ε",
        "gathering support from at least two layers is preferable",
        lambda its: _two_are_safer(its, (its.strongest,)),
        WITH_LOGIT,
    ),
)
