"""A torch module asked by many threads, within itself, and across a fork."""

import copy
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from iknow import Ball, EpistemicClassifier  # noqa: E402
from iknow.errors import InputError  # noqa: E402
from iknow.models.torch import TorchModel  # noqa: E402
from tests.choosing import paper_layers  # noqa: E402
from tests.models.torch.untouched import untouched  # noqa: E402

N_THREADS, N_CALLS = 8, 60
LAYERS = ("1", "4", "2.input", "4.input")


@pytest.fixture(name="X")
def samples():
    return np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)


def make_net(seed=0):
    torch.manual_seed(seed)
    parts = nn.Linear(5, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3)
    return nn.Sequential(*parts).train()


def assert_same(one, other):
    np.testing.assert_array_equal(one.scores, other.scores)
    assert list(one.activations) == list(other.activations)
    for layer, values in one.activations.items():
        np.testing.assert_array_equal(values, other.activations[layer])


def in_threads(work):
    """What `work(i)` returns in each of several threads that begin together."""
    barrier = threading.Barrier(N_THREADS)

    def begin(i):
        barrier.wait(30)
        return work(i)

    with ThreadPoolExecutor(N_THREADS) as pool:
        return list(pool.map(begin, range(N_THREADS)))


def test_many_threads_get_the_answers_of_one_and_the_module_stays_as_it_was(X):
    net = make_net()
    net[1].eval()  # modes of its own are kept too
    adapters = [TorchModel(net) for _ in range(N_THREADS)]  # each thread may have its own
    batches = [X[i : i + 20] for i in range(N_THREADS)]
    expected = [adapters[0].observe(batch, LAYERS) for batch in batches]

    def ask(i):
        for _ in range(N_CALLS):
            assert_same(adapters[i % 3].observe(batches[i], LAYERS), expected[i])
            assert paper_layers(adapters[i], batches[i]) == ("2", "4")

    with untouched(net):
        in_threads(ask)


