"""The middle stages of ONNX graphs: those that torch finds in the module that was exported; and
what all of a sample goes through, by taking every tensor out in turn.
"""

import io
import logging
import warnings

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from iknow import EpistemicClassifier
from iknow.models import OnnxModel, TorchModel
from iknow.models.stages import Step, _segments, some_stages, stages_by_blocks, stages_by_resolution
from tests.models.onnx.graphs import mlp
from tests.models.torch.test_stages import CASES, Residual, pictures, stages_of


class PreNorm(nn.Module):
    """A vision transformer that normalizes first, with a token for the class and positions."""

    def __init__(self, n_blocks=5):
        super().__init__()
        self.patches, self.place = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 17, 8))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(n_blocks)
        )
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([x[:, :1] * 0, x], 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Pooled(Residual):
    """With a module that pools to a single place."""

    def __init__(self):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.fc(self.avgpool(x).flatten(1))


NETWORKS = {case: (net, inputs) for case, (net, inputs, _) in CASES.items()}
NETWORKS |= {"normalized first": (PreNorm, lambda: pictures(size=16)), "pooled": (Pooled, pictures)}


def exported(net, inputs, *, dynamo=False):
    """The ONNX graph of a module, by torch's old exporter or by the new one."""
    given = inputs if isinstance(inputs, dict) else {"x": inputs}
    examples = tuple(torch.from_numpy(each[:2]) for each in given.values())
    axes = {0: "n", 1: "length"} if isinstance(inputs, dict) else {0: "n"}
    sizes = {"dynamic_axes": dict.fromkeys(given, axes)}
    if dynamo:
        pytest.importorskip("onnxscript")
        sizes = {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},), "verbose": False}
    file, fast = io.BytesIO(), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # an operation that only torch has
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(net, examples, file, input_names=[*given], dynamo=dynamo, **sizes)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        logging.disable(level)
    return onnx.load_from_string(file.getvalue())


def network(case):
    torch.manual_seed(0)
    net, inputs = NETWORKS[case]
    made = net().eval()
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return made, inputs()


def moments(model, inputs):
    found = model.observe(model.prepare(inputs), stages_of(model, inputs))
    return [*found.activations.values()]


