"""Keras: a small network reads handwritten digits, and says which it cannot read.

It learns the digits 0 to 7. The digits 8 and 9 are shown to it later: it names one of its own for
each of them, and iknow says how rarely that is known. The layers are found by name: the pixels, and
what enters the last dense layer.

    KERAS_BACKEND=torch python examples/keras_network.py
"""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or jax, or tensorflow: before Keras is imported

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from iknow import Assertion, EpistemicClassifier, evaluate


def train_network(images: np.ndarray, digits: np.ndarray) -> keras.Model:
    """A convolutional network with eight classes."""
    keras.utils.set_random_seed(0)
    network = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu", name="edges"),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu", name="strokes"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(8, activation="softmax", name="digits"),
        ]
    )
    network.compile("adam", "sparse_categorical_crossentropy")
    network.fit(images, digits, epochs=30, batch_size=32, verbose=0)
    return network


def main() -> dict[str, float]:
    """Train, tune, assess; returns what it prints as numbers."""
    pixels, digits = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    learned = digits < 8
    train, rest, y_train, y_rest = train_test_split(
        images[learned], digits[learned], train_size=500, random_state=0
    )
    validation, test, y_validation, y_test = train_test_split(
        rest, y_rest, train_size=0.5, random_state=0
    )
    network = train_network(train, y_train)

    # Three lines: the network as it is, its training data, and some images it has not seen.
    ec = EpistemicClassifier(network, progress=False).fit(train, y_train)
    ec.tune(validation, y_validation)
    assessment = ec.assess(test)

    print(f"layers: {', '.join(ec.layers_)}")
    print(evaluate(assessment, y_test))
    known = assessment.assertion == Assertion.IK
    right = assessment.belief == y_test

    foreign = ec.assess(images[~learned]).assertion == Assertion.IK
    confident = network.predict(images[~learned], verbose=0).max(axis=1) > 0.9
    print(
        f"\nDigits 8 and 9, which it never learned: IK on {foreign.mean():.1%}; the network is "
        f"more than 90% sure of itself on {confident.mean():.1%}."
    )
    return {
        "coverage": float(known.mean()),
        "accuracy on IK": float(right[known].mean()),
        "accuracy elsewhere": float(right[~known].mean()),
        "foreign IK": float(foreign.mean()),
        "foreign confident": float(confident.mean()),
    }


if __name__ == "__main__":
    main()
