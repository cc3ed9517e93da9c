"""TorchModel against the same networks written out in numpy, and its promise to change nothing."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from iknow.errors import InputError, LayerError
from iknow.models.torch import TorchModel
from tests.choosing import paper_layers
from tests.models.torch.untouched import untouched

N = 6


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(name="X")
def samples():
    return np.random.default_rng(0).normal(size=(N, 4))


class Net(nn.Module):
    """Any network, from its parts by name and a function from (net, x) to the output."""

    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self._run = forward

    def forward(self, x):
        return self._run(self, x)


def mlp():
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def linear(layer, x):
    """A Linear layer in numpy."""
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def convolve(layer, x):
    """A Conv2d layer with stride 1 and no padding in numpy."""
    kernel = layer.weight.detach().numpy()
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], axis=(2, 3))
    out = np.einsum("ncijkl,ockl->noij", windows, kernel)
    return out + layer.bias.detach().numpy()[:, None, None]


def modes(module):
    return {name: part.training for name, part in module.named_modules()}


def same(observation, other, rows=slice(None)):
    """Whether two observations hold the same bits in the given rows."""
    assert observation.activations.keys() == other.activations.keys()
    pairs = [(observation.scores, other.scores), (observation.belief, other.belief)]
    pairs += [(v, other.activations[name]) for name, v in observation.activations.items()]
    return all(np.array_equal(a[rows], b[rows]) for a, b in pairs)


# What is read


def test_every_layer_of_a_linear_net_is_what_numpy_computes(X):
    net = mlp()
    observation = TorchModel(net).observe(X, ("input", "0", "1", "2", "output"))
    first = linear(net[0], X)
    second = linear(net[2], np.maximum(first, 0))
    expected = {"input": X, "0": first, "1": np.maximum(first, 0), "2": second, "output": second}
    assert list(observation.activations) == list(expected)
    for layer, values in expected.items():
        assert observation.activations[layer].dtype == np.float32
        np.testing.assert_allclose(observation.activations[layer], values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(observation.scores, second, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(observation.belief, second.argmax(axis=1))
    assert not observation.invalid.any()
    for layers in (("2", "input", "0"), ()):
        again = TorchModel(net).observe(X, layers)
        assert tuple(again.activations) == layers  # in the order in which they were asked for
        np.testing.assert_array_equal(again.scores, observation.scores)
    assert TorchModel(net).classes is None


def test_nested_convolutions_are_named_with_dots_and_flattened_per_sample():
    images = np.random.default_rng(1).normal(size=(N, 2, 5, 6))
    net = nn.Sequential()
    net.add_module("features", nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU()))
    net.add_module("head", nn.Sequential(nn.Flatten(), nn.Linear(3 * 3 * 4, 2)))
    layers = ("input", "features.0", "features", "head.1", "output")
    found = TorchModel(net).observe(images, layers).activations
    conv = convolve(net.features[0], images)
    relu = np.maximum(conv, 0)
    logits = linear(net.head[1], relu.reshape(N, -1))
    expected = dict(zip(layers, (images, conv, relu, logits, logits), strict=True))
    for layer, values in expected.items():
        assert found[layer].shape == (N, values[0].size)
        np.testing.assert_allclose(found[layer], values.reshape(N, -1), rtol=1e-4, atol=1e-5)


def test_output_is_what_the_module_returns_and_not_its_last_layer(X):
    net = Net(lambda net, x: net.fc(x).softmax(dim=1), fc=nn.Linear(4, 3))
    observation = TorchModel(net).observe(X, ("fc", "output"))
    np.testing.assert_allclose(observation.activations["output"].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(observation.activations["output"], observation.scores)
    np.testing.assert_allclose(observation.activations["fc"], linear(net.fc, X), rtol=1e-5)


def test_submodules_called_input_and_output_are_meant_by_these_names(X):
    net = Net(
        lambda net, x: net.output(net.input(x)).softmax(dim=1),
        input=nn.Linear(4, 5),
        output=nn.Linear(5, 3),
    )
    model = TorchModel(net)
    assert paper_layers(model, X) == ("input", "output")
    found = model.observe(X, ("input", "output")).activations
    np.testing.assert_allclose(found["input"], linear(net.input, X), rtol=1e-5, atol=1e-6)
    logits = linear(net.output, linear(net.input, X))
    np.testing.assert_allclose(found["output"], logits, rtol=1e-5, atol=1e-6)


def test_an_in_place_relu_does_not_change_the_layer_read_before_it(X):
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))
    found = TorchModel(net).observe(X, ("0", "1")).activations
    before = linear(net[0], X)
    assert (before < 0).any()
    np.testing.assert_allclose(found["0"], before, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["1"], np.maximum(before, 0), rtol=1e-5, atol=1e-6)
    first = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3))
    found = TorchModel(first).observe(X, ("input",)).activations
    np.testing.assert_array_equal(found["input"], X.astype(np.float32))


@pytest.mark.parametrize("as_given", [np.asarray, torch.as_tensor], ids=["array", "tensor"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_a_module_that_works_in_place_does_not_change_the_users_data(as_given, dtype):
    net = Net(lambda net, x: net.fc(x.clamp_(min=2).float()), fc=nn.Linear(4, 3))
    data = np.arange(8, dtype=dtype).reshape(2, 4)
    given = as_given(data.copy())
    model = TorchModel(net)
    paper_layers(model, model.prepare(given))
    model.observe(model.prepare(given), ("input",))
    np.testing.assert_array_equal(np.asarray(given), data)


# Inputs and precision


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float32, 1e-6),
        (torch.float64, 1e-7),
        (torch.float16, 2e-2),
        (torch.bfloat16, 2e-1),
    ],
)
def test_float64_arrays_are_run_in_the_precision_of_the_module(X, dtype, tolerance):
    reference = mlp()
    net = copy.deepcopy(reference).to(dtype)
    observation = TorchModel(net).observe(X, ("0", "output"))
    with torch.no_grad():
        own = net(torch.as_tensor(X, dtype=dtype)).double().numpy()
    np.testing.assert_array_equal(observation.scores, own)
    np.testing.assert_allclose(
        observation.activations["0"], linear(reference[0], X), atol=tolerance, rtol=tolerance
    )
    assert {p.dtype for p in net.parameters()} == {dtype}


def test_scores_of_a_float64_module_keep_all_their_digits(X):
    net = mlp().double()
    expected = linear(net[2], np.maximum(linear(net[0], X), 0))
    np.testing.assert_allclose(TorchModel(net).observe(X, ()).scores, expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_whole_numbers_stay_whole_for_an_embedding(dtype):
    net = Net(
        lambda net, x: net.fc(net.embed(x).flatten(1)),
        embed=nn.Embedding(9, 2),
        fc=nn.Linear(6, 3),
    )
    tokens = np.array([[0, 8, 3], [1, 1, 2]], dtype=dtype)
    found = TorchModel(net).observe(tokens, ("input", "embed")).activations
    table = net.embed.weight.detach().numpy()
    np.testing.assert_array_equal(found["embed"], table[tokens].reshape(2, 6))
    np.testing.assert_array_equal(found["input"], tokens)


@pytest.mark.parametrize(
    "make",
    [
        np.ndarray.tolist,
        torch.as_tensor,
        lambda X: torch.tensor(X, requires_grad=True),
        lambda X: X[::-1].copy()[::-1],
        lambda X: X.astype(X.dtype.newbyteorder()),
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: np.frombuffer(X.tobytes()).reshape(X.shape),
    ],
    ids=["list", "tensor", "gradients", "reversed", "byte-swapped", "strided", "read-only"],
)
def test_inputs_of_any_form_give_the_same(X, make):
    model, given, layers = TorchModel(mlp()), make(X), ("input", "1", "output")
    assert same(model.observe(model.prepare(given), layers), model.observe(X, layers))
    assert getattr(given, "grad", None) is None


def test_a_module_without_weights_runs_in_the_default_precision(X):
    bare, counts = nn.Softmax(dim=1), nn.Softmax(dim=1)
    counts.register_buffer("steps", torch.tensor(3))
    for net in (bare, counts):
        observation = TorchModel(net).observe(X, ("input",))
        np.testing.assert_array_equal(observation.activations["input"], X.astype(np.float32))


# Nothing is left behind


def test_dropout_does_nothing_even_in_training_mode(X):
    net = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.9), nn.Linear(5, 3)).train()
    found = TorchModel(net).observe(X, ("0", "1")).activations
    np.testing.assert_array_equal(found["0"], found["1"])


def test_batch_norm_uses_its_running_statistics_and_leaves_them_alone(X):
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)).train()
    net[0].running_mean += 1
    net[0].running_var *= 4
    model = TorchModel(net)
    with untouched(net):
        paper_layers(model, X)
        found = model.observe(X, ("0",)).activations
    np.testing.assert_allclose(found["0"], (X - 1) / np.sqrt(4 + 1e-5), rtol=1e-5, atol=1e-6)


def mixed_modes():
    net = nn.Sequential(
        nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)), nn.Dropout(), nn.Linear(5, 3)
    ).train()
    net[0][1].eval()
    net[1].eval()
    assert set(modes(net).values()) == {True, False}
    return net


def test_a_module_runs_in_eval_mode_without_gradients_and_is_left_as_it_was(X):
    net, seen = mixed_modes(), []
    net[2].bias.requires_grad_(False)
    net.register_forward_hook(
        lambda _module, _inputs, output: seen.append((modes(net).values(), output.requires_grad))
    )
    model = TorchModel(net)
    with untouched(net):
        paper_layers(model, X)
        model.observe(X, ("0", "0.0", "0.0.input", "2", "output"))
    assert [(set(inside), graph) for inside, graph in seen] == [({False}, False)] * 2
    assert torch.is_grad_enabled()


def test_a_part_in_two_places_gets_its_own_mode_back(X):
    shared = nn.Linear(4, 4).eval()
    net = nn.Sequential(nn.Sequential(shared), nn.Sequential(shared), nn.Linear(4, 3))
    net[1].training = net[2].training = True
    with untouched(net):
        TorchModel(net).observe(X, ("2",))


def break_forward(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "raised"),
    [(RuntimeError("broken"), InputError), (KeyError("broken"), KeyError)],
    ids=["RuntimeError", "KeyError"],
)
def test_modes_and_hooks_are_restored_after_an_error_in_the_forward_pass(X, error, raised):
    net = mixed_modes()
    model = TorchModel(net)
    handle = net[2].register_forward_pre_hook(break_forward(error))
    with untouched(net):
        with pytest.raises(raised, match="broken"):
            model.observe(X, ("0", "0.1", "1.input", "2", "2.input"))
        with pytest.raises(raised, match="broken"):
            paper_layers(model, X)
    handle.remove()
    model.observe(X, ("0",))


@pytest.mark.parametrize("layer", ["spectrum", "magnitude.input"])
def test_modes_and_hooks_are_restored_after_an_unreadable_layer(X, layer):
    net = Net(
        lambda net, x: net.fc(net.magnitude(net.spectrum(x))),
        spectrum=Net(lambda net, x: torch.fft.fft(x)),
        magnitude=Net(lambda net, x: x.abs()),
        fc=nn.Linear(4, 2),
    )
    net.fc.eval()
    says = r"must be a dense tensor of real numbers; got .*complex"
    with untouched(net), pytest.raises(LayerError, match=says):
        TorchModel(net).observe(X, (layer, "fc"))


def test_the_users_own_hooks_survive_and_take_effect(X):
    net = mlp()
    handle = net[0].register_forward_hook(lambda _module, _inputs, output: output + 1)
    found = TorchModel(net).observe(X, ("0",)).activations
    np.testing.assert_allclose(found["0"], linear(net[0], X) + 1, rtol=1e-5, atol=1e-6)
    assert list(net[0]._forward_hooks) == [handle.id]


def test_what_is_changed_in_a_module_after_it_was_read_counts(X):
    net, layers = mlp(), ("0", "2.input")
    model = TorchModel(net)

    def assert_read_anew():
        assert same(model.observe(X, layers), TorchModel(net).observe(X, layers))

    assert_read_anew()
    net[0] = nn.Linear(4, 5)
    assert_read_anew()
    net[1] = nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5))
    net.train()
    assert_read_anew()
    assert modes(net) == dict.fromkeys(modes(net), True)
    net[0].register_forward_hook(lambda _module, _inputs, output: output + 1)
    assert_read_anew()
    net.double()
    assert_read_anew()
    net.compile(backend="eager")
    assert_read_anew()
    net.insert(0, nn.Linear(4, 4).double())  # the others have other names now
    layers = ("0", "1", "3.input")
    assert_read_anew()
    net.head = net._modules.pop("3")
    with pytest.raises(LayerError, match="has no layer"):
        model.observe(X, layers)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_module_on_a_cuda_device_is_run_there(X):
    net = mlp()
    on_cpu = TorchModel(net).observe(X, ("input", "1", "output"))
    moved = copy.deepcopy(net).cuda()
    devices = []
    moved.register_forward_hook(lambda _module, _inputs, output: devices.append(output.device.type))
    model = TorchModel(moved)
    X[2, 0] = np.nan
    on_cuda = model.observe(X, ("input", "1", "output"))
    of_tensor = model.observe(torch.as_tensor(X).cuda(), ("input", "1", "output"))
    assert devices == ["cuda", "cuda"]
    assert {p.device.type for p in moved.parameters()} == {"cuda"}
    assert on_cuda.invalid.tolist() == [row == 2 for row in range(N)]
    assert same(on_cuda, of_tensor)
    rest = np.arange(N) != 2
    np.testing.assert_allclose(on_cuda.scores[rest], on_cpu.scores[rest], rtol=1e-3, atol=1e-3)


# What is refused


def test_an_unknown_layer_is_refused_with_those_that_exist(X):
    with pytest.raises(LayerError) as caught:
        TorchModel(mlp()).observe(X, ("0", "relu7"))
    assert str(caught.value) == (
        "Sequential has no layer 'relu7': it has 'input', '0', '1', '2', 'output'"
    )


def test_the_module_as_a_whole_is_called_output_and_not_the_empty_name(X):
    with pytest.raises(LayerError, match="has no layer ''"):
        TorchModel(mlp()).observe(X, ("",))


def parts(**widths):
    return {name: nn.Linear(4, width) for name, width in widths.items()}


@pytest.mark.parametrize(
    ("net", "layers", "says"),
    [
        (Net(lambda net, x: net.out(net.fc(net.fc(x))), **parts(fc=4, out=2)), ("fc",),
         "'fc' ran more than once.*choose another layer"),
        (Net(lambda net, x: net.fc(x), **parts(fc=2, spare=2)), ("fc", "spare"),
         "'spare' of Net did not run"),
        (Net(lambda net, x: net.fc(x), **parts(fc=2, output=2)), ("output",),
         "'output' of Net did not run"),
    ],
    ids=["twice", "never", "called output"],
)  # fmt: skip
def test_a_layer_that_does_not_run_once_is_refused(X, net, layers, says):
    with pytest.raises(LayerError, match=says):
        TorchModel(net).observe(X, layers)
    TorchModel(net).observe(X, ())


@pytest.mark.parametrize(("width", "shape"), [(1, (6, 4)), (5, (2, 3, 4))])
def test_scores_that_are_no_table_of_classes_are_refused(width, shape):
    got = rf"got \({', '.join(map(str, (*shape[:-1], width)))}\)"
    with pytest.raises(InputError, match=rf"shape \(n, n_classes\).*two classes; {got}"):
        TorchModel(nn.Linear(4, width)).observe(np.zeros(shape), ())


@pytest.mark.parametrize(
    ("net", "batch"),
    [
        (nn.Linear(4, 2), np.zeros((3, 7))),
        (nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), np.zeros((3, 4, 5, 6))),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)), np.zeros((3, 2, 4, 4))),
        (nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(4, 2)), np.full((3, 2), 99)),
        (nn.Linear(4, 2), np.zeros((3, 4), dtype=np.int64)),
    ],
    ids=["linear", "batch norm", "convolution", "embedding", "whole numbers"],
)
def test_a_batch_the_module_cannot_take_is_refused_by_shape_and_dtype(net, batch):
    dtype = "int64" if batch.dtype == np.int64 else "float32"
    with pytest.raises(InputError) as caught:
        TorchModel(net).observe(batch, ())
    assert f"failed on a batch of shape {batch.shape} and dtype torch.{dtype}" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_running_out_of_memory_is_not_the_inputs_fault(X):
    net = mlp()
    net.register_forward_pre_hook(break_forward(torch.OutOfMemoryError("out of memory")))
    with pytest.raises(torch.OutOfMemoryError):
        TorchModel(net).observe(X, ())


# What is not finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_row_that_is_not_finite_is_invalid_and_changes_no_bit_of_the_others(X, bad, dtype):
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).to(dtype)
    model = TorchModel(net)
    layers = ("input", "1", "output")
    clean, dirty = X.copy(), X.copy()
    clean[2] = 0
    dirty[2, 1] = bad
    reference = model.observe(clean, layers)
    observation = model.observe(dirty, layers)
    rest = np.arange(N) != 2
    assert observation.invalid.tolist() == [row == 2 for row in range(N)]
    assert not reference.invalid.any()
    assert same(observation, reference, rest)
    with torch.no_grad():
        said = net.eval()(torch.from_numpy(dirty).to(dtype))[2].double().numpy()
    np.testing.assert_array_equal(observation.scores[2], said)  # as it is, most of it NaN
    assert observation.belief[2] == (-1 if np.isnan(said).any() else said.argmax())
    assert not any(values[2].any() for values in observation.activations.values())
    assert np.array_equal(dirty[2, 1], bad, equal_nan=True)


def test_a_bad_pixel_makes_its_image_invalid_and_a_bad_number_its_sample():
    images = np.zeros((3, 1, 2, 2))
    images[1, 0, 1, 0] = np.nan
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    assert TorchModel(net).observe(images, ()).invalid.tolist() == [False, True, False]
    net = Net(lambda net, x: net.fc(x[:, None]), fc=nn.Linear(1, 2))
    observation = TorchModel(net).observe(np.array([1.0, np.nan, 2.0]), ("input",))
    assert observation.invalid.tolist() == [False, True, False]


def test_a_value_beyond_the_precision_of_the_module_is_invalid(X):
    X[3, 0] = 1e39
    found = TorchModel(mlp()).observe(X, ("input",))
    assert found.invalid.tolist() == [row == 3 for row in range(N)]
    assert not TorchModel(mlp().double()).observe(X, ()).invalid.any()


@pytest.mark.parametrize("layers", [(), ("0",)], ids=["seen in scores", "seen in a layer"])
def test_an_overflow_inside_the_network_marks_its_row(X, layers):
    net = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid() if layers else nn.Identity())
    with torch.no_grad():
        net[0].weight.fill_(1e30)
    X[4] = 1e20
    observation = TorchModel(net).observe(X, layers)
    assert observation.invalid.tolist() == [row == 4 for row in range(N)]
    with torch.no_grad():
        said = net(torch.from_numpy(X).float()).numpy()
    np.testing.assert_array_equal(observation.scores[4], said[4])
    assert observation.belief[4] == (0 if layers else -1)


# Layers by default


def registered_backwards():
    return Net(
        lambda net, x: net.out(net.act(net.hidden(x))),
        out=nn.Linear(5, 3),
        act=nn.ReLU(),
        hidden=nn.Linear(4, 5),
    )


def shared_relu():
    return Net(
        lambda net, x: net.c(net.relu(net.b(net.relu(net.a(x))))),
        a=nn.Linear(4, 5),
        b=nn.Linear(5, 5),
        c=nn.Linear(5, 3),
        relu=nn.ReLU(),
    )


def functional_relu():
    return Net(lambda net, x: net.b(torch.relu(net.a(x))), a=nn.Linear(4, 5), b=nn.Linear(5, 3))


def lstm_then_linear():
    return Net(
        lambda net, x: net.fc(net.lstm(net.embed(x)[:, None])[0][:, -1]),
        embed=nn.Linear(4, 5),
        lstm=nn.LSTM(5, 6, batch_first=True),
        fc=nn.Linear(6, 3),
    )


def lstm_at_the_end():
    return Net(
        lambda net, x: net.lstm(net.embed(x)[:, None])[0][:, -1],
        embed=nn.Linear(4, 5),
        lstm=nn.LSTM(5, 3, batch_first=True),
    )


@pytest.mark.parametrize(
    ("net", "layers"),
    [
        (mlp, ("1", "2")),
        (
            lambda: nn.Sequential(
                nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)
            ),
            ("3", "4"),
        ),
        (
            lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 3)),
            ("1", "3"),
        ),
        (lambda: nn.Sequential(*mlp(), nn.Softmax(dim=1)), ("1", "2")),
        (registered_backwards, ("act", "out")),
        (functional_relu, ("b.input", "b")),
        (lambda: nn.Sequential(nn.ReLU(), nn.Softmax(dim=1)), ("input", "output")),
        (lambda: nn.Softmax(dim=1), ("input", "output")),
        (lambda: nn.Linear(4, 3), ("input", "output")),
        (lambda: nn.Sequential(nn.Linear(4, 3)), ("input", "0")),
        (lambda: nn.Sequential(nn.Dropout(), nn.Linear(4, 3)), ("input", "1")),
        (
            lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 5), nn.Tanh()), mlp_head()),
            ("0.1", "1.0"),
        ),
        (shared_relu, ("c.input", "c")),
        (lstm_then_linear, ("fc.input", "fc")),
        (lstm_at_the_end, ("embed", "output")),
    ],
    ids=[
        "relu and linear",
        "the last of several relus",
        "dropout between",
        "softmax at the end",
        "registered backwards",
        "functional relu",
        "no parameters",
        "a bare softmax",
        "a bare linear",
        "one linear",
        "dropout and one linear",
        "nested",
        "one relu used twice",
        "lstm in between",
        "lstm at the end",
    ],
)
def test_by_default_the_last_hidden_layer_and_the_logits_are_read(X, net, layers):
    model = TorchModel(net())
    assert paper_layers(model, X) == layers
    assert tuple(model.observe(X, layers).activations) == layers


def mlp_head():
    return nn.Sequential(nn.Linear(5, 3))


@pytest.mark.parametrize("seed", range(40))
def test_in_a_sequence_the_last_hidden_layer_is_the_last_part_that_changes_anything(seed, X):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    others = (nn.ReLU, nn.Tanh, nn.Dropout, nn.Identity, nn.Flatten, lambda: nn.BatchNorm1d(4))
    parts = [
        nn.Linear(4, 4) if rng.random() < 0.4 else others[rng.integers(len(others))]()
        for _ in range(rng.integers(1, 7))
    ]
    net = nn.Sequential(*parts, nn.Linear(4, 4), *([nn.Softmax(dim=1)] * rng.integers(2)))
    idle = (nn.Dropout, nn.Identity)
    changing = [str(i) for i, part in enumerate(parts) if not isinstance(part, idle)]
    expected = (["input", *changing][-1], str(len(parts)))
    assert paper_layers(TorchModel(net), X) == expected


def test_a_module_answers_in_its_own_precision_whatever_the_caller_is_doing():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    X = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    usual = TorchModel(module).observe(X, ["1", "2"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = module(torch.from_numpy(X)).float().detach().numpy()
        inside = TorchModel(module).observe(X, ["1", "2"])
    assert not np.array_equal(lowered, usual.scores)  # it would have mattered
    np.testing.assert_array_equal(inside.scores, usual.scores)
    np.testing.assert_array_equal(inside.activations["1"], usual.activations["1"])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, 2, device="meta"),
        torch.ones(3, 2, dtype=torch.complex64),
        torch.eye(2).to_sparse(),
        torch.ones(()),
    ],
    ids=["meta", "complex", "sparse", "one number"],
)
def test_tensors_that_hold_no_plain_numbers_are_refused(tensor):
    with pytest.raises(InputError, match="a dense tensor of real numbers"):
        TorchModel(torch.nn.Linear(2, 2)).prepare(tensor)
