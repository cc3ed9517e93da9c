"""xgboost on a table with missing values: what it knows, and what it should not.

Patients with thirty measurements each, some of them missing: at random, and in a pattern, as where
a device reports no value beyond its range. xgboost takes the gaps as they are, and so does iknow:
it looks at the leaves in which the trees put a patient, and at the measurements that are there.

    python examples/xgboost_missing_values.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

from iknow import Assertion, Assessment, EpistemicClassifier, evaluate


def make_patients() -> tuple[np.ndarray, np.ndarray]:
    """Measurements with gaps, NaN, and whether the tumor is benign."""
    data = load_breast_cancer()
    values, names = data.data, np.array(["malignant", "benign"])
    at_random = np.random.default_rng(0).random(values.shape) < 0.1
    beyond_its_range = np.zeros_like(at_random)
    beyond_its_range[:, :5] = values[:, :5] > np.quantile(values[:, :5], 0.9, axis=0)
    return np.where(at_random | beyond_its_range, np.nan, values), names[data.target]


def describe(name: str, assessed: Assessment) -> None:
    """One line: how sure the model is on average, and how many of its answers are IK."""
    sure, known = assessed.scores.max(axis=1).mean(), assessed.assertion == Assertion.IK
    print(f"{name:38} the model is {sure:.0%} sure, IK {known.mean():6.1%}")


def main() -> dict[str, Assessment]:
    X, y = make_patients()
    X_rest, X_test, y_rest, y_test = train_test_split(X, y, test_size=0.35, random_state=0)
    X_train, X_val, y_train, y_val = train_test_split(X_rest, y_rest, test_size=0.4, random_state=0)

    # xgboost wants classes from 0; classes= says what the numbers mean.
    names = ["malignant", "benign"]
    codes = np.array([names.index(label) for label in y_train])
    model = XGBClassifier(n_estimators=100, max_depth=4, n_jobs=1).fit(X_train, codes)

    # The three lines.
    ec = EpistemicClassifier(model, classes=names).fit(X_train, y_train)
    ec.tune(X_val, y_val, coverage=0.75)
    test = ec.assess(X_test)

    print(f"{np.isnan(X).mean():.0%} of the values are missing; layers: {', '.join(ec.layers_)}\n")
    print(evaluate(test, y_test), "\n")

    # What the model should not know. It answers all the same.
    rng = np.random.default_rng(1)
    other_unit = X_test.copy()
    other_unit[:, 10:] *= 10  # millimeters taken for centimeters
    shuffled = rng.permuted(X_test, axis=0)  # each measurement of another patient
    device_off = X_test.copy()
    device_off[:, 5:] = np.nan
    found = {
        "patients like those before": test,
        "twenty measurements in another unit": ec.assess(other_unit),
        "measurements of different patients": ec.assess(shuffled),
        "most measurements missing": ec.assess(device_off),
    }
    for name, assessed in found.items():
        describe(name, assessed)
    print("\n" + str(test.explain(int((test.assertion != Assertion.IK).argmax()))))
    return found


if __name__ == "__main__":
    main()
