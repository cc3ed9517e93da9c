"""OnnxModel on what torch's own exporter makes of networks, against these networks."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import adaptive_avg_pool2d

from iknow.models import OnnxModel, TorchModel
from tests.choosing import level_layers

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # the exporter that needs no further package is old


def export(module, inputs, path, **options):
    torch.onnx.export(module.eval(), inputs, path, dynamo=False, opset_version=17, **options)
    return path


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.shortcut, self.fc = nn.Conv2d(3, 8, 1), nn.Linear(8, 4)

    def forward(self, x):
        inside = torch.relu(self.norm(self.conv(x)) + self.shortcut(x))
        return self.fc(adaptive_avg_pool2d(inside, 1).flatten(1))


@pytest.mark.parametrize("axes", [{"dynamic_axes": {"x": {0: "n"}}}, {}], ids=["any", "one"])
def test_a_residual_network_is_read_before_its_last_layer(tmp_path, axes):
    torch.manual_seed(0)
    module, images = Residual(), torch.randn(5, 3, 6, 6)
    path = export(module, images, tmp_path / "net.onnx", input_names=["x"], **axes)
    images = torch.cat([images, torch.randn(2, 3, 6, 6)])
    model = OnnxModel(path)
    layers = level_layers(model, model.prepare(images))
    found = model.observe(model.prepare(images), layers)
    wanted = TorchModel(module).observe(images, ("output",))
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-4, atol=1e-6)
    assert layers[0] == "input"
    # What enters the last layer, from which it makes the scores.
    inside = torch.from_numpy(found.activations[layers[-1]])
    assert inside.shape == (7, 8)
    np.testing.assert_allclose(module.fc(inside).detach(), wanted.scores, rtol=1e-4, atol=1e-6)


def test_padding_does_not_change_what_a_transformer_says(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, num_labels=3, max_position_embeddings=20,
    )  # fmt: skip
    module = transformers.BertForSequenceClassification(config)
    ids, mask = torch.randint(0, 50, (6, 8)), torch.ones(6, 8, dtype=torch.long)
    names, tokens = ["input_ids", "attention_mask"], {0: "n", 1: "t"}
    path = export(
        module, (ids, mask), tmp_path / "bert.onnx", input_names=names, output_names=["logits"],
        dynamic_axes=dict.fromkeys(names, tokens) | {"logits": {0: "n"}},
    )  # fmt: skip
    model = OnnxModel(path, pool="mean")
    given = model.prepare({"input_ids": ids, "attention_mask": mask})
    *_, pooled = level_layers(model, given)
    (tokens_made,) = [name for name in model.tensors if "layer.1/output/LayerNorm/Layer" in name]
    said = []
    for more in (0, 4):
        longer = {
            name: nn.functional.pad(part, (0, more))
            for name, part in zip(names, (ids, mask), strict=True)
        }
        said.append(model.observe(model.prepare(longer), [pooled, tokens_made]))
        logits = module(**longer).logits.detach()
        np.testing.assert_allclose(said[-1].scores, logits, rtol=1e-4, atol=1e-6)
    for layer in (pooled, tokens_made):
        short, long = (each.activations[layer] for each in said)
        assert short.shape == (6, 16)
        np.testing.assert_allclose(short, long, rtol=1e-3, atol=1e-5)