@pytest.mark.parametrize(
    ("case", "dynamo"),
    [
        *((case, False) for case in NETWORKS),
        ("pooled", True),
        pytest.param("vision transformer", True, marks=pytest.mark.slow),
    ],
)
def test_an_exported_network_has_the_stages_of_its_module(case, dynamo):
    net, inputs = network(case)
    graph = OnnxModel(exported(net, inputs, dynamo=dynamo))
    ours, theirs = moments(graph, inputs), moments(TorchModel(net), inputs)
    assert len(ours) == len(theirs)
    assert len(ours) == len(stages_of(graph, inputs)) >= (case != "dense")
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_tokens_that_a_mask_hides_do_not_count_in_a_stage_of_a_graph():
    net, inputs = network("text")
    graph, hidden = OnnxModel(exported(net, inputs)), inputs["attention_mask"] == 0
    others = {**inputs, "input_ids": np.where(hidden, 19, inputs["input_ids"])}
    assert (others["input_ids"] != inputs["input_ids"]).any()
    for one, other in zip(moments(graph, inputs), moments(graph, others), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_fixed_number_of_samples_is_no_obstacle():
    net, inputs = network("residual")
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, torch.from_numpy(inputs[:2]), file, dynamo=False)
    fixed = OnnxModel(onnx.load_from_string(file.getvalue()))
    for one, other in zip(moments(fixed, inputs), moments(TorchModel(net), inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_many_samples_are_pooled_a_few_at_a_time():
    net, inputs = network("residual")
    graph, many = OnnxModel(exported(net, inputs)), pictures(150)
    sizes = []
    whole = graph._session.run

    def run(names, feeds):
        found = whole(names, feeds)
        sizes.append(len(found[0]))
        return found

    graph._session.run = run
    found = moments(graph, many)
    assert sizes == [64, 64, 22]
    np.testing.assert_allclose(found[0], moments(TorchModel(net), many)[0], rtol=1e-4, atol=1e-5)


def test_a_layer_and_its_moments_can_be_read_in_one_pass_of_a_graph():
    net, inputs = network("residual")
    graph = OnnxModel(exported(net, inputs))
    name = stages_of(graph, inputs)[0]
    plain = name.removesuffix(".moments")
    found = graph.observe(inputs, [plain, name]).activations
    places = found[plain].reshape(5, 4, -1)
    wanted = np.hstack([places.mean(axis=2), places.std(axis=2)])
    np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def test_a_bundle_with_a_graph_reads_its_stages(tmp_path):
    net, _ = network("residual")
    X, y = pictures(120, 16), np.arange(120) % 3
    ec = EpistemicClassifier(OnnxModel(exported(net, X)), progress=False).fit(X[:80], y[:80])
    ec.tune(X[80:], coverage=0.7)
    assert [name.endswith(".moments") for name in ec.layers_] == [False, True, True, False]
    ec.save(tmp_path / "x.iknow", onnx=True)
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert loaded.layers_ == ec.layers_
    ours, theirs = (each.model_.observe(X, ec.layers_).activations for each in (ec, loaded))
    for layer in ec.layers_:
        np.testing.assert_allclose(ours[layer], theirs[layer], rtol=1e-4, atol=1e-5)


def test_shallow_networks_have_no_stages():
    assert stages_of(OnnxModel(mlp()), np.ones((3, 4), np.float32)) == []


def cut_by_hand(steps, start, scores, names):
    """The tensors without which nothing leads from `start` to the scores, in order."""

    def reaches(without):
        known = {start} - {without}
        for step in steps:
            if known.intersection(step.inputs):
                known.update(set(step.outputs) - {without})
        return scores in known

    made = [name for step in steps for name in step.outputs]
    return [name for name in made if name in names and name != start and not reaches(name)]


@pytest.mark.parametrize("seed", range(40))
def test_what_all_of_a_sample_goes_through(seed):
    rng = np.random.default_rng(seed)
    steps, made = [], ["x"]
    for i in range(18):
        back = rng.integers(1, 4, size=rng.integers(1, 3))
        inputs = [made[max(0, len(made) - each)] for each in back]
        steps.append(Step("Op", inputs, [f"t{i}"], True))
        made.append(f"t{i}")
    names = {name for name in made if rng.random() < 0.8}
    between, found = _segments(steps, "x", made[-1], names)
    assert found == cut_by_hand(steps, "x", made[-1], names)
    taken = [step.outputs[0] for segment in between for step in segment]
    assert len(set(taken)) == len(taken)


def chain(kinds):
    """Steps one behind the other; a letter in upper case has weights."""
    return [Step(k, [f"t{i}"], [f"t{i + 1}"], k.isupper()) for i, k in enumerate(kinds)]


@pytest.mark.parametrize(
    ("kinds", "ends"),
    [
        ("AbAbAb", [2, 4]),
        ("eAbAbAbn", [3, 5]),
        ("AbcAbcAbc", [3, 6]),
        ("bAbAbn", [1, 3]),  # an exporter left out a part of the first block
        ("ababab", []),  # nothing is learned there
        ("Abcd", []),
        ("AAAA", [1, 2, 3]),
    ],
)
def test_blocks_are_patterns_that_repeat(kinds, ends):
    steps = chain(kinds)
    shapes = {f"t{i}": (7, 8) for i in range(len(kinds) + 1)}
    found = stages_by_blocks(steps, shapes, f"t{len(kinds)}")
    assert found == [f"t{end}" for end in ends]


def test_a_change_of_resolution_ends_a_stage():
    sizes = {"a": (8, 8), "b": (8, 8), "c": (4, 4), "d": (2, 2)}
    assert stages_by_resolution(sizes) == ["b", "c"]
    assert stages_by_resolution(sizes | {"gate": (1, 1), "e": (2, 2)}) == ["b", "c", "e"]
    assert some_stages(list("abcdef")) == ["a", "c", "f"]
    assert some_stages([]) == []
