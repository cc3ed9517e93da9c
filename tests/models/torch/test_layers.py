"""TorchModel on networks as users have them: which layers it takes, and what it reads there."""

import numpy as np
import pytest
import torch
from torch import nn

from iknow.errors import InputError, LayerError
from iknow.models.inputs import measure
from iknow.models.network import MOMENTS
from iknow.models.torch import TorchModel
from iknow.models.torch.layers import features_last
from iknow.testing import ModelContract
from tests.choosing import level_layers, paper_layers


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(name="images")
def some_images():
    return np.random.default_rng(0).normal(size=(9, 1, 8, 8)).astype(np.float32)


class Block(nn.Module):
    """A residual block whose shortcut has weights, as where a network grows wider."""

    def __init__(self, before, after):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.downsample = nn.Sequential(nn.Conv2d(before, after, 1), nn.BatchNorm2d(after))

    def forward(self, x):
        inside = self.conv2(self.relu(self.bn1(self.conv1(x))))
        inside += self.downsample(x)
        return self.relu(inside)


class Residual(nn.Module):
    def __init__(self, pool=None):
        super().__init__()
        self.layer1, self.layer2 = Block(1, 4), Block(4, 6)
        self.avgpool, self.fc = pool, nn.Linear(6, 3)

    def forward(self, x):
        x = self.layer2(self.layer1(x))
        pool = self.avgpool or (lambda x: nn.functional.adaptive_avg_pool2d(x, 1))
        return self.fc(torch.flatten(pool(x), 1))


