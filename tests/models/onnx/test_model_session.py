"""Sessions: devices, threads and forks; and onnxruntime tells nobody that it is used."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import onnxruntime
import pytest

from iknow.errors import InputError
from iknow.models import OnnxModel
from tests.models.onnx.graphs import mlp, observe, parsed

X = np.random.default_rng(1).normal(size=(12, 4))
HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def test_the_cpu_is_the_default():
    wanted = observe(mlp(), X, device=None)
    np.testing.assert_array_equal(observe(mlp(), X, device="cpu").scores, wanted.scores)
    assert not OnnxModel(mlp(), device="cpu").is_elsewhere


@pytest.mark.skipif(HAS_CUDA, reason="there is one")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_device_that_is_not_there_is_told_with_those_that_are(device):
    with pytest.raises(InputError, match=rf"device='{device}'.*'CPUExecutionProvider'.*OnnxModel"):
        OnnxModel(mlp(), device=device)


@pytest.mark.skipif(not HAS_CUDA, reason="needs onnxruntime-gpu")
def test_a_gpu_answers_as_the_cpu():
    there = OnnxModel(mlp(), device="cuda")
    assert there.is_elsewhere
    wanted = observe(mlp(), X, ["hidden"])
    found = there.observe(X, ["hidden"])
    np.testing.assert_allclose(found.activations["hidden"], wanted.activations["hidden"], 1e-5)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:1", "mps:0", "", 0])
def test_devices_of_no_kind_are_refused(device):
    with pytest.raises(InputError, match="device must be 'cpu', 'cuda', 'cuda:1' or 'mps'"):
        OnnxModel(mlp(), device=device)


def test_threads_share_a_model_and_read_different_layers():
    model, layers = OnnxModel(mlp()), ("a", "b", "hidden", "scores")
    wanted = OnnxModel(mlp()).observe(X, layers)
    wrong, start = [], threading.Barrier(8)

    def work(number):
        start.wait()
        for turn in range(20):
            layer = layers[(number + turn) % 4]
            found = model.observe(X, [layer])
            if not np.array_equal(found.activations[layer], wanted.activations[layer]):
                wrong.append(layer)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _answer(model, batch, pipe):
    pipe.send(model.observe(batch, ()).scores)
    model.__dict__.clear()  # nor does the end of a session wait for its threads
    gc.collect()
    pipe.send("done")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="cannot fork")
def test_a_forked_child_answers_too(monkeypatch):
    def with_threads(make=onnxruntime.SessionOptions):
        options = make()
        options.intra_op_num_threads = 4  # also on a machine with one core
        return options

    monkeypatch.setattr(onnxruntime, "SessionOptions", with_threads)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(512, 512)).astype(np.float32)
    model = OnnxModel(
        parsed("g (float[n, 512] x) => (float[n, 512] y) { h = MatMul(x, W)  y = MatMul(h, W) }",
               W=weights)
    )  # fmt: skip
    batch = rng.normal(size=(256, 512)).astype(np.float32)
    wanted = model.observe(batch, ()).scores
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_answer, args=(model, batch, there))
    child.start()
    try:
        assert here.poll(30), "the child waits for threads that it does not have"
        np.testing.assert_array_equal(here.recv(), wanted)
        assert here.poll(30), "the child waits for the end of its parent's threads"
    finally:
        child.kill()
        child.join()
    np.testing.assert_array_equal(model.observe(batch, ()).scores, wanted)


@pytest.mark.slow
@pytest.mark.parametrize(("given", "writes"), [({}, False), ({"ORT_DISABLE_TELEMETRY": "0"}, None)])
def test_nothing_is_written_as_onnxruntime_is_imported(tmp_path, given, writes):
    code = "import os, iknow.models.onnx; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment | home | given, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert said.stdout.strip() == given.get("ORT_DISABLE_TELEMETRY", "1")  # the user's word counts
    if writes is False:
        assert not list(tmp_path.rglob("*"))
