"""Session: onnxruntime computes the tensors of a graph.

Only outputs can be read, so a layer becomes one, in a copy of the graph. We turn onnxruntime's
optimizations off: they fuse nodes between outputs, and the same tensor would differ in its last
places with the other layers that are read. So magika, or a small convolutional network, takes 1.5
times as long. The graph of a portable bundle always has the same outputs, and is optimized.

A session may run in many threads at once. It has threads of its own, which a forked child does not
inherit: a child makes a new session, and never ends the old one, as that would wait for them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

# As it is imported, onnxruntime would write an id of this machine into the user's cache, and report
# to its maker. Who wants that sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

from iknow.core.text import name as shown_name
from iknow.core.text import names, shown
from iknow.errors import InputError, RefusedError
from iknow.locking import Lock, unforked
from iknow.models.onnx.file import File

CPU, CUDA, APPLE = "CPUExecutionProvider", "CUDAExecutionProvider", "CoreMLExecutionProvider"
SILENT = 4  # what goes wrong is in the exceptions
FOLDER_OF_WEIGHTS = "session.model_external_initializers_file_folder_path"

Provider = tuple[str, dict[str, str]]


class Session:
    """The tensors of a model, computed on a device. Copies and pickles make a new session.

    Args:
        file: The model.
        device: "cpu", "cuda", "cuda:1", "mps", or None for the CPU.
        optimized: Let onnxruntime fuse nodes, in a model of which nothing but its own outputs is
            read.
    """

    def __init__(self, file: File, device: str | None = None, *, optimized: bool = False) -> None:
        self.file, self.device, self.optimized = file, device, optimized
        self._provider = find_provider(device)
        self._lock = Lock()
        self._reads = frozenset(output.name for output in file.graph.outputs)
        self._session: Any = None
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Session, optimized=self.optimized), (self.file, self.device)

    def run(self, tensors: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Return these tensors, as arrays, for inputs by name."""
        session = self._which_reads(frozenset(tensors))
        try:
            found: list[Any] = session.run(list(tensors), dict(feeds))
        except Exception as error:  # onnxruntime's errors have no common base
            given = ", ".join(f"{k!r} {v.dtype} {v.shape}" for k, v in feeds.items())
            raise RefusedError(
                f"{self.file.name} failed on {given}; it takes "
                f"{', '.join(map(str, self.file.graph.inputs[:10]))}: {shown_name(error, 500)}"
            ) from error
        return found

    def _which_reads(self, tensors: frozenset[str]) -> Any:
        """A session with these tensors among its outputs, and with all that were read before."""
        with self._lock.held():
            if self._session is None or not tensors <= self._reads:
                self._reads |= tensors
                with unforked():
                    self._session = self._make(sorted(self._reads))
            return self._session

    def _make(self, tensors: Sequence[str]) -> Any:
        options = onnxruntime.SessionOptions()
        if not self.optimized:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.use_deterministic_compute = True
        options.log_severity_level = SILENT
        # Its threads would go on spinning on the cores that the search needs next.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if self.file.folder is not None:
            options.add_session_config_entry(FOLDER_OF_WEIGHTS, self.file.folder)
        # What a device lacks, the CPU computes.
        providers = dict([self._provider, (CPU, {})]).items()
        try:
            made = onnxruntime.InferenceSession(
                self.file.with_outputs(tensors),
                options,
                providers=list(providers),
                enable_fallback=0,  # which prints, and tries again
            )
        except Exception as error:  # onnxruntime's errors have no common base
            raise InputError(
                f"onnxruntime {onnxruntime.__version__} cannot load {self.file.name}: "
                f"{shown_name(error, 800)}. If it was exported for a newer version, upgrade "
                "onnxruntime, or export it with a lower opset_version"
            ) from error
        if self._provider[0] not in made.get_providers():
            raise InputError(
                f"onnxruntime could not start {self._provider[0]} for device={self.device!r}: "
                "its libraries are missing, or there is no such device"
            )
        return made


def find_provider(device: str | None) -> Provider:
    """Where onnxruntime runs for a device, with its options."""
    kind, _, number = ("cpu" if device is None else str(device)).partition(":")
    known = {"cpu": CPU, "cuda": CUDA, "mps": APPLE}
    if kind not in known or (number and not (kind == "cuda" and number.isdecimal())):
        raise InputError(f"device must be 'cpu', 'cuda', 'cuda:1' or 'mps'; got {shown(device)}")
    available = onnxruntime.get_available_providers()
    if known[kind] not in available:
        raise InputError(
            f"device={device!r} needs {known[kind]}, and this onnxruntime has {names(available)}: "
            "install another build, such as onnxruntime-gpu, or run the model on the CPU by "
            "passing iknow.models.OnnxModel(path) as the model"
        )
    # On the CPU and on a GPU a number must be the same to the last few places.
    return known[kind], {"device_id": number or "0", "use_tf32": "0"} if kind == "cuda" else {}


_all: weakref.WeakSet[Session] = weakref.WeakSet()
_left_behind: list[Any] = []


def _after_fork_in_child() -> None:
    for each in list(_all):
        _left_behind.append(each._session)
        each._session = None


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
