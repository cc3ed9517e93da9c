"""Condensing: how much coverage fewer rows and fewer bytes cost, by dataset and setting.

    IKNOW_DATA=... python -m benchmarks.condensing --out condensing.json

Networks are trained as in `reproduction`. Condensing sees validation samples; coverage is reported
on test samples, each of whose assertions is compared with the full classifier's: it must be the
same, or IDK. "Tuned again" is the condensed classifier after `tune` on the validation samples.
"Rows alone" drops all rows but a random part and leaves no codes: its coverage is what rows of the
believed class within reach could at best support, if contradictions were known exactly.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine
from iknow import Assertion, EpistemicClassifier
from iknow.core.quorum import weigh
from iknow.geometry import Minkowski
from reproduction.data.datasets import Dataset, load_dataset
from reproduction.readings import find_setup
from reproduction.torch import measure_accuracy, one_thread, train_network

SETTINGS: dict[str, Callable[..., EpistemicClassifier]] = {
    "default": EpistemicClassifier,
    "paper": EpistemicClassifier.paper,
}
LOSSES = (0.005, 0.01, 0.02, 0.05)
FACTORS = (5, 10, 20, 50)
PLAIN = Minkowski(2.0)


def measure(name: str, n_test: int | None) -> list[dict[str, Any]]:
    """A record for each setting, factor and allowed loss."""
    setup, data = find_setup(name), load_dataset(name, seed=0)
    parts = (data.X_train, data.y_train), (data.X_val, data.y_val)
    with one_thread():
        network, _ = train_network(setup.architecture, setup.training, *parts, len(data.classes), 0)
    found = []
    for setting, make in SETTINGS.items():
        full = make(network, progress=False).fit(*parts[0]).tune(*parts[1])
        test = data.X_test[:n_test]
        facts = {"dataset": name, "setting": setting, "rows": len(data.X_train)}
        facts |= {"accuracy": measure_accuracy(network, data.X_test, data.y_test)}
        asked = [(5, loss) for loss in LOSSES] + [(factor, 0.01) for factor in FACTORS[1:]]
        for factor, loss in asked:
            found.append(facts | condense(full, data, test, factor, loss))
            print(json.dumps(found[-1]), flush=True)
        for factor in FACTORS:
            coverage = rows_alone(full, test, factor)
            found.append(facts | {"rows alone": factor, "coverage": coverage})
            print(json.dumps(found[-1]), flush=True)
    return found


def condense(
    full: EpistemicClassifier, data: Dataset, test: Any, factor: int, loss: float
) -> dict[str, Any]:
    """What one way of condensing keeps and costs."""
    small = full.condense(data.X_val, factor=factor, coverage_loss=loss)
    was, now = full.assess(test), small.assess(test)
    same = now.assertion == was.assertion
    assert (same | (now.assertion == Assertion.IDK)).all()
    assert (small.selection_.levels is None) or (now.level <= was.level).all()
    record, kept = small.condensed_, small.condensed_.rows
    again = small.tune(data.X_val, data.y_val).assess(test)
    before = full.selection_.certificate
    after = small.selection_.certificate
    return {
        "factor": factor,
        "allowed loss": loss,
        "in full": kept,
        "numbers per code": dict(record.directions),
        "numbers per row": dict(record.features),
        "times fewer bytes": record.bytes_before / record.bytes,
        "coverage on validation": [record.coverage_before, record.coverage],
        "coverage": [known(was), known(now)],
        "coverage, tuned again": known(again),
        "certified": [None if each is None else each.accuracy for each in (before, after)],
        "not the same": float((~same).mean()),
        "IMK": [float((each.assertion == Assertion.IMK).mean()) for each in (was, now)],
    }


def rows_alone(full: EpistemicClassifier, test: Any, factor: int) -> float:
    """The share of test samples that part of the rows could support, against all of the others."""
    assessed = full.assess(test, evidence=True)
    belief, pure = assessed.belief_codes, assessed.assertion == Assertion.IK
    index = next(iter(full.indexes_.values()))
    drawn = np.random.default_rng(0).permutation(index.n_rows)[: index.n_rows // factor]
    outputs = full._samples(test)
    seen = [full.model_.observe(batch, tuple(assessed.evidence)) for batch in outputs.read()]
    for layer, rule in assessed.neighborhoods.items():
        points = np.concatenate([each.activations[layer] for each in seen])
        whole = full.indexes_[layer]
        part = type(whole).build(
            whole.points[drawn], whole.labels[drawn], whole.n_classes, whole.rows[drawn], PLAIN
        )
        queries = whole.metric.transform(points)
        fewer = weigh(part.gather(queries, 0, max(rule.quorum)), rule.quorum, belief)
        weighed = assessed.weighed[layer]
        rows = np.arange(len(belief))
        weighed.class_distances[rows, belief] = fewer.class_distances[rows, belief]
        reach = np.broadcast_to(
            rule.reach(weighed).reshape(len(belief), -1), weighed.class_distances.shape
        )
        support = weighed.class_distances <= reach
        pure = pure & support[rows, belief] & (support.sum(axis=1) == 1)
    return float(pure.mean())


def known(assessed: Any) -> float:
    return float((assessed.assertion == Assertion.IK).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=["mnist", "grid_stability"])
    parser.add_argument("--test", type=int, help="test samples, default: all")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = [each for name in options.datasets for each in measure(name, options.test)]
    if options.out is not None:
        result = {"machine": describe_machine(), "condensing": found}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
