"""Setups: what the paper says about each experiment (its section S2), and how we read the rest.

The paper gives the architecture, the accuracy of the base classifier, the layers of support and the
amplitudes of the perturbations. It does not give the initial weights, the batch size, the number of
epochs, the padding of the convolutions, the position of the ReLU or the steps of the attack; nor,
for amplitudes in standard deviations, which standard deviation it means, and whether that applies
to images. Unless something says otherwise, we use Keras's defaults: Glorot's weights, batches of
32, no padding. Keras has no default for the number of epochs: it is the one whose nominal numbers
come nearest to the published ones. docs/reproduction/protocol.md says what we tried, and why we
kept these readings.

A variant is a separate experiment that is compared with another one's published values.
`READINGS` are other readings of what the paper leaves open, by name: `python -m reproduction NAME`
runs one; `python -m reproduction all` runs none of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from iknow.core.rule import Limits
from iknow.errors import InputError

Weights = Literal["glorot", "he"]


@dataclass(frozen=True)
class Convolution:
    """Filters of a kernel size, followed by a ReLU and, optionally, pooling by 2."""

    filters: int
    kernel: int
    pool: bool = False


@dataclass(frozen=True)
class Architecture:
    """Layers from input to output; each but the last, the logits, is followed by a ReLU.

    convolutions: over one axis or two, like the input. They end in global average pooling, "gap".
    same: whether convolutions keep the size of their input, like Keras's padding "same".
    Layers are named conv1, relu1, ..., gap, dense1, ..., logits; ReLUs are counted from the input.
    """

    convolutions: tuple[Convolution, ...] = ()
    hidden: tuple[int, ...] = ()
    same: bool = False


@dataclass(frozen=True)
class Training:
    """Adam for a number of epochs, from initial weights by Glorot and Bengio or by He et al.

    least: a network less accurate than this on validation data has not learned (all units of a
    small layer can be dead from the start): training starts again from other weights.
    until: end earlier, once validation accuracy is at least this `hold` epochs in a row; a single
    epoch can reach it by luck.
    """

    batch: int
    epochs: int
    least: float
    until: float | None = None
    hold: int = 3
    rate: float = 0.001
    weights: Weights = "glorot"
    restarts: int = 20


@dataclass(frozen=True)
class Noise:
    """Amplitudes of the normal noise (its standard deviation) and of the uniform noise.

    relative: whether they are in units of one standard deviation over all training values. large:
    the amplitude of the large uniform noise, in units of the training values' max - min.
    """

    gaussian: float
    uniform: float
    relative: bool = False
    large: float | None = None
    limits: Limits | None = None


@dataclass(frozen=True)
class Attack:
    """The Basic Iterative Method: the largest change of a value, its steps, and their number."""

    radius: float
    step: float
    iterations: int


@dataclass(frozen=True)
class Setup:
    """One experiment.

    name: of the results. published: the dataset in the paper's tables to compare with. dataset: its
    name in `load_dataset`. layers: the layers of support for "two". seeds: how many to run.
    max_samples: of the validation and of the test part, with four times as many to train on.
    """

    name: str
    published: str
    dataset: str
    architecture: Architecture
    training: Training
    layers: tuple[str, str]
    noise: Noise
    attack: Attack | None = None
    seeds: int = 5
    max_samples: int | None = None

    @property
    def layer_sets(self) -> dict[str, tuple[str, ...]]:
        """The layers of support by their name in the tables."""
        return {"two": self.layers, "logit": ("logits",)}

    def to_dict(self) -> dict[str, Any]:
        """The setup as plain values; a stored result counts only if its setup is equal."""
        return asdict(self)

    def quick(self) -> Setup:
        """A version on few samples that takes seconds. It only shows that everything runs."""
        attack = (
            None
            if self.attack is None
            else replace(self.attack, iterations=min(10, self.attack.iterations))
        )
        training = replace(self.training, least=0.0, epochs=min(30, self.training.epochs))
        return replace(self, training=training, attack=attack, seeds=2, max_samples=500)


def _attack(radius: float) -> Attack:
    """Many small steps: the attack's result then depends on the radius alone."""
    return Attack(radius, step=radius / 5, iterations=50)


_GRID = Setup(
    name="grid_stability",
    published="grid_stability",
    dataset="grid_stability",
    architecture=Architecture(hidden=(32, 32)),
    training=Training(batch=32, epochs=12, least=0.8),
    layers=("relu2", "logits"),
    noise=Noise(gaussian=0.03, uniform=0.09, relative=True, large=0.5),
)
_MNIST = Setup(
    name="mnist",
    published="mnist",
    dataset="mnist",
    architecture=Architecture(hidden=(32, 32)),
    # With batches of 32 no number of epochs comes near the published coverage.
    training=Training(batch=512, epochs=150, least=0.9),
    layers=("relu2", "logits"),
    noise=Noise(gaussian=0.1, uniform=0.3, limits=(0.0, 1.0)),
    attack=_attack(0.2),
)
_GTSRB = Setup(
    name="gtsrb",
    published="gtsrb",
    dataset="gtsrb",
    architecture=Architecture(
        convolutions=(Convolution(6, 5, True), Convolution(16, 5, True), Convolution(64, 5)),
        hidden=(32,),
        # Without padding one value per filter is left, and the paper's pooling would average it.
        same=True,
    ),
    training=Training(batch=32, epochs=10, least=0.9),
    layers=("gap", "logits"),
    noise=Noise(gaussian=0.033, uniform=0.1, limits=(0.0, 1.0)),
    attack=_attack(0.05),
)

