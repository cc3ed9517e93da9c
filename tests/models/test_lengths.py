"""Lengths of inputs against norms in long doubles, whatever the inputs come as."""

import numpy as np
import pandas as pd
import pytest
import torch

from iknow.models import lengths
from iknow.models.lengths import PROBES, measure

VALUES = np.random.default_rng(0).normal(size=(50, 3, 4)) * 1e3
KINDS = {
    "array": VALUES,
    "float32": VALUES.astype(np.float32),
    "float16": VALUES.astype(np.float16),
    "whole numbers": VALUES.astype(np.int32),
    "reversed": VALUES[::-1, ::-1],
    "frame": pd.DataFrame(VALUES.reshape(50, 12)),
    "tensor": torch.from_numpy(VALUES).requires_grad_(),
    "bfloat16": torch.from_numpy(VALUES).bfloat16(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_input_is_longer_than_its_length(kind, monkeypatch):
    monkeypatch.setattr(lengths, "NUMBERS_AT_ONCE", 100)  # so in several parts
    inputs = KINDS[kind]
    wide = inputs.detach().double().numpy() if hasattr(inputs, "detach") else np.asarray(inputs)
    exact = np.sqrt((wide.reshape(50, -1).astype(np.longdouble) ** 2).sum(axis=1))
    sizes = measure(inputs)
    assert (sizes.lengths >= exact).all()
    np.testing.assert_allclose(sizes.lengths, exact.astype(float), rtol=2e-9)
    assert len(sizes.probe) == PROBES


def test_what_has_no_length_has_none():
    for inputs in (
        pd.DataFrame({"a": ["1", "2"]}),
        np.array([["a"], ["b"]]),
        np.array([[1j], [2j]]),
        torch.tensor([[1j], [2j]]),
        [[1.0], [2.0]],
    ):
        assert measure(inputs).lengths is None
    assert measure(np.zeros((0, 3))).lengths.shape == (0,)
    assert measure(torch.zeros(0, 3)).lengths.shape == (0,)
    assert measure(np.zeros((2, 0))).lengths.tolist() == [0, 0]
    assert not np.isfinite(measure(np.array([[np.nan], [np.inf], [1e200]])).lengths).any()


def test_the_probe_is_a_copy():
    for inputs in (np.ones((9, 2)), pd.DataFrame(np.ones((9, 2))), torch.ones(9, 2)):
        probe = measure(inputs).probe
        inputs *= 0
        assert (np.asarray(probe) == 1).all()
