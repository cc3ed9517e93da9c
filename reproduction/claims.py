"""The paper's claims, as statements about a table of numbers that are true or false.

Each is checked on the published numbers and on those of every seed. "Last" is the strongest of the
four conditions: large noise, or the attack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from reproduction.tables import Key

Numbers = Mapping[Key, float]
HALF = 0.5
ABOUT = 0.02
HIGH_ACCURACY = 0.9


@dataclass(frozen=True)
class Claim:
    """A claim about one dataset. holds: whether numbers, by their keys, confirm it."""

    text: str
    dataset: str
    holds: Callable[[Numbers], bool]


def list_claims(dataset: str, *, last: str, logit: bool) -> Iterator[Claim]:
    """The claims about a dataset whose last condition is given, with one layer too if `logit`."""
    value = _reader(dataset)

    def falls(numbers: Numbers, method: str) -> bool:
        under, before = value(numbers, method, last), value(numbers, method, "nominal")
        return under < HALF * before

    yield Claim(
        f"Coverage of ε and H-2 falls below half of its nominal value under {last} perturbation",
        dataset,
        lambda numbers: falls(numbers, "ball") and falls(numbers, "h2"),
    )
    yield Claim(
        f"Coverage of the softmax threshold stays above half of its nominal value under {last} "
        "perturbation",
        dataset,
        lambda numbers: not falls(numbers, "softmax"),
    )
    yield Claim(
        "A_IK > accuracy > A_¬IK on nominal data, with ε",
        dataset,
        lambda numbers: _separates(numbers, value),
    )
    conditions = ("nominal", "gaussian", "uniform", last)
    yield Claim(
        "H-2 covers no more than ε, under every condition",
        dataset,
        lambda numbers: all(
            value(numbers, "h2", each) <= value(numbers, "ball", each) for each in conditions
        ),
    )
    yield Claim(
        f"ε covers no more than k-NN (within {ABOUT}), under every condition",
        dataset,
        lambda numbers: all(
            value(numbers, "ball", each) <= value(numbers, "knn", each) + ABOUT
            for each in conditions
        ),
    )
    if logit:
        yield Claim(
            f"Two layers are more robust than the logit alone: fewer samples are known and wrong "
            f"under {last} perturbation, with ε",
            dataset,
            lambda numbers: (
                _harm(numbers, dataset, "two", last) <= _harm(numbers, dataset, "logit", last)
            ),
        )
    if dataset == "synthetic_control":
        yield Claim(
            f"k-NN, ε and H-2 keep A_IK at {HIGH_ACCURACY} or more under attack, softmax does not",
            dataset,
            lambda numbers: (
                all(
                    value(numbers, method, last, "A_IK") >= HIGH_ACCURACY
                    for method in ("knn", "ball", "h2")
                )
                and value(numbers, "softmax", last, "A_IK") < HIGH_ACCURACY
            ),
        )


def _reader(dataset: str) -> Callable[..., float]:
    def value(numbers: Numbers, method: str, perturbation: str, metric: str = "F_IK") -> float:
        return numbers[Key(dataset, "two", method, perturbation, metric)]

    return value


def _separates(numbers: Numbers, value: Callable[..., float]) -> bool:
    known = value(numbers, "ball", "nominal")
    inside, outside = (value(numbers, "ball", "nominal", each) for each in ("A_IK", "A_notIK"))
    accuracy = known * inside + (1 - known) * outside
    return inside > accuracy > outside


def _harm(numbers: Numbers, dataset: str, layers: str, perturbation: str) -> float:
    """The share of the samples that are IK by the ball, and wrong."""
    known = numbers[Key(dataset, layers, "ball", perturbation, "F_IK")]
    right = numbers[Key(dataset, layers, "ball", perturbation, "A_IK")]
    return known * (1 - right) if known else 0.0
