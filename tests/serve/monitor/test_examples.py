"""The examples in the docstrings."""

import doctest

import numpy as np
import pytest

from iknow.serve.monitor import accuracy, alarm, ranking


@pytest.mark.parametrize("module", [accuracy, alarm, ranking])
def test_examples_give_what_they_say(module):
    found = doctest.testmod(module, extraglobs={"np": np})
    assert found.attempted > 0
    assert found.failed == 0