class Dense(nn.Module):
    """Each layer sees what all layers before it gave."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1)
        self.norm, self.classifier = nn.BatchNorm2d(7), nn.Linear(7, 3)

    def forward(self, x):
        x = torch.cat([x, torch.relu(self.first(x))], 1)
        x = torch.cat([x, torch.relu(self.second(x))], 1)
        x = nn.functional.adaptive_avg_pool2d(torch.relu(self.norm(x)), 1)
        return self.classifier(x.flatten(1))


class Recurrent(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(8, 5, batch_first=batch_first), nn.Linear(5, 3)

    def forward(self, x):
        if self.lstm.batch_first:
            return self.fc(self.lstm(x[:, 0])[0][:, -1])
        return self.fc(self.lstm(x[:, 0].transpose(0, 1))[0][-1])


class Encoder(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        one = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(one, 2, enable_nested_tensor=False)
        self.batch_first, self.fc = batch_first, nn.Linear(8, 3)

    def forward(self, x):
        x = x[:, 0]
        if not self.batch_first:
            return self.fc(self.encoder(x.transpose(0, 1)).mean(dim=0))
        return self.fc(self.encoder(x).mean(dim=1))


class Heads(nn.Module):
    """Two heads on one body; that of the classes runs first."""

    def __init__(self, probabilities=False):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.ReLU())
        self.classes, self.box = nn.Linear(7, 3), nn.Linear(7, 4)
        self.probabilities = probabilities

    def forward(self, x):
        hidden = self.body(x)
        scores = self.classes(hidden)
        scores = scores.softmax(dim=1) if self.probabilities else scores
        return {"classes": scores, "box": self.box(hidden)}


def pooled():
    return Residual(nn.AdaptiveAvgPool2d(1))


@pytest.mark.parametrize(
    ("net", "options", "layers"),
    [
        (Residual, {}, ("fc.input", "fc")),
        (pooled, {}, ("avgpool", "fc")),
        (Dense, {}, ("classifier.input", "classifier")),
        (Recurrent, {}, ("fc.input", "fc")),
        (Encoder, {}, ("fc.input", "fc")),
        (Heads, {"scores": "classes"}, ("body.2", "classes")),
        (lambda: Heads(probabilities=True), {"scores": "classes"}, ("body.2", "classes")),
        (Heads, {"scores": "box"}, ("body.2", "box")),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 1)), {"scores": "logit"}, ("0", "1")),
    ],
    ids=["residual", "pooled", "dense", "lstm", "encoder", "heads", "softmax", "box", "one logit"],
)
def test_the_default_layers_are_what_enters_the_head_and_the_head(images, net, options, layers):
    net = net()
    seen = {}
    head = dict(net.named_modules())[layers[1]]
    head.register_forward_hook(lambda _m, args, out: seen.update(inside=args[0], out=out))
    model = TorchModel(net, **options)
    assert paper_layers(model, images) == layers
    middle = [each for each in level_layers(model, images) if each.endswith(MOMENTS)]
    assert level_layers(model, images) == ("input", *middle, layers[0])
    found = model.observe(images, layers).activations
    np.testing.assert_array_equal(found[layers[0]], seen["inside"].flatten(1))
    np.testing.assert_array_equal(found[layers[1]], seen["out"])


@pytest.mark.parametrize("net", [Residual, pooled], ids=["functional", "module"])
def test_what_enters_the_head_of_a_residual_network_has_a_bound_like_any_layer(images, net):
    model = TorchModel(net().eval())
    hidden, _ = paper_layers(model, images)
    assert 0 < model.sensitivity(hidden, measure(images)).lipschitz < 1e4


def test_pooling_averages_over_space_whatever_stands_between_the_layer_and_its_convolution(images):
    model = TorchModel(Residual().eval(), pool="mean")
    layers = ("layer1.conv1", "layer1.bn1", "layer2.downsample", "layer2", "fc.input", "input")
    whole = TorchModel(model.module).observe(images, layers).activations
    found = model.observe(images, layers).activations
    for layer, channels in zip(layers[:4], (4, 4, 6, 6), strict=True):
        expected = whole[layer].reshape(len(images), channels, -1).mean(axis=2)
        np.testing.assert_allclose(found[layer], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["layer2"], found["fc.input"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["input"], whole["input"])


def test_pooling_tells_tokens_from_channels_of_a_series():
    net = nn.Sequential()
    net.add_module("conv", nn.Conv1d(2, 6, 3, padding=1))
    net.add_module("relu", nn.ReLU())
    net.add_module("swap", nn.Unflatten(1, (6,)))  # changes nothing
    net.add_module("end", nn.Sequential(nn.Flatten(), nn.Linear(6 * 10, 3)))
    series = np.random.default_rng(0).normal(size=(5, 2, 10))
    whole = TorchModel(net).observe(series, ("conv", "relu")).activations
    found = TorchModel(net, pool="mean").observe(series, ("conv", "relu")).activations
    for layer in whole:
        expected = whole[layer].reshape(5, 6, 10).mean(axis=2)
        np.testing.assert_allclose(found[layer], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(LayerError, match="has channels and no tokens"):
        TorchModel(net, pool="cls").observe(series, ("relu",))


@pytest.mark.parametrize(
    ("part", "shape", "last"),
    [
        (nn.Conv2d(3, 6, 1), (2, 6, 4, 4), False),
        (nn.Conv1d(3, 6, 1), (2, 6, 9), False),
        (nn.Conv1d(3, 6, 1), (2, 9, 6), True),  # moved to the end, as before attention
        (nn.Conv1d(3, 6, 1), (2, 6, 6), False),
        (nn.BatchNorm2d(6), (2, 6, 4, 4), False),
        (nn.GroupNorm(2, 6), (2, 6, 4, 4), False),
        (nn.Linear(3, 6), (2, 9, 6), True),
        (nn.Linear(3, 6), (2, 6, 6), True),
        (nn.Linear(3, 6), (2, 4, 4, 6), True),
        (nn.Linear(3, 6), (2, 6, 4, 4), False),  # moved to the front, as after ConvNeXt's block
        (nn.LayerNorm(6), (2, 9, 6), True),
        (nn.Embedding(9, 6), (2, 9, 6), True),
        (nn.LSTM(3, 3, bidirectional=True), (2, 9, 6), True),
        (None, (2, 9, 6), True),
        (None, (2, 6, 4, 4), False),
    ],
)
def test_the_features_are_the_axis_as_long_as_the_last_module_is_wide(part, shape, last):
    assert features_last(part, shape) == last


@pytest.mark.parametrize("n", [9, 8], ids=["more samples than tokens", "as many"])
@pytest.mark.parametrize("net", [Recurrent, Encoder])
def test_layers_that_take_time_first_are_read_with_samples_first(images, net, n):
    layer = "lstm" if net is Recurrent else "encoder.layers.1.self_attn"
    first, last = net(batch_first=True).eval(), net(batch_first=False).eval()
    last.load_state_dict(first.state_dict())
    for pool in (None, "mean", "last"):
        one, other = (
            TorchModel(each, pool=pool).observe(images[:n], (layer,)) for each in (first, last)
        )
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            one.activations[layer], other.activations[layer], rtol=1e-4, atol=1e-5
        )


class Padded(nn.Module):
    """An encoder of tokens that knows its padding, 0, and nests it away or does not."""

    def __init__(self, nests):
        super().__init__()
        one = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(one, 2, enable_nested_tensor=nests)
        self.embed, self.fc = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask=None):
        seen = (input_ids != 0)[..., None].float()
        inside = self.encoder(self.embed(input_ids), src_key_padding_mask=input_ids == 0)
        return self.fc((inside * seen).sum(dim=1) / seen.sum(dim=1))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("pool", ["mean", "cls", "last"])
def test_an_encoder_that_nests_its_padding_away_is_read_as_one_that_does_not(pool):
    nests, plain = Padded(True), Padded(False)
    plain.load_state_dict(nests.state_dict())
    rng = np.random.default_rng(0)
    mask = (np.arange(7) < rng.integers(2, 7, 9)[:, None]).astype(np.int64)  # no text of 7 tokens
    tokens = rng.integers(1, 20, (9, 7)) * mask
    model, other = TorchModel(nests, pool=pool), TorchModel(plain, pool=pool)
    assert paper_layers(model, tokens) == ("fc.input", "fc")
    layers = ("encoder.layers.0", "encoder.layers.1", "fc.input")
    inputs = {"input_ids": tokens, "attention_mask": mask}
    wanted = other.observe(other.prepare(inputs), layers)
    for given in (inputs, tokens):  # what is nested needs no mask
        seen = model.observe(model.prepare(given), layers)
        np.testing.assert_allclose(seen.scores, wanted.scores, rtol=1e-4, atol=1e-5)
        for layer, values in wanted.activations.items():
            np.testing.assert_allclose(seen.activations[layer], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_first", [True, False])
def test_packed_sequences_are_read_without_their_padding(batch_first):
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.fc = nn.Embedding(20, 4), nn.Linear(5, 3)
            self.lstm = nn.LSTM(4, 5, batch_first=batch_first)

        def forward(self, tokens):
            lengths, inside = (tokens != 0).sum(dim=1), self.embed(tokens)
            packed = nn.utils.rnn.pack_padded_sequence(
                inside if batch_first else inside.transpose(0, 1),
                lengths,
                batch_first=batch_first,
                enforce_sorted=False,
            )
            return self.fc(self.lstm(packed)[1][0][-1])

    net, rng = Packed().eval(), np.random.default_rng(0)
    mask = np.arange(6) < rng.integers(1, 7, 9)[:, None]
    tokens = rng.integers(1, 20, (9, 6)) * mask
    model = TorchModel(net, pool="mean")
    assert paper_layers(model, tokens) == ("fc.input", "fc")
    found = model.observe(tokens, ("lstm", "fc.input")).activations
    alone = nn.LSTM(4, 5, batch_first=True)
    alone.load_state_dict(net.lstm.state_dict())
    with torch.no_grad():
        states = [alone(net.embed(torch.from_numpy(row[row != 0])))[0].numpy() for row in tokens]
    wanted = np.stack([rows.mean(axis=0) for rows in states])
    np.testing.assert_allclose(found["lstm"], wanted, rtol=1e-4, atol=1e-6)
    last = np.stack([rows[-1] for rows in states])
    np.testing.assert_allclose(found["fc.input"], last, rtol=1e-4, atol=1e-6)


def test_of_a_layer_that_returns_several_tensors_the_first_is_read(images):
    net = Recurrent().eval()
    with torch.no_grad():
        expected = net.lstm(torch.from_numpy(images[:, 0]))[0]
    found = TorchModel(net).observe(images, ("lstm", "lstm.input")).activations
    np.testing.assert_allclose(found["lstm"], expected.flatten(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["lstm.input"], images.reshape(9, -1))


def test_a_head_with_one_number_needs_to_be_explained(images):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 1), nn.Flatten(0))
    with pytest.raises(InputError, match=r"got \(9,\) from Sequential.*say which: scores='logit'"):
        TorchModel(net).observe(images, ())
    logits = net(torch.from_numpy(images)).detach().numpy()
    model = TorchModel(net, scores="logit")
    seen = model.observe(images, ("output",))
    np.testing.assert_allclose(seen.scores, np.stack([-logits / 2, logits / 2], 1), rtol=1e-6)
    assert seen.belief.tolist() == (logits > 0).astype(int).tolist()
    with pytest.raises(LayerError, match="chosen by scores="):
        model.sensitivity("output", measure(images))
    assert model.sensitivity("0", measure(images)).lipschitz == 1.0


def test_pooled_layers_and_unknown_names_promise_nothing(images):
    model = TorchModel(Residual().eval(), pool="mean")
    with pytest.raises(LayerError, match="after pooling"):
        model.sensitivity("layer1", measure(images))
    with pytest.raises(LayerError, match=r"has no layer 'layer9\.input'"):
        TorchModel(Residual()).observe(images, ("layer9.input",))
    with pytest.raises(LayerError, match=r"pool= names layers, and .* has no layer 'layer9'"):
        TorchModel(Residual(), pool={"layer9": "mean"}).observe(images, ())


def test_a_submodule_called_input_is_meant_by_its_name(images):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.ModuleDict({"input": nn.Linear(64, 5), "output": nn.Linear(5, 2)})

        def forward(self, x):
            return self.head["output"](self.head["input"](x.flatten(1)).relu())

    net = Named().eval()
    found = TorchModel(net).observe(images, ("head.input", "head.input.input")).activations
    with torch.no_grad():
        expected = net.head["input"](torch.from_numpy(images).flatten(1))
    np.testing.assert_allclose(found["head.input"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["head.input.input"], images.reshape(9, -1))


class TestResidual(ModelContract):
    def make_model(self):
        torch.manual_seed(0)
        return TorchModel(Residual().eval())

    def make_inputs(self):
        return np.random.default_rng(0).normal(size=(12, 1, 8, 8)).astype(np.float32)


class TestPooled(TestResidual):
    def make_model(self):
        torch.manual_seed(0)
        return TorchModel(pooled().eval())
