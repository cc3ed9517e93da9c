"""The setups against what the paper's section S2 and its tables say."""

import json
from dataclasses import replace

import pytest
import torch

from iknow.errors import InputError
from reproduction.data.datasets import DATASETS
from reproduction.readings import READINGS, find_setup
from reproduction.setups import SETUPS
from reproduction.tables import ACCURACIES, load_published
from reproduction.torch import build_network

ALL = SETUPS | READINGS
SHAPES = {
    "grid_stability": (13,),
    "grid_stability_12": (12,),
    "iris": (4,),
    "italy_power_demand": (1, 24),
    "synthetic_control": (1, 60),
    "mnist": (784,),
    "gtsrb": (3, 32, 32),
}
# Units of the hidden layers, filters and kernels of the convolutions: section S2.
LAYERS = {
    "grid_stability": ([], [32, 32]),
    "iris": ([], [8, 5]),
    "italy_power_demand": ([(6, 4), (16, 12), (8, 6)], []),
    "synthetic_control": ([(9, 12), (12, 16), (9, 12)], []),
    "mnist": ([], [32, 32]),
    "gtsrb": ([(6, 5), (16, 5), (64, 5)], [32]),
}
# Amplitudes of the normal and the uniform noise, and of the last condition: section S2.
AMPLITUDES = {
    "grid_stability": (0.03, 0.09, 0.5),
    "iris": (0.03, 0.09, 0.5),
    "italy_power_demand": (0.2, 0.6, 0.5),
    "synthetic_control": (0.5, 1.0, 0.2),
    "mnist": (0.1, 0.3, 0.2),
    "gtsrb": (0.033, 0.1, 0.05),
}


def test_the_six_datasets_of_the_tables_have_a_setup_each():
    own = [name for name, setup in ALL.items() if name == setup.published]
    assert sorted(own) == sorted(LAYERS) == sorted(ACCURACIES)
    assert sorted({key.dataset for key in load_published()}) == sorted(own)
    assert list(SETUPS) == [*own, "grid_stability_12"]
    assert not set(SETUPS) & set(READINGS)


@pytest.mark.parametrize("name", ALL)
def test_a_setup_fits_the_paper(name):
    setup = ALL[name]
    assert setup.name == name
    assert setup.dataset in DATASETS
    convolutions, hidden = LAYERS[setup.published]
    assert [(each.filters, each.kernel) for each in setup.architecture.convolutions] == convolutions
    assert list(setup.architecture.hidden) == hidden
    # The published accuracy is what a network happened to have: it may end training, and one that
    # falls far short of it has not learned.
    accuracy = ACCURACIES[setup.published]
    assert setup.training.until in (None, accuracy)
    assert accuracy - 0.15 < setup.training.least < accuracy
    published = {key.perturbation for key in load_published() if key.dataset == setup.published}
    assert ("large" in published) == (setup.noise.large is not None)
    assert ("adversarial" in published) == (setup.attack is not None)
    last = setup.noise.large if setup.attack is None else setup.attack.radius
    assert (setup.noise.gaussian, setup.noise.uniform, last) == AMPLITUDES[setup.published]
    assert setup.seeds >= 5


@pytest.mark.parametrize("name", ALL)
def test_the_layers_of_support_are_in_the_network(name):
    setup = ALL[name]
    network = build_network(
        setup.architecture, SHAPES[setup.dataset], 3, torch.Generator().manual_seed(0)
    )
    names = [layer for layer, _ in network.named_children()]
    published = {key.layers for key in load_published() if key.dataset == setup.published}
    assert published <= set(setup.layer_sets)
    assert setup.layer_sets["logit"] == (names[-1],)
    places = [names.index(layer) for layer in setup.layers]
    assert places[0] < places[1]


@pytest.mark.parametrize("name", ALL)
def test_a_setup_is_plain_values_that_tell_setups_apart(name):
    described = json.dumps(ALL[name].to_dict())
    assert json.loads(described)["name"] == name
    others = [json.dumps(each.to_dict()) for each in ALL.values() if each.name != name]
    assert described not in others
    changed = replace(ALL[name], training=replace(ALL[name].training, hold=4))
    assert json.dumps(changed.to_dict()) != described


@pytest.mark.parametrize("name", ALL)
def test_a_quick_setup_is_smaller_and_differs_in_nothing_else(name):
    setup = ALL[name]
    quick = setup.quick()
    assert (quick.max_samples, quick.seeds) == (500, 2)
    assert setup.max_samples is None
    if setup.attack is not None:
        assert quick.attack.radius == setup.attack.radius
    restored = replace(
        quick, max_samples=None, seeds=setup.seeds, attack=setup.attack, training=setup.training
    )
    assert restored == setup
    assert quick.to_dict() != setup.to_dict()


def test_a_quick_attack_is_no_longer_than_the_full_one():
    for setup in ALL.values():
        if setup.attack is not None:
            assert setup.quick().attack.iterations <= setup.attack.iterations


def test_an_attack_s_steps_reach_its_radius():
    for setup in ALL.values():
        if setup.attack is not None:
            assert setup.attack.step * setup.attack.iterations >= setup.attack.radius


def test_an_experiment_that_is_none():
    assert find_setup("iris") is SETUPS["iris"]
    assert find_setup("mnist_before_relu") is READINGS["mnist_before_relu"]
    with pytest.raises(InputError, match=r"'cifar'.*iris, .*gtsrb.*mnist_before_relu"):
        find_setup("cifar")