def test_modules_that_share_a_part_wait_for_each_other(X):
    shared = make_net()[:4]
    heads = [nn.Sequential(shared, nn.Linear(16, 3)).train() for _ in range(N_THREADS)]
    adapters = [TorchModel(head) for head in heads]
    layers = ("0.1", "0", "1")
    expected = [adapter.observe(X, layers) for adapter in adapters]

    def ask(i):
        for _ in range(N_CALLS // 2):
            assert_same(adapters[i].observe(X, layers), expected[i])

    with untouched(*heads):
        in_threads(ask)


def test_a_classifier_shared_by_threads_from_its_first_use_on_answers_as_alone(X):
    y = np.arange(40) % 3
    net = make_net()
    fitted = EpistemicClassifier(net, rule=Ball(0.3), progress=False).fit(X, y)
    alone = pickle.loads(pickle.dumps(fitted)).assess(X, evidence=True)
    shared = copy.deepcopy(fitted)  # nothing of its search is built yet

    def ask(i):
        found = shared.assess(X, evidence=bool(i % 2))
        np.testing.assert_array_equal(found.assertion, alone.assertion)
        for layer, evidence in alone.evidence.items():
            same = found.evidence[layer].class_distances
            np.testing.assert_array_equal(same, evidence.class_distances)
        return bool((shared.predict(X) == alone.belief).all())

    assert all(in_threads(ask))
    assert net.training


class Remembering(nn.Module):
    """A module that keeps what it works on in itself, as many do: no two passes may overlap."""

    def __init__(self):
        super().__init__()
        self.net = make_net()

    def forward(self, x):
        self.seen = x
        hidden = self.net(x)
        return hidden + self.seen.sum(dim=1, keepdim=True)


def test_a_module_that_remembers_is_not_confused_by_other_threads(X):
    adapter = TorchModel(Remembering())
    batches = [X[i : i + 20] for i in range(N_THREADS)]
    expected = [adapter.observe(batch, ("net",)) for batch in batches]

    def ask(i):
        for _ in range(N_CALLS):
            assert_same(adapter.observe(batches[i], ("net",)), expected[i])

    in_threads(ask)


class Waiting(nn.Module):
    """A module that says when it runs, and runs until it is let go."""

    def __init__(self):
        super().__init__()
        self.net = make_net()
        self.runs, self.go_on = threading.Event(), threading.Event()

    def forward(self, x):
        self.runs.set()
        assert self.go_on.wait(30)
        return self.net(x)


def test_who_runs_the_module_without_asking_disturbs_nobody(X):
    module = Waiting()
    expected = TorchModel(module.net).observe(X, ("1",))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(TorchModel(module).observe, X, ("net.1",))
        assert module.runs.wait(30)
        with torch.no_grad():
            module.net(torch.from_numpy(X[:7]) + 1)  # by the user's own code
        module.go_on.set()
        found = asked.result()
    np.testing.assert_array_equal(found.activations["net.1"], expected.activations["1"])


def test_other_modules_do_not_wait(X):
    module, other = Waiting(), TorchModel(make_net())
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(TorchModel(module).observe, X, ())
        assert module.runs.wait(30)
        assert len(other.observe(X, LAYERS)) == 40  # or this would hang
        module.go_on.set()
        asked.result()


def test_an_error_in_one_thread_lets_the_others_go_on(X):
    net = make_net()
    adapter = TorchModel(net)
    expected = adapter.observe(X, LAYERS)

    def ask(i):
        for _ in range(N_CALLS // 2):
            if i % 2:
                with pytest.raises(InputError, match="failed on a batch"):
                    adapter.observe(X[:, :2], LAYERS)
            else:
                assert_same(adapter.observe(X, LAYERS), expected)

    with untouched(net):
        in_threads(ask)


def test_a_module_may_ask_about_a_part_of_itself_on_the_way(X):
    class Inward(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make_net()

        def forward(self, x):
            seen = TorchModel(self.net).observe(x, ("1", "2.input")).activations["1"]
            return self.net(x) + torch.from_numpy(seen).mean()

    module = Inward().train()
    expected = TorchModel(module.net).observe(X, ("1",)).activations["1"]
    found = TorchModel(module).observe(X, ("net.1", "net.2.input"))
    for values in found.activations.values():
        np.testing.assert_array_equal(values, expected)
    assert all(part.training for part in module.modules())


FORKED = """
import os, signal, sys, threading
import numpy as np, torch
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(1)
from test_layers_threads import Waiting
from iknow.models.torch import TorchModel

X = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
module = Waiting()
expected = TorchModel(module.net).observe(X, ("1",)).activations["1"]
thread = threading.Thread(target=TorchModel(module).observe, args=(X, ("net.1", "net.2.input")))
thread.start()
module.runs.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    modes = all(part.training for part in module.modules())
    hooks = sum(len(p._forward_hooks) + len(p._forward_pre_hooks) for p in module.modules())
    module.go_on = threading.Event()
    module.go_on.set()
    found = TorchModel(module).observe(X, ("net.1",)).activations["net.1"]
    os._exit(0 if modes and not hooks and np.array_equal(found, expected) else 1)
status = os.waitpid(child, 0)[1]
module.go_on.set()
thread.join()
print(status, module.net.training)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_forked_during_a_pass_finds_the_module_free_and_as_it_was():
    command = [sys.executable, "-W", "ignore", "-c", FORKED, os.path.dirname(__file__)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert found.stdout.split() == ["0", "True"]


def test_what_runs_a_module_faster_is_looked_through(X):
    net = make_net()
    expected = TorchModel(net).observe(X, LAYERS)
    with untouched(net):
        for wrapped in (nn.DataParallel(net), torch.compile(net, backend="eager")):
            adapter = TorchModel(wrapped)
            assert paper_layers(adapter, X) == ("2", "4")
            assert_same(adapter.observe(X, LAYERS), expected)


def test_a_module_compiled_in_place_is_looked_into_and_stays_compiled(X):
    net = make_net().eval()
    expected = TorchModel(net).observe(X, LAYERS)
    net.compile(backend="eager")
    with torch.no_grad():
        net(torch.from_numpy(X))  # now it is compiled, without hooks
    compiled = net._compiled_call_impl
    assert_same(TorchModel(net).observe(X, LAYERS), expected)
    assert net._compiled_call_impl is compiled


def test_one_by_one_copies_are_found_where_activations_are_read_and_nearly_where_computed():
    """What the docs say about radii near 0."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.standard_normal((60, 64)).astype(np.float32)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
    net.append(nn.Linear(256, 3))
    exact = EpistemicClassifier(net, layers=["input"], rule=Ball(0.0)).fit(X, y)
    nearly = EpistemicClassifier(net, layers=["3"], rule=Ball(0.0)).fit(X, y)
    size = np.linalg.norm(nearly.indexes_["3"].points, axis=1).max()
    for i in range(60):
        assert exact.assess(X[i : i + 1]).supports["input"][0, y[i]]
        distances = nearly.assess(X[i : i + 1]).evidence["3"].class_distances
        assert distances[0, y[i]] <= 1e-5 * size
