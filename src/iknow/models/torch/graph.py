"""GraphModel: reads the operations of a torch.export program.

An exported program is a graph of operations with names, as its `graph` lists them. Each is a
layer, beside "input" and "output". The graph runs one operation after another, so any of them can
be read. Its mode is part of it: a program of a module in training mode is refused, as its answers
depend on chance and on the batch. So is one that takes a fixed or bounded number of samples.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from iknow.core.text import names
from iknow.errors import InputError
from iknow.models.inputs import Fields
from iknow.models.model import Layer
from iknow.models.network import INPUT, OUTPUT, Network, Pass, Read
from iknow.models.pooling import PoolOption
from iknow.models.scores import ScoresOption, find_output
from iknow.models.torch.layers import first_tensor, to_array
from iknow.models.torch.model import TorchModel, describe_layers, running

CALLS = ("call_function", "call_method", "call_module")
PRODUCTS = ("linear", "addmm", "mm", "matmul", "bmm", "conv1d", "conv2d", "conv3d", "convolution")
CHANNELS_FIRST = 4  # a layer of this number of axes is taken as (n, channels, height, width)
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
        ['input', 'relu', 'linear_1']
    """

    _entrance = ""
    _locate = Network._locate

    def __init__(
        self, program: Any, *, pool: PoolOption = None, scores: ScoresOption = None
    ) -> None:
        super().__init__(program.module(), pool=pool, scores=scores)
        self.program, self._name = program, "the exported program"
        nodes = list(self.module.graph.nodes)
        self._fewest = _check(program, nodes)
        calls = [node for node in nodes if node.op in CALLS]
        self._nodes = {n.name: n for n in calls if hasattr(n.meta.get("val"), "dtype")}

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the input if a `batch` is one array of numbers, what enters the last product
        with weights, and what that gives.
        """
        products = [name for name, node in self._nodes.items() if _operation(node) in PRODUCTS]
        tensors, _ = self._take(batch[:1])
        if not products:
            return describe_layers(INPUT, OUTPUT, tensors, ())
        head = self._nodes[products[-1]]
        sources = [arg for arg in head.all_input_nodes if arg.op != "get_attr"]
        entering = sources[0] if sources else head
        while _operation(entering) == "dropout":  # it changes nothing outside training
            entering = entering.all_input_nodes[0]
        hidden = entering.name if entering.name in self._nodes else INPUT
        return describe_layers(hidden, products[-1], tensors, ())

    def _places(self) -> dict[str, Any]:
        return self._nodes

    def _run(self, tensors: Fields, layers: Sequence[str], nodes: Mapping[str, Any]) -> Pass:
        n, found = len(tensors), {}
        filled = tensors if n >= self._fewest else tensors[np.zeros(self._fewest, dtype=np.int64)]
        reader = NodeReader(self.module, set(layers) & set(nodes))
        flat = self._in_order(filled)
        with running(self._name, filled, failures=(Exception,)):  # guards may raise anything
            returned = reader.run(*flat, enable_io_processing=False)
            returned = self.program.call_spec.out_spec.unflatten(returned)
        for name, tensor in reader.found.items():
            values = to_array(tensor, f"layer {name!r}")[:n]
            found[name] = Read(values, values.ndim < CHANNELS_FIRST)
        return Pass(find_output(returned, self.scores, len(filled), self._name)[:n], found)

    def _in_order(self, tensors: Fields) -> list[Tensor]:
        """The tensors in the order in which the program takes them."""
        taken = [str(node.target) for node in self.module.graph.nodes if node.op == "placeholder"]
        given = dict(tensors.arrays)
        placed = [given.pop(name) for name in tensors.arrays if name.isdigit()]
        rest = taken[len(placed) :]
        if len(tensors.arrays) != len(taken) or (given and set(given) != set(rest)):
            raise InputError(
                f"the exported program takes the inputs {names(taken)}; got {names(tensors.arrays)}"
            )
        return [*placed, *(given[name] for name in rest)]


class NodeReader(fx.Interpreter):
    """Runs a graph and keeps the results of some nodes."""

    def __init__(self, module: fx.GraphModule, wanted: set[str]) -> None:
        super().__init__(module)
        self._wanted = wanted
        self.found: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self._wanted:
            self.found[n.name] = first_tensor(value).clone()  # something may overwrite it later
        return value


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
