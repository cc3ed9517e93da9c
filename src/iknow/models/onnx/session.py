"""Session: the tensors of an ONNX graph, computed by onnxruntime.

Only outputs can be read, so a layer becomes one, in a copy of the graph. We turn onnxruntime's
optimizations off, which fuse nodes between outputs: the same tensor would differ in its last places
with the other layers that are read. The model of a bundle is read with the same layers always, and
is optimized.

A session may run in many threads at once. It has threads of its own, which a forked child does not
inherit: a child makes a new session, and never ends the old one, as that would wait for them.

A graph may be made for batches of one size: the last batch then repeats its last sample, and the
result is cut. A graph with dynamic quantization rounds by the largest number in the whole batch, so
it gets one sample at a time. Any other graph gets at most `AT_ONCE` samples, as what is inside may
be far larger than its inputs.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

# On import, onnxruntime would write an id of this machine into the user's cache, and report to its
# maker. To allow that, set the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime

from iknow.core.arrays import Ints
from iknow.core.text import name as shown_name
from iknow.core.text import names, shown
from iknow.errors import InputError, LayerError, RefusedError
from iknow.locking import Lock, unforked
from iknow.models.inputs import LARGEST_BATCH
from iknow.models.onnx.file import File, listed

CPU, CUDA, APPLE = "CPUExecutionProvider", "CUDAExecutionProvider", "CoreMLExecutionProvider"
SILENT = 4  # what goes wrong is in the exceptions
# The folder of a model without one: what slipped through the checks of the file reads no file.
NOTHING_IN_IT = os.devnull
AT_ONCE, AT_ONCE_ELSEWHERE = 64, 256  # samples; elsewhere is on a GPU
SCALES_BY_BATCH = {"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}


class Session:
    """The tensors of a model, computed on a device: "cpu", "cuda", "cuda:1", "mps", or None for
    the CPU; only: as in `OnnxModel`. Copies and pickles make a new session.
    """

    def __init__(
        self, file: File, device: str | None = None, only: Collection[str] | None = None
    ) -> None:
        self.file, self.device, self.only = file, device, only
        self._provider = find_provider(device)
        self._lock = Lock()
        inside = [each for each in only or () if each in file.makers]
        self._reads = {*inside, *(output.name for output in file.outputs)}
        self._session: Any = None
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Session, (self.file, self.device, self.only)

    def run_all(
        self,
        tensors: Sequence[str],
        feeds: Mapping[str, Any],
        n: int,
        optional: Collection[str],
        pool: Mapping[str, Callable[[Any], Any]],
    ) -> dict[str, Any]:
        """Tensors by name for n samples; optional ones without a row per sample are left out.

        pool: what to make of some of the tensors, a few samples at a time.
        """
        parts: dict[str, list[Any]] = {name: [] for name in tensors}
        for rows, n_new in self._batches(n):
            found = self.run(tensors, {name: values[rows] for name, values in feeds.items()})
            for name, values in zip(tensors, found, strict=True):
                has_rows = isinstance(values, list) or np.ndim(values) > 0
                got = f"{len(values)} rows" if has_rows else "no axes"
                if got == f"{len(rows)} rows":
                    taken = values[:n_new]
                    parts[name].append(pool[name](taken) if name in pool else taken)
                elif name not in optional:
                    raise LayerError(
                        f"{shown(name)} of {self.file.name} has {got} for {len(rows)} samples, and "
                        "must have one row for each: choose another tensor"
                    )
        return {
            name: [*chain(*each)] if isinstance(each[0], list) else np.concatenate(each)
            for name, each in parts.items()
            if each
        }

    def run(self, tensors: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Return these tensors, as arrays, for inputs by name."""
        with self._lock.held():
            if self._session is None or not self._reads.issuperset(tensors):
                self._reads.update(tensors)  # all that were read before stay outputs
                with unforked():
                    self._session = self._make(sorted(self._reads))
            session = self._session
        try:
            found: list[Any] = session.run(list(tensors), dict(feeds))
        except Exception as error:  # onnxruntime's errors have no common base
            given = ", ".join(f"{k!r} {v.dtype} {v.shape}" for k, v in feeds.items())
            raise RefusedError(
                f"{self.file.name} failed on {given}; it takes {listed(self.file.inputs)}: "
                f"{shown_name(error, 500)}"
            ) from error
        return found

    def _batches(self, n: int) -> Iterator[tuple[Ints, int]]:
        """The rows of each batch, and how many of them are new."""
        inputs = self.file.inputs
        fixed = {each.shape[0] for each in inputs if each.shape} - {None}
        size = next(iter(fixed), None)
        if len(fixed) > 1 or (size is not None and size > LARGEST_BATCH):
            raise InputError(
                f"{self.file.name} must take any number of samples along the first axis of all "
                f"inputs, or one up to {LARGEST_BATCH:,}; it takes {listed(inputs)}: export it "
                "with a batch size that may vary"
            )
        step = size or (AT_ONCE if self.device in (None, "cpu") else AT_ONCE_ELSEWHERE)
        if not SCALES_BY_BATCH.isdisjoint(self.file.ops):
            step = 1
        for start in range(0, n, step):
            end = min(start + step, n)
            yield np.minimum(np.arange(start, start + (size or end - start)), end - 1), end - start

    def _make(self, tensors: Sequence[str]) -> Any:
        options = onnxruntime.SessionOptions()
        if self.only is None:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.use_deterministic_compute = True
        options.log_severity_level = SILENT
        settings = {
            # Its threads would go on spinning on the cores that the search needs next.
            "intra_op.allow_spinning": "0",
            "model_external_initializers_file_folder_path": self.file.folder or NOTHING_IN_IT,
            "load_model_format": "ONNX",  # what we checked; bytes may look like its own format too
        }
        for name, value in settings.items():
            options.add_session_config_entry(f"session.{name}", value)
        providers = [*dict([self._provider, (CPU, {})]).items()]  # the CPU has what a device lacks
        try:  # without its fallback, which prints, and tries again
            content = self.file.with_outputs(tensors)
            made = onnxruntime.InferenceSession(content, options, providers, enable_fallback=0)
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


def find_provider(device: str | None) -> tuple[str, dict[str, str]]:
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
