"""ExportedModel: reads the operations of a torch.export program.

An exported program is a graph of operations with names, as its `graph` lists them. Each is a
layer, beside "input" and "output". The graph runs one operation after another, so any of them can
be read. Its mode is part of it: a program of a module in training mode is refused, as its answers
depend on chance and on the batch.

A program may be fixed to the number of samples it was exported with, or to a range. Batches are
cut to what it takes, and the last is filled up with copies of its first sample.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from iknow.core.text import names
from iknow.errors import IknowError, InputError, LayerError, RefusedError
from iknow.models.inputs import Fields
from iknow.models.joined import join_whole
from iknow.models.model import Layer, Model, Observation, check_layers, make_observation
from iknow.models.pooling import Pool, Pooling
from iknow.models.refused import observe_apart
from iknow.models.scores import ScoresOption, as_columns, check_scores, find_output
from iknow.models.torch import inputs as given
from iknow.models.torch.calling import as_call
from iknow.models.torch.tensors import first_tensor, to_array

CALLS = ("call_function", "call_method", "call_module")
UNBOUNDED = 1 << 40  # more samples than any batch holds


class Reader(fx.Interpreter):
    """Runs a graph and keeps the results of some nodes."""

    def __init__(self, module: fx.GraphModule, wanted: Iterable[str]) -> None:
        super().__init__(module)
        self._wanted = set(wanted)
        self.found: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self._wanted:
            self.found[n.name] = first_tensor(value).clone()  # something may overwrite it later
        return value


def check_at_rest(program: Any, nodes: Iterable[fx.Node]) -> None:
    """Refuse a program in training mode, and one that writes to its own buffers."""
    written = list(program.graph_signature.buffers_to_mutate.values())
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
        if is_own and operation(node).endswith("_"):
            written.append(str(first))
    if written:
        raise InputError(
            f"the program writes to its buffer {written[0]!r}, so its answers may depend on those "
            "before: export module.eval(), or a module without a memory"
        )


def gives_tensor(node: fx.Node) -> bool:
    return node.op in CALLS and hasattr(node.meta.get("val"), "dtype")


def operation(node: fx.Node) -> str:
    """The name of an operation without its package and variant, such as "linear"."""
    return str(node.target).removeprefix("aten.").partition(".")[0]


def batch_sizes(nodes: Iterable[fx.Node], ranges: Mapping[Any, Any]) -> tuple[int, int | None]:
    """The smallest and the largest number of samples that a program takes; None for any."""
    smallest, largest = 1, None
    for node in nodes:
        shape = getattr(node.meta.get("val"), "shape", ())
        if node.op != "placeholder" or not shape:
            continue
        if isinstance(shape[0], int):
            return shape[0], shape[0]
        bounds = ranges.get(shape[0].node.expr)
        if bounds is not None:
            smallest = max(smallest, int(bounds.lower))
            upper = int(bounds.upper) if bounds.upper < UNBOUNDED else None
            largest = upper if largest is None else min(largest, upper or largest)
    if largest is not None and largest < 1:
        raise InputError("the exported program takes no samples at all")
    return smallest, largest


PRODUCTS = ("linear", "addmm", "mm", "matmul", "bmm", "conv1d", "conv2d", "conv3d", "convolution")
CHANNELS_FIRST = 4  # a layer of this number of axes is taken as (n, channels, height, width)


class ExportedModel(Model):
    """A torch.export program that maps a batch to scores.

    Args:
        program: A `torch.export.ExportedProgram`.
        pool: As in `TorchModel`; a layer with four axes or more counts as (n, channels, ...).
        scores: As in `TorchModel`.

    Examples:
        >>> from torch import nn
        >>> module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> program = torch.export.export(module, (torch.ones(2, 4),))
        >>> [layer.name for layer in ExportedModel(program).layers(np.ones((5, 4), np.float32))]
        ['input', 'relu', 'linear_1']
    """

    def __init__(
        self,
        program: Any,
        *,
        pool: Pool | Mapping[str, Pool] | None = None,
        scores: ScoresOption = None,
    ) -> None:
        check_scores(scores)
        self.program, self.pooling, self.scores = program, Pooling(pool), scores
        self._graph: fx.GraphModule = program.module()
        nodes = list(self._graph.graph.nodes)
        check_at_rest(program, nodes)
        self._nodes = {node.name: node for node in nodes if gives_tensor(node)}
        self._smallest, self._largest = batch_sizes(nodes, program.range_constraints)

    @property
    def is_elsewhere(self) -> bool:
        return any(like.device.type != "cpu" for like in self._graph.parameters())

    def prepare(self, inputs: Any) -> Any:
        return given.prepare(inputs, self._graph)

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the input if a `batch` is one array of numbers, what enters the last product
        with weights, and what that gives.
        """
        products = [name for name, node in self._nodes.items() if operation(node) in PRODUCTS]
        tensors, _ = given.to_tensors(batch[:1], self._graph)
        if not products:
            return given.describe_layers("input", "output", tensors, ())
        head = self._nodes[products[-1]]
        sources = [arg for arg in head.all_input_nodes if arg.op != "get_attr"]
        entering = sources[0] if sources else head
        while operation(entering) == "dropout":  # it changes nothing outside training
            entering = entering.all_input_nodes[0]
        hidden = entering.name if entering.name in self._nodes else "input"
        return given.describe_layers(hidden, products[-1], tensors, ())

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        available = list(dict.fromkeys(["input", *self._nodes, "output"]))
        check_layers(layers, available, "the exported program")
        self.pooling.check_names(available, "the exported program")
        tensors, strange = given.to_tensors(batch, self._graph)
        if strange is None:
            return self._ask_in_parts(tensors, layers)
        return observe_apart(
            self._ask_in_parts,
            tensors,
            layers,
            strange.astype(np.int64),
            substitute=lambda: given.without_values(tensors),
        )

    def _ask_in_parts(self, tensors: Fields, layers: Sequence[str]) -> Observation:
        n, step = len(tensors), self._largest or max(len(tensors), 1)
        starts = range(0, n, step)
        return join_whole((self._ask(tensors[i : i + step], layers) for i in starts), n)

    def _ask(self, tensors: Fields, layers: Sequence[str]) -> Observation:
        """The answers for as many samples as the program takes at a time, or fewer."""
        n = len(tensors)
        missing = max(self._smallest - n, 0)
        filled = tensors[np.concatenate([np.arange(n), np.zeros(missing, dtype=np.int64)])]
        mask, raw = given.find_mask(tensors), given.raw_input(tensors)
        reader = Reader(self._graph, [layer for layer in layers if layer in self._nodes])
        returned = self._run(reader, filled)
        scores = find_output(returned, self.scores, len(filled), "the exported program")
        table = as_columns(to_array(scores, "the output")[:n], self.scores, "the exported program")
        found = {name: to_array(v, f"layer {name!r}")[:n] for name, v in reader.found.items()}
        found.setdefault("output", table)
        if "input" in layers:
            if raw is None:
                raise LayerError("inputs in several arrays have no single layer 'input'")
            found.setdefault("input", to_array(raw, "the input"))
        pooled = {}
        for layer in layers:
            last = found[layer].ndim < CHANNELS_FIRST
            pooled[layer] = self.pooling(layer, found[layer], features_last=last, mask=mask)
        return make_observation(table, pooled)

    def _run(self, reader: Reader, tensors: Fields) -> Any:
        flat = self._in_order(tensors)
        try:
            with torch.no_grad(), torch.autocast(flat[0].device.type, enabled=False):
                returned = reader.run(*flat, enable_io_processing=False)
            return self.program.call_spec.out_spec.unflatten(returned)
        except (torch.cuda.OutOfMemoryError, IknowError):
            raise
        except Exception as error:  # guards of the program, or its operations
            raise RefusedError(
                f"the exported program failed on {given.describe_batch(tensors)}: {error}"
            ) from error

    def _in_order(self, tensors: Fields) -> list[Tensor]:
        """The tensors in the order in which the program takes them."""
        placed, named = as_call(tensors)
        taken = [str(node.target) for node in self._graph.graph.nodes if node.op == "placeholder"]
        if len(tensors.arrays) != len(taken) or (named and set(named) != set(taken[len(placed) :])):
            raise InputError(
                f"the exported program takes the inputs {names(taken)}; got {names(tensors.arrays)}"
            )
        return [*placed, *(named[name] for name in taken[len(placed) :])]


EXPORTED = ".pt2"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch.export from logging the traceback of an error that it also raises."""
    log = logging.getLogger("torch.export")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def load_module(path: str | os.PathLike[str]) -> Any:
    """A whole module saved by torch.save, TorchScript, or a .pt2 file of torch.export.

    Such a file can run code: load only what you trust.
    """
    try:
        if os.fspath(path).lower().endswith(EXPORTED):
            with _quiet():
                return torch.export.load(path)
        with warnings.catch_warnings():
            # torch.load hands TorchScript on to torch.jit.load, and says that it does.
            warnings.filterwarnings("ignore", "'torch.load' received a zip file that looks like")
            warnings.filterwarnings("ignore", r"`torch\.jit\.", DeprecationWarning)
            module = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # a pickle may raise anything
        raise InputError(f"{path} cannot be loaded as a torch module: {error}") from error
    if not isinstance(module, nn.Module):
        raise InputError(
            f"{path} holds {type(module).__name__}, not a module: save the whole module with "
            "torch.save(module, path), or name code that builds it as package.module:function"
        )
    return module
