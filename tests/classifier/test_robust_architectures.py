"""Certificates of many architectures under attack: refused by name, or never broken.

Each network labels its training data, and the nearest row alone counts, so that a certificate is
as large, and as easily broken, as it can be. Queries lie where classes meet. Inside the certified
radius the attacker tries gradient descent through the network, straight lines towards rows of other
classes, directions at random and along the axes, and steps of one unit in the last place of the
network's own dtype.
"""

import copy
import warnings

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from torch import nn
from torch.nn import functional

from iknow import Ball, EpistemicClassifier, Nearest
from iknow.models.torch import TorchModel

N_ROWS, N_QUERIES = 60, 48


class Residual(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.a, self.b, self.last = nn.Linear(n, n), nn.Linear(n, n), nn.Linear(n, 2)

    def forward(self, x):
        out = self.b(functional.relu(self.a(x)))
        out += x
        return self.last(torch.relu(out))


class Branches(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.a, self.b, self.last = nn.Linear(n, 4), nn.Linear(n, 4), nn.Linear(8, 2)

    def forward(self, x):
        both = torch.cat([functional.silu(self.a(x / 2)), self.b(x).tanh()], dim=1)
        return self.last(both.view(x.shape[0], -1))


class Far(nn.Module):
    """All that happens, happens near 1000."""

    def __init__(self, n=3):
        super().__init__()
        self.a, self.last = nn.Linear(n, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.last(functional.relu(self.a(torch.relu(x - 500) - 500)))


def mlp(*between, n=3, width=6):
    return nn.Sequential(nn.Linear(n, width), *between, nn.Linear(width, 2))


def convolutional():
    network = nn.Sequential(
        nn.Conv2d(1, 3, 2, padding=1, padding_mode="reflect"),
        nn.BatchNorm2d(3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, stride=1),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(3, 2),
    )
    network[1].running_var.uniform_(0.2, 2)
    network[1].running_mean.normal_()
    return network


def same(dtype, n=1):
    """The issue's network: all that it does to the input is to cast it."""
    return nn.Sequential(nn.Identity(), nn.Linear(n, 2)).to(dtype)


class Louder(nn.Linear):
    def forward(self, x):
        return 50 * super().forward(x)


class Sharper(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return 50 * super()._conv_forward(x, weight, bias)


CERTIFIED = {
    "relu": (lambda: mlp(nn.ReLU()), (3,), 0.0, 1.0, ["input", "0", "1", "2"]),
    "tanh in float64": (lambda: mlp(nn.Tanh()).double(), (3,), 0.0, 1.0, ["1"]),
    "convolutional": (convolutional, (1, 3, 3), 0.0, 1.0, ["0", "2", "3", "6"]),
    "residual": (Residual, (3,), 0.0, 1.0, ["b", "output"]),
    "branches": (Branches, (3,), 0.0, 1.0, ["output"]),
    "layer norm": (lambda: mlp(nn.LayerNorm(6, eps=0.5), nn.GELU()), (3,), 0.0, 1.0, ["1", "2"]),
    "leaky and softmax": (
        lambda: nn.Sequential(*mlp(nn.LeakyReLU(-2.0)), nn.Softmax(1)),
        (3,),
        0.0,
        1.0,
        ["1", "3"],
    ),
    "bfloat16": (lambda: mlp(nn.ReLU(), width=4).bfloat16(), (3,), 0.0, 50.0, ["input", "0", "1"]),
    "bfloat16 far off": (lambda: same(torch.bfloat16), (1,), 1000.0, 30.0, ["input", "0"]),
    "float16": (lambda: same(torch.float16), (1,), 300.0, 2.0, ["input", "0"]),
    "timestamps": (lambda: same(torch.float32), (1,), 1.7e9, 4000.0, ["input", "0"]),
    "near 1000": (Far, (3,), 1000.0, 30.0, ["input", "a", "output"]),
    "louder": (lambda: nn.Sequential(Louder(3, 4), nn.Linear(4, 2)), (3,), 0.0, 1.0, ["0"]),
    "sharper": (
        lambda: nn.Sequential(Sharper(1, 2, 2), nn.Flatten(), nn.Linear(8, 2)),
        (1, 3, 3),
        0.0,
        1.0,
        ["0"],
    ),
    "recurrent": (lambda: LastStep(), (4, 2), 0.0, 1.0, ["input"]),
}


class LastStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.last = nn.GRU(2, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        return self.last(self.rnn(x)[0][:, -1])


def make_data(network, shape, shift, spread, seed=0):
    """Rows, as the network calls them, and queries between rows of different classes."""
    rng = np.random.default_rng(seed)
    rows = shift + spread * rng.normal(size=(N_ROWS, *shape))
    last = [part for part in network.modules() if isinstance(part, nn.Linear)][-1]
    leads = []
    handle = last.register_forward_hook(lambda _m, _i, out: leads.append(out[:, 0] - out[:, 1]))
    labels = TorchModel(network).observe(rows, ["output"]).belief
    handle.remove()
    with torch.no_grad():  # both classes in equal parts
        last.bias[0] -= leads[0].median()
    labels = TorchModel(network).observe(rows, ["output"]).belief
    ones, zeros = rows[labels == 1], rows[labels == 0]
    i, j = rng.integers(len(ones), size=N_QUERIES), rng.integers(len(zeros), size=N_QUERIES)
    share = rng.uniform(0.02, 0.98, size=(N_QUERIES, *[1] * len(shape)))
    return rows, labels, share * ones[i] + (1 - share) * zeros[j]


def fit(model, rows, labels, layer):
    classifier = EpistemicClassifier(model, [layer], rule=Nearest(1), progress=False)
    return classifier.fit(rows, labels)


def candidates(rows, x, radius, dtype, rng):
    """Points within a radius of x, of shape (m, *x.shape), by no knowledge of the network."""
    directions = rng.normal(size=(60, *x.shape))
    axes = np.eye(x.size).reshape(-1, *x.shape)
    lines = rows - x
    directions = np.concatenate([directions, axes, -axes, lines])
    flat = directions.reshape(len(directions), -1)
    flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-300)
    lengths = radius * np.array([1 - 1e-9, 0.999, 0.9, 0.5, 0.1])
    points = x.ravel() + (lengths[:, None, None] * flat).reshape(-1, x.size)
    if dtype is not None:  # next to where the cast rounds the other way
        unit = torch.finfo(dtype).eps * np.abs(x.ravel())
        steps = rng.integers(-3, 4, size=(60, x.size)) * unit / 2 * rng.uniform(0.9, 1.1, (60, 1))
        points = np.concatenate([points, x.ravel() + steps])
    near = np.linalg.norm(points - x.ravel(), axis=1) < radius
    return points[near].reshape(-1, *x.shape)


def descend(function, rows, labels, x, belief, radii, steps=25):
    """Gradient descent of the lead that the belief's rows have over the others' in the layer."""
    rows, x = torch.from_numpy(rows), torch.from_numpy(x)
    stored, own = (
        function(rows),
        torch.from_numpy(labels)[None] == torch.from_numpy(belief)[:, None],
    )
    length = torch.from_numpy(radii).reshape(-1, *[1] * (x.ndim - 1))
    delta = torch.zeros_like(x)
    for step in range(steps):
        delta.requires_grad_(True)
        apart = (function(x + delta)[:, None] - stored[None]).norm(dim=2)
        lead = apart.masked_fill(own, torch.inf).amin(1) - apart.masked_fill(~own, torch.inf).amin(
            1
        )
        (gradient,) = torch.autograd.grad(lead.sum(), delta)
        size = gradient.flatten(1).norm(dim=1).clamp_min(1e-300).reshape(length.shape)
        delta = delta.detach() - length * (0.5 if step < steps // 2 else 0.1) * gradient / size
        norms = delta.flatten(1).norm(dim=1).clamp_min(1e-300).reshape(length.shape)
        delta = delta * (length * (1 - 1e-9) / norms).clamp_max(1)
        yield (x + delta).numpy()


def exact_function(network, layer):
    """The function from inputs to a layer, in float64."""
    exact = copy.deepcopy(network).double().eval().requires_grad_(False)

    def function(batch):
        if layer == "input":
            return batch.flatten(1)
        found = {}
        part = exact if layer == "output" else exact.get_submodule(layer)
        handle = part.register_forward_hook(lambda _m, _i, out: found.update(out=out.clone()))
        exact(batch.clone())
        handle.remove()
        return found["out"].flatten(1)

    return function


def count_broken(classifier, points, belief):
    """Of points of shape (m, ...), with the belief about where each came from: another is known."""
    after = classifier.assess(points)
    alone = after.justification.sum(axis=1) == 1
    return int((alone & ~after.justification[np.arange(len(belief)), belief]).sum())


def attack(classifier, network, layer, rows, labels, queries, assessment, factor):
    """How many points within `factor` times the robust radius have another class known."""
    radii = factor * assessment.robust_radius
    belief = assessment.belief_codes
    chosen = np.flatnonzero(radii > 0)
    dtype = next(network.parameters()).dtype if isinstance(network, nn.Module) else None
    rng = np.random.default_rng(1)
    parts = [candidates(rows, queries[i], radii[i], dtype, rng) for i in chosen]
    from_where = np.repeat(belief[chosen], [len(part) for part in parts])
    broken = count_broken(classifier, np.concatenate(parts), from_where)
    if isinstance(network, nn.Module):
        function = exact_function(network, layer)
        start = queries[chosen], belief[chosen], radii[chosen]
        steps = list(descend(function, rows, labels, *start))
        again = np.tile(belief[chosen], len(steps))
        broken += count_broken(classifier, np.concatenate(steps), again)
    return broken


@pytest.mark.filterwarnings("ignore:feature 0 of layer")  # of timestamps
@pytest.mark.parametrize("name", CERTIFIED)
def test_no_attack_breaks_the_certificates_of_this_architecture(name):
    make, shape, shift, spread, layers = CERTIFIED[name]
    torch.manual_seed(1)
    network = make().eval()
    rows, labels, queries = make_data(network, shape, shift, spread)
    beyond = 0
    for layer in layers:
        classifier = fit(network, rows, labels, layer)
        assessment = classifier.assess(queries)
        assert (assessment.robust_radius > 0).sum() >= 10, layer
        arguments = classifier, network, layer, rows, labels, queries, assessment
        assert attack(*arguments, 1.0) == 0, layer
        beyond += attack(*arguments, 10.0)
    assert beyond > 0  # with more room it finds what it looks for, or it would prove nothing


@pytest.mark.filterwarnings("ignore:feature 0 of layer")  # of timestamps
@pytest.mark.parametrize(
    ("dtype", "rows", "near", "beyond"),
    [
        (torch.bfloat16, [1000.0, 1004.0], 1001.9, 1002.1),
        (torch.float32, [1.7e9, 1.7e9 + 128], 1.7e9 + 63.9, 1.7e9 + 64.1),
    ],
)
@pytest.mark.parametrize("layer", ["input", "0"])
def test_a_cast_that_rounds_the_other_way_is_not_certified_away(dtype, rows, near, beyond, layer):
    network = same(dtype)
    with torch.no_grad():  # believe the first of two rows, whatever comes
        network[1].weight.zero_()
        network[1].bias.copy_(torch.tensor([1.0, 0.0]))
    classifier = EpistemicClassifier(network, [layer], rule=Ball(1.0), progress=False)
    classifier.fit(np.array(rows)[:, None], [0, 1])
    before, after = (classifier.assess(np.array([[value]])) for value in (near, beyond))
    assert before.justification.tolist() == [[True, False]]
    assert after.justification.tolist() == [[False, True]]
    assert before.robust_radius[0] <= beyond - near


@pytest.mark.parametrize(
    "scaler", [StandardScaler(), MaxAbsScaler(), MaxAbsScaler(clip=True)], ids=repr
)
@pytest.mark.parametrize("layer", ["input", "hidden1", "logits"])
def test_no_attack_breaks_the_certificates_of_a_pipeline(scaler, layer):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N_ROWS, 3)) * [1, 5, 0.2] + [100, 0, 0]
    labels = (rows[:, 1] > 5 * np.sin(3 * (rows[:, 0] - 100))).astype(int)
    model = make_pipeline(scaler, MLPClassifier((6,), max_iter=60, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, labels)
    queries = rows[rng.permutation(N_ROWS)[:N_QUERIES]] + rng.normal(size=(N_QUERIES, 3)) * [
        1,
        3,
        0.1,
    ]
    classifier = fit(FrozenEstimator(model), rows, labels, layer)
    assessment = classifier.assess(queries)
    assert (assessment.robust_radius > 0).sum() >= 10
    arguments = classifier, None, layer, rows, labels, queries, assessment
    assert attack(*arguments, 1.0) == 0
    assert attack(*arguments, 40.0) > 0


class Squares(Far):
    def forward(self, x):
        return self.last(self.a(torch.relu(x - 500) ** 2))


class Counting(Residual):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x if self.calls < 100 else 3 * x)


class ByBatch(Residual):
    def forward(self, x):
        return super().forward(x if x.shape[0] > 1 else 3 * x)


class ByDtype(Residual):
    def forward(self, x):
        return super().forward(x if x.dtype == torch.float64 else 3 * x)


class StillTraining(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(True)


def hooked():
    network = mlp(nn.ReLU())
    network[0].register_forward_hook(lambda _m, _i, out: 50 * out)
    return network


REFUSED = {
    "squares": (Squares, (3,), "output", "torch's pow is not supported"),
    "counting": (Counting, (3,), "output", "a pass through Counting changes it"),
    "by batch": (ByBatch, (3,), "output", "number of samples"),
    "by dtype": (ByDtype, (3,), "output", "differs from its exported graph"),
    "still training": (lambda: mlp(StillTraining(6)), (3,), "1", r"\(StillTraining\)"),
    "no statistics": (
        lambda: mlp(nn.BatchNorm1d(6, track_running_stats=False)),
        (3,),
        "1",
        "when training",
    ),
    "hooked": (hooked, (3,), "0", "has a hook"),
    "float16": (lambda: mlp(nn.Tanh()).half(), (3,), "1", "may overflow before it"),
    "group norm": (lambda: mlp(nn.GroupNorm(2, 6)), (3,), "1", r"group_norm is not supported"),
    "softplus that jumps": (
        lambda: mlp(nn.Softplus(beta=1e-3, threshold=2.0)),
        (3,),
        "1",
        r"softplus is not supported in .*\(Softplus\)",
    ),
    "jumps": (
        lambda: mlp(nn.Hardshrink()),
        (3,),
        "1",
        r"abs is not supported in .*\(Hardshrink\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_certified_says_why_and_its_input_still_can(name):
    make, shape, layer, reason = REFUSED[name]
    torch.manual_seed(1)
    network = make().eval()
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(N_ROWS, *shape)), rng.integers(2, size=N_ROWS)
    classifier = EpistemicClassifier(
        network, [layer], rule=Nearest(1), progress=False, batch_size=N_ROWS
    ).fit(rows, labels)
    with pytest.warns(UserWarning, match=f"no layer has a known.*layer '{layer}'.*{reason}"):
        assert not classifier.assess(rows).robust_radius.any()
    classifier = fit(network, rows, labels, "input")
    assert (classifier.assess(rows).robust_radius > 0).any()
