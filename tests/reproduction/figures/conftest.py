"""The experiments of the figures, trained once."""

import pytest

from reproduction.figures.experiment import make_experiment
from reproduction.notebooks.settings import NOISES


@pytest.fixture(scope="session")
def experiments():
    """One for each level of noise, as they are drawn."""
    return [make_experiment(noise) for noise in NOISES]