_ALL = [
    _GRID,
    Setup(
        name="iris",
        published="iris",
        dataset="iris",
        architecture=Architecture(hidden=(8, 5)),
        training=Training(batch=32, epochs=500, least=0.9),
        layers=("relu2", "logits"),
        noise=Noise(gaussian=0.03, uniform=0.09, relative=True, large=0.5),
        seeds=20,
    ),
    Setup(
        name="italy_power_demand",
        published="italy_power_demand",
        dataset="italy_power_demand",
        architecture=Architecture(
            convolutions=(Convolution(6, 4), Convolution(16, 12), Convolution(8, 6))
        ),
        training=Training(batch=32, epochs=100, least=0.85),
        layers=("relu3", "gap"),
        noise=Noise(gaussian=0.2, uniform=0.6, relative=True, large=0.5),
        seeds=20,
    ),
    Setup(
        name="synthetic_control",
        published="synthetic_control",
        dataset="synthetic_control",
        architecture=Architecture(
            convolutions=(Convolution(9, 12), Convolution(12, 16), Convolution(9, 12))
        ),
        training=Training(batch=32, epochs=200, least=0.9),
        layers=("relu3", "gap"),
        noise=Noise(gaussian=0.5, uniform=1.0, relative=True),
        attack=_attack(0.2),
        seeds=20,
    ),
    _MNIST,
    _GTSRB,
    # Without the column that determines the label, and with standardized features: what the paper's
    # numbers would be worth to someone who runs a grid.
    replace(_GRID, name="grid_stability_12", dataset="grid_stability_12"),
]
SETUPS: dict[str, Setup] = {setup.name: setup for setup in _ALL}


def _other(setup: Setup, name: str, **training: Any) -> Setup:
    """A setup trained otherwise."""
    return replace(setup, name=f"{setup.name}_{name}", training=replace(setup.training, **training))


def _padded(setup: Setup, name: str, *, same: bool) -> Setup:
    return replace(
        setup,
        name=f"{setup.name}_{name}",
        architecture=replace(setup.architecture, same=same),
    )


_GRID, _MNIST, _GTSRB = (SETUPS[name] for name in ("grid_stability", "mnist", "gtsrb"))
_SERIES = [SETUPS["italy_power_demand"], SETUPS["synthetic_control"]]
_OTHERS = [
    # He's weights; Grid needs more epochs from them.
    _other(_GRID, "he", weights="he", epochs=20),
    _other(SETUPS["iris"], "he", weights="he"),
    *(_other(each, "he", weights="he") for each in _SERIES),
    _other(_MNIST, "he", weights="he"),
    _other(_GTSRB, "he", weights="he"),
    # Other batches.
    _other(_GRID, "batch_512", batch=512, epochs=100),
    _other(_MNIST, "batch_32", batch=32, epochs=3),
    _other(_MNIST, "batch_2048", batch=2048),
    # Stopped once the published accuracy holds on validation data.
    _other(_GRID, "stopped", weights="he", epochs=100, until=0.9374),
    _other(_MNIST, "stopped", weights="he", batch=2048, epochs=100, until=0.9603),
    # Where layers are read, and padding.
    replace(_GRID, name="grid_stability_before_relu", layers=("dense2", "logits")),
    replace(_MNIST, name="mnist_before_relu", layers=("dense2", "logits")),
    *(_padded(each, "same", same=True) for each in _SERIES),
    _other(
        _padded(_GTSRB, "valid", same=False),
        "stopped",
        weights="he",
        batch=512,
        epochs=100,
        until=0.9741,
    ),
    _other(_padded(_GTSRB, "valid", same=False), "long", batch=2048, epochs=50),
    # Steps of the attack.
    replace(_MNIST, name="mnist_short_attack", attack=Attack(0.2, step=0.02, iterations=10)),
    replace(_GTSRB, name="gtsrb_short_attack", attack=Attack(0.05, step=0.01, iterations=10)),
]
READINGS: dict[str, Setup] = {setup.name: setup for setup in _OTHERS}


def find_setup(name: str) -> Setup:
    """The experiment with a name."""
    known = SETUPS | READINGS
    if name not in known:
        raise InputError(
            f"no experiment is named {name!r}: choose all, figures, notebooks, one of "
            f"{', '.join(SETUPS)}, or one of the other readings {', '.join(READINGS)}"
        )
    return known[name]
