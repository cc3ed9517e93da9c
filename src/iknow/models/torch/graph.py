"""GraphModel: reads a torch.export program as the modules that it was made from.

A program is a graph of operations, and says to which module each belongs. Torch makes modules of it
again, and `TorchModel` reads them by their old names. The mode is part of a program: one of a
module in training mode is refused, as its answers depend on chance and on the batch. So is one that
takes a fixed or bounded number of samples.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from iknow.core.text import names
from iknow.errors import InputError
from iknow.models.inputs import Fields, take_rows
from iknow.models.model import Layer
from iknow.models.network import Pass, Read
from iknow.models.pooling import PoolOption
from iknow.models.scores import ScoresOption
from iknow.models.torch.layers import Trial, Watch
from iknow.models.torch.model import TorchModel, running
from iknow.models.torch.passes import forward_pass

UNBOUNDED = 1 << 40  # more samples than any batch holds
SPECIAL = 2  # torch.export takes 0 and 1 for special, so "any" number may begin here


class GraphModel(TorchModel):
    """A torch.export program that maps a batch to scores.

    Args:
        program: A `torch.export.ExportedProgram`.
        pool: As in `TorchModel`; a layer with four axes or more counts as (n, channels, ...).
        scores: As in `TorchModel`.

    Examples:
        >>> from torch import nn
        >>> module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> sizes = ({0: torch.export.Dim("n")},)
        >>> program = torch.export.export(module, (torch.ones(2, 4),), dynamic_shapes=sizes)
        >>> [layer.name for layer in GraphModel(program).layers(np.ones((5, 4), np.float32))]
        ['input', '1', '2']
    """

    def __init__(
        self, program: Any, *, pool: PoolOption = None, scores: ScoresOption = None
    ) -> None:
        self._fewest = _check(program, program.module().graph.nodes)
        with warnings.catch_warnings():  # torch copies classes that it calls deprecated
            warnings.simplefilter("ignore", FutureWarning)
            super().__init__(torch.export.unflatten(program), pool=pool, scores=scores)
        self.program, self._name = program, "the exported program"

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        return super().layers(self._filled(batch))

    def _filled(self, batch: Any) -> Any:
        """The batch, repeated if it holds fewer samples than the program takes."""
        rows = np.arange(max(len(batch), self._fewest)) % len(batch)
        return batch if len(batch) == len(rows) else take_rows(batch, rows)

    def _run(self, tensors: Fields, layers: Sequence[str], watch: Watch) -> Pass:
        n, (scores, reads, _) = len(tensors), super()._run(self._filled(tensors), layers, watch)
        return Pass(scores[:n], {k: Read(v.values[:n], v.features_last) for k, v in reads.items()})

    def _forward(
        self, tensors: Fields, watch: Watch | Trial, act: Callable[[str, Any], None]
    ) -> Any:
        args, kwargs = self.program.call_spec.in_spec.unflatten(self._in_order(tensors))
        failures = (Exception,)  # what checks the shapes may raise anything
        with forward_pass(self.module, watch, act), running(self._name, tensors, failures):
            return self.module(*args, **kwargs)

    def _in_order(self, tensors: Fields) -> list[Tensor]:
        """The tensors in the order in which the program takes them."""
        taken = self.program.graph_signature.user_inputs
        given = dict(tensors.arrays)
        placed = [given.pop(name) for name in tensors.arrays if name.isdigit()]
        rest = taken[len(placed) :]
        if len(tensors.arrays) != len(taken) or (given and set(given) != set(rest)):
            raise InputError(
                f"the exported program takes the inputs {names(taken)}; got {names(tensors.arrays)}"
            )
        return [*placed, *(given[name] for name in rest)]


def _check(program: Any, nodes: Iterable[fx.Node]) -> int:
    """The fewest samples that a program takes, 1 or 2. Refuse one in training mode, one that writes
    to its own buffers, and one that does not take any number of samples.
    """
    fewest, written = 1, list(program.graph_signature.buffers_to_mutate.values())
    for node in nodes:
        arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
        by_name = {each.name: value for each, value in zip(arguments, node.args, strict=False)}
        if by_name.get("train") is True or by_name.get("training") is True:
            raise InputError(
                f"the program was exported in training mode ({node.name}), so its answers depend "
                "on chance or on the batch: export module.eval()"
            )
        first = node.args[0] if node.args else None
        is_own = isinstance(first, fx.Node) and first.op == "get_attr"
        if is_own and _operation(node).endswith("_"):
            written.append(str(first))
        shape = getattr(node.meta.get("val"), "shape", ())
        if node.op == "placeholder" and shape:
            low = high = shape[0]
            if not isinstance(low, int):
                bounds = program.range_constraints.get(low.node.expr)
                low, high = (1, UNBOUNDED) if bounds is None else (bounds.lower, bounds.upper)
            if low > SPECIAL or high < UNBOUNDED:
                most = "or more" if high >= UNBOUNDED else f"to {high}"
                raise InputError(
                    f"the program takes {f'exactly {low}' if low == high else f'{low} {most}'} "
                    "samples at a time, and must take any number: export it with torch.export."
                    "export(..., dynamic_shapes=...), where the first axis of each input is "
                    'torch.export.Dim("n")'
                )
            fewest = max(fewest, int(low))
    if written:
        raise InputError(
            f"the program writes to its buffer {written[0]!r}, so its answers may depend on those "
            "before: export module.eval(), or a module without a memory"
        )
    return fewest


def _operation(node: fx.Node) -> str:
    """The name of an operation without its package and variant, such as "linear"."""
    return str(node.target).removeprefix("aten.").partition(".")[0]


def load_module(path: str | os.PathLike[str]) -> Any:
    """A whole module saved by torch.save, TorchScript, or a .pt2 file of torch.export.

    Such a file can run code: load only what you trust.
    """
    log = logging.getLogger("torch.export")  # it shows the traceback of an error that it raises too
    before, log.disabled = log.disabled, True
    try:
        if os.fspath(path).lower().endswith(".pt2"):
            return torch.export.load(path)
        with warnings.catch_warnings():
            # torch.load hands TorchScript on to torch.jit.load, and says that it does.
            warnings.filterwarnings("ignore", "'torch.load' received a zip file that looks like")
            warnings.filterwarnings("ignore", r"`torch\.jit\.", DeprecationWarning)
            module = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # a pickle may raise anything
        raise InputError(f"{path} cannot be loaded as a torch module: {error}") from error
    finally:
        log.disabled = before
    if not isinstance(module, nn.Module):
        raise InputError(
            f"{path} holds {type(module).__name__}, not a module: save the whole module with "
            "torch.save(module, path), or name code that builds it as package.module:function"
        )
    return module
