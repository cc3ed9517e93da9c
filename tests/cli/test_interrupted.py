"""Ctrl-C: every command ends with 130 and without a traceback, and leaves no part of a file."""

import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")

MAIN = "from iknow.cli.app import app; app()"
MODEL = """
import os
import signal
import time

import joblib
import numpy as np

model = joblib.load("model.joblib")
predict = model.predict


def interrupted(X):
    if (np.asarray(X)[:, :4] == np.load("last.npy")).all(axis=1).any():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)  # the main thread hears of it while this one works
    return predict(X)


model.predict = interrupted
"""
NAMES = ["--label", "kind", "--id", "id"]
ASSESS = ["assess", "b.iknow", "test.parquet", *NAMES, "--no-check-model"]


@pytest.mark.parametrize(
    "words",
    [
        [*ASSESS, "-o", "out.parquet"],
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (
                [*ASSESS, "-o", "out.arrow"],
                [*ASSESS, "-o", "out.csv"],
                [*ASSESS, "-o", "out.npz"],
                [*ASSESS, "-o", "-", "--output-format", "parquet"],
                ["report", *ASSESS[1:], "-o", "out.html"],
                ["fit", "test.parquet", *NAMES, "--hold-out", "0.3", "-o", "out.iknow"],
                ["add", *ASSESS[1:3], "--label", "kind", "--drop", "id", "--no-check-model"],
                ["compare", "model", "train.csv", "val.csv", "test.csv", *NAMES],
            )
        ),
    ],
    ids=lambda words: f"{words[0]}-{words[-1]}",
)
def test_an_interrupted_command_says_nothing_and_leaves_nothing(irises, words):
    # Row groups are parts of 11: the first ones are written when the last is answered.
    column = [pq.read_table("test.parquet")[i].to_pylist()[-1] for i in range(4)]
    np.save("last.npy", np.array(column))
    (irises / "odd_model.py").write_text(MODEL)
    model = "odd_model:model"
    words = [model if word == "model" else word for word in words]
    words += [] if model in words else ["--model", model]
    before = {path.name: path.read_bytes() for path in irises.iterdir()}
    ended = subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=120,
    )
    assert ended.returncode == 130, ended.stderr.decode()
    assert b"Traceback" not in ended.stderr
    assert b"Exception" not in ended.stderr
    assert {path.name: path.read_bytes() for path in irises.iterdir()} == before
