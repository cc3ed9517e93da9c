"""Exported graphs run by onnxruntime, next to what the adapter itself says."""

import numpy as np
import onnx
import pytest

from iknow.models import as_model
from iknow.models.export import find_exporter
from iknow.models.onnx import OnnxModel, PortableModel


def quick(names, first):
    """Parameters of a test: the first ones always run, the others with the slow tests."""
    others = [pytest.param(name, marks=pytest.mark.slow) for name in names if name not in first]
    return [*first, *others]


def to_onnx(adapter, layers, inputs):
    """The bytes of the exported graph, for prepared inputs."""
    return find_exporter(adapter)(layers, inputs)[0]


def export(model, inputs, layers):
    """The exported graph as an onnx.ModelProto; it passes onnx's own checks."""
    adapter = as_model(model)
    found = onnx.ModelProto.FromString(to_onnx(adapter, layers, adapter.prepare(inputs)))
    if {each.domain for each in found.opset_import} <= {"", "ai.onnx.ml"}:
        onnx.checker.check_model(found)
    return found


def run(graph, inputs, layers):
    """What `OnnxModel` reads, with the belief that a bundle's own model takes from the graph."""
    read, own = OnnxModel(graph, scores="scores"), PortableModel(graph.SerializeToString())
    said = read.observe(read.prepare(inputs), [f"layer:{layer}" for layer in layers])
    return said, own.observe(own.prepare(inputs), layers).belief


def assert_same(model, inputs, layers, others=None, rtol=1e-6):
    """Export with some inputs, and compare on these and on others; leaves must be equal.

    rtol: of the largest number in a layer, as rounding is.
    """
    graph = export(model, inputs, layers)
    names = [each.name for each in graph.graph.output]
    assert names[: len(layers) + 1] == ["scores", *(f"layer:{layer}" for layer in layers)]
    for data in (inputs,) if others is None else (inputs, others):
        expected = as_model(model).observe(as_model(model).prepare(data), layers)
        said, belief = run(graph, data, layers)
        np.testing.assert_array_equal(belief, expected.belief)
        np.testing.assert_array_equal(said.invalid, expected.invalid)
        large = max(1, np.nanmax(np.abs(expected.scores))) if rtol > 1e-6 else 1  # single precision
        np.testing.assert_allclose(said.scores, expected.scores, rtol=0, atol=rtol * large)
        for layer in layers:
            got, wanted = said.activations[f"layer:{layer}"], expected.activations[layer]
            assert got.shape == wanted.shape
            exact = layer in ("leaves", "input", "table")
            size = 0 if exact else rtol * max(1, np.abs(wanted).max())
            np.testing.assert_allclose(got, wanted, rtol=0, atol=size, err_msg=layer)
    return graph


def on_thresholds(values, thresholds, most=600, seed=0):
    """Samples that lie on thresholds, and on the numbers next to them in both precisions.

    values: ordinary samples. thresholds: pairs of a feature and a number.
    """
    rng = np.random.default_rng(seed)
    pairs = sorted({(int(j), float(t)) for j, t in thresholds})
    chosen = [pairs[i] for i in rng.permutation(len(pairs))[: most // 7]]
    rows = []
    for j, t in chosen:
        single = np.float32(t)
        near = [t, np.nextafter(t, -np.inf), np.nextafter(t, np.inf), float(single)]
        near += [float(np.nextafter(single, np.float32(end))) for end in (-np.inf, np.inf)]
        near.append((t + float(single)) / 2)
        for number in near:
            row = values[rng.integers(len(values))].copy()
            row[j] = number
            rows.append(row)
    return np.array(rows)
