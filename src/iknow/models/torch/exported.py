"""ExportedModel: reads the operations of a torch.export program.

An exported program is a graph of operations with names, as its `graph` lists them. Each is a
layer, beside "input" and "output". The graph runs one operation after another, so any of them can
be read. Its mode is part of it: a program of a module in training mode is refused, as its answers
depend on chance and on the batch.

A program may be fixed to the number of samples it was exported with, or to a range. Batches are
cut to what it takes, and the last is filled up with copies of its first sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from iknow.core.text import names
from iknow.errors import IknowError, InputError, LayerError, RefusedError
from iknow.models.apart import observe_apart
from iknow.models.fields import Fields
from iknow.models.joining import join_whole
from iknow.models.model import Model, Observation, check_layers, make_observation
from iknow.models.pooling import Pool, Pooling
from iknow.models.scores import ScoresOption, as_columns, check_scores, find_output
from iknow.models.torch import inputs as given
from iknow.models.torch.calling import as_call
from iknow.models.torch.graph import Reader, batch_sizes, check_at_rest, gives_tensor, operation
from iknow.models.torch.tensors import to_array

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
        >>> ExportedModel(program).default_layers(np.ones((5, 4), dtype=np.float32))
        ('relu', 'linear_1')
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

    def default_layers(self, batch: Any) -> tuple[str, ...]:
        """Return what enters the last product with weights, for a `batch`, and what that gives."""
        products = [name for name, node in self._nodes.items() if operation(node) in PRODUCTS]
        tensors, _ = given.to_tensors(batch[:1], self._graph)
        if not products:
            return given.without_input(("input", "output"), tensors)
        head = self._nodes[products[-1]]
        sources = [arg for arg in head.all_input_nodes if arg.op != "get_attr"]
        entering = sources[0] if sources else head
        while operation(entering) == "dropout":  # it changes nothing outside training
            entering = entering.all_input_nodes[0]
        hidden = entering.name if entering.name in self._nodes else "input"
        return given.without_input((hidden, products[-1]), tensors)

    def level_layers(self, batch: Any) -> tuple[str, ...]:
        """Return the last hidden layer, and the input if the `batch` is one array of numbers."""
        tensors, _ = given.to_tensors(batch[:1], self._graph)
        hidden = self.default_layers(batch)
        if given.is_measurable(tensors):
            return tuple(dict.fromkeys(("input", hidden[0])))
        return (hidden[0] if hidden[0] != "input" else hidden[1],)

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        available = list(dict.fromkeys(["input", *self._nodes, "output"]))
        check_layers(layers, available, "the exported program")
        self.pooling.check_names(available, "the exported program")
        tensors, strange = given.to_tensors(batch, self._graph)
        if not strange.any():
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
