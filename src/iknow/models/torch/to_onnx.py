"""To ONNX: a torch module and its layers as one graph, by torch's own exporters.

We try torch.export first: it proves that the graph holds for any number of samples, and refuses a
module whose way depends on its data. What it cannot read is traced; a trace that would fix
something which may vary, such as a branch, is refused.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.text import name as shown_name
from iknow.errors import ExportError, IknowError
from iknow.models.export import BELIEF, LAYER, SCORES
from iknow.models.inputs import Fields
from iknow.models.torch import inputs as given
from iknow.models.torch.model import TorchModel
from iknow.models.torch.traced import Traced, TracerWarning

SINGLE = "X"
ROWS, MORE_ROWS = 2, 3  # to trace with; 0 and 1 are often special
LARGEST = (1 << 31) - 1  # bytes of a protobuf message
LOGS = ("torch", "torch.onnx", "torch.export", "torch._export", "torch.fx", "onnxscript")


def to_onnx(model: TorchModel, layers: Sequence[str], inputs: Any) -> bytes:
    """The ONNX file of a torch module; see `iknow.models.export`."""
    if isinstance(model.module, torch.jit.ScriptModule):
        raise ExportError("TorchScript cannot become ONNX: give the module that it was made of")
    tensors = _few_samples(model, inputs)
    try:
        with _quiet():
            traced = Traced(model, layers, tensors)
    except IknowError:
        raise
    except Exception as error:  # of a module that cannot be copied
        raise ExportError(f"{_name(model)} cannot be copied: {shown_name(error, 500)}") from error
    names = name_inputs(tuple(tensors.arrays))
    outputs = [SCORES, *(f"{LAYER}{layer}" for layer in layers)]
    examples = tuple(_as_numpy_has_it(each.cpu()) for each in tensors.arrays.values())
    content = _first_that_works(traced, examples, names, outputs, _name(model))
    if len(content) > LARGEST:
        raise ExportError(f"{_name(model)} takes more than 2 GB as ONNX, which no such file can")
    return content


def name_inputs(names: Sequence[str]) -> list[str]:
    """Names in the graph of inputs by name or by position; X, or X0, X1, ... for positions."""
    if len(names) == 1 and names[0].isdigit():
        return [SINGLE]
    found = [f"{SINGLE}{name}" if name.isdigit() else name for name in names]
    for name in found:
        if name in (SCORES, BELIEF) or name.startswith(LAYER):
            raise ExportError(f"the graph has an output {name!r}: give the input another name")
    return found


Way = Callable[[nn.Module, tuple[Tensor, ...], list[str], list[str]], bytes]


def export_program(
    module: nn.Module, examples: tuple[Tensor, ...], names: list[str], outputs: list[str]
) -> bytes:
    """By torch.export: samples, and the tokens in whole numbers, may be any number."""
    auto = torch.export.Dim.AUTO
    shapes = tuple({0: auto, 1: auto} if _has_tokens(each) else {0: auto} for each in examples)
    program = torch.onnx.export(
        module,
        examples,
        dynamo=True,
        input_names=names,
        output_names=outputs,
        dynamic_shapes=(shapes,),
        verbose=False,
    )
    if program is None:
        raise ExportError("torch.onnx.export returned nothing")
    return bytes(program.model_proto.SerializeToString())


def export_trace(
    module: nn.Module, examples: tuple[Tensor, ...], names: list[str], outputs: list[str]
) -> bytes:
    """By tracing; torch warns of what a trace would fix, which is refused here."""
    file: Any = io.BytesIO()
    axes = {name: {0: "n"} for name in (*names, *outputs)}
    for name, each in zip(names, examples, strict=True):
        axes[name] |= {1: "tokens"} if _has_tokens(each) else {}
    how: dict[str, Any] = {"input_names": names, "output_names": outputs, "dynamic_axes": axes}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", TracerWarning)
        torch.onnx.export(module, examples, file, dynamo=False, **how)
    fixed = [each for each in told if issubclass(each.category, TracerWarning)]
    if fixed:
        raise ValueError(f"its way may depend on its data: {fixed[0].message}")
    return bytes(file.getvalue())


WAYS: dict[str, Way] = {"torch.export": export_program, "tracing": export_trace}


def _first_that_works(
    module: nn.Module, examples: tuple[Tensor, ...], names: list[str], outputs: list[str], what: str
) -> bytes:
    failures = []
    for way, export in WAYS.items():
        try:
            with _quiet(), torch.no_grad():
                return export(module, examples, names, outputs)
        except IknowError:
            raise
        except Exception as error:  # either exporter may raise anything
            failures.append(f"by {way}: {_in_a_line(error)}")
    raise ExportError(
        f"{what} cannot become ONNX. {'; '.join(failures)}. If you can export it yourself, wrap "
        "the .onnx file instead"
    )


def _in_a_line(error: BaseException) -> str:
    """What an exporter failed of: the first cause, without colors and advice about exporters."""
    while error.__cause__ is not None:
        error = error.__cause__
    said = re.sub("\x1b\\[[0-9;]*m", "", f"{type(error).__name__}: {error}")
    return shown_name(" ".join(said.split()), 300)


def _few_samples(model: TorchModel, inputs: Any) -> Fields:
    """Two samples to trace with; three if there are two, so that no comparison has as many."""
    n = len(inputs)
    rows = np.arange(MORE_ROWS if n == ROWS else ROWS) % n
    return given.to_tensors(inputs[rows], model.module)[0]


def _has_tokens(example: Tensor) -> bool:
    """Whether the second axis may have any length, as token numbers and their masks have."""
    return example.ndim == 2 and not example.is_floating_point()


def _as_numpy_has_it(tensor: Tensor) -> Tensor:
    """An example of a graph's input; half precision is single there, and cast inside."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor


def _name(model: TorchModel) -> str:
    return type(model.module).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters from warning and logging: what fails is in the error."""
    logs = [logging.getLogger(name) for name in LOGS]
    before = [log.level for log in logs]
    try:
        for log in logs:
            log.setLevel(logging.CRITICAL)
        nowhere = io.StringIO()
        with redirect_stdout(nowhere), redirect_stderr(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)
