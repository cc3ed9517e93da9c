"""TorchModel: reads the layers of a torch module through forward hooks.

Layers are "input", "output", the names in `named_modules()`, and "name.input" for what enters one
of these. Of several tensors that a module takes or returns, its layer is the first. TorchScript
takes no hooks: it has "input" and "output" alone.

Inputs become `Fields` of tensors, whose names are numbers if they are positions. Floats are cast to
the module's precision; whole numbers may be positions in an embedding and stay as they are.

The module runs in eval mode without gradients, on its own device and in its own precision. Its
mode, hooks and parameters are restored, even after an error, whatever other threads do with it
(`iknow.models.torch.layers`). Which parts to watch is settled once for some layers, and again when
the module has other parts; modes and parameters may change at any time.

A row may differ by some units in the last place between batch sizes: torch chooses other kernels,
which add in another order.

A torch.export program is a graph of operations, and says to which module each belongs. Torch makes
modules of it again, and `GraphModel` reads them by their old names. The mode is part of a program:
one of a module in training mode is refused, as its answers depend on chance and on the batch. So is
one that takes a fixed or bounded number of samples.
"""

from __future__ import annotations

import inspect
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from iknow.core.arrays import Bools
from iknow.core.robustness import Sensitivity
from iknow.core.text import names
from iknow.errors import InputError, LayerError, RefusedError
from iknow.models.inputs import Fields, Sizes, as_fields, as_numbers
from iknow.models.model import Layer, check_type, refusing
from iknow.models.network import (
    INPUT,
    MOMENTS,
    OUTPUT,
    Network,
    Pass,
    PoolOption,
    Read,
    ScoresOption,
    find_output,
)
from iknow.models.torch.layers import (
    Trial,
    WatchedParts,
    copy_at_rest,
    describe,
    features_last,
    forward_pass,
    is_plain,
    readable_parts,
    to_array,
)

FAILURES = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
LABELS = "labels"
UNBOUNDED = 1 << 40  # more samples than any batch holds
SPECIAL = 2  # torch.export takes 0 and 1 for special, so "any" number may begin here


class TorchModel(Network):
    """A trained torch module: a batch, in one tensor or several, to scores.

    It unwraps `torch.compile`, `DataParallel` and `DistributedDataParallel` to read the layers.
    Inputs are an array or a tensor, a dict of them, passed on by name, or a tuple, passed on by
    position. An `attention_mask` among them says which tokens pooling leaves out.

    Args:
        module: The module.
        pool: How to turn the activations of a layer into one vector per sample
            (`iknow.models.network`).
        scores: Where the scores are in what the module returns (likewise).

    Examples:
        >>> model = TorchModel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
        >>> model.observe(model.prepare(X), ["1", "2.input"]).activations["2.input"].shape
        (150, 8)
    """

    def __init__(
        self, module: nn.Module, *, pool: PoolOption = None, scores: ScoresOption = None
    ) -> None:
        super().__init__(pool, scores)
        self.module = _unwrap(module)
        self._name = type(self.module).__name__
        if isinstance(self.module, torch.jit.ScriptModule):
            self._hint = " (TorchScript, whose inside cannot be read)"

    @property
    def is_elsewhere(self) -> bool:
        return any(like.device.type != "cpu" for like in self.module.parameters())

    def prepare(self, inputs: Any) -> Any:
        """Return the `inputs` as an array, a tensor, or `Fields` of these."""
        if isinstance(inputs, Fields):
            inputs = inputs.arrays
        if isinstance(inputs, tuple) and inputs and all(map(_is_array, inputs)):
            inputs = {str(i): each for i, each in enumerate(inputs)} if inputs[1:] else inputs[0]
        if not isinstance(inputs, Mapping):
            return _prepare_one(inputs, "X")
        given = {name: values for name, values in inputs.items() if values is not None}
        loss = parameters_of(self.module).get(LABELS) if LABELS in given else None
        if loss is not None and loss.default is None:
            del given[LABELS]  # of use in training alone
        return as_fields({k: _prepare_one(values, f"X[{k!r}]") for k, values in given.items()})

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the input if a `batch` is one array of numbers, what enters the head, and the
        head. TorchScript hides what enters its head: its output stands for it.
        """
        tensors, _ = self._take(batch)
        parts = dict(self.module.named_modules())
        trial = Trial(parts, len(tensors), raw_input(tensors))
        returned = self._forward(tensors, trial, trial.act)
        scores = find_output(returned, self.scores, len(tensors), self._name)
        hidden, head = trial.find(scores)
        # Nearness of inputs may mean something for numbers or pixels, not for token numbers.
        raw = raw_input(tensors)
        measurable = raw is not None and (raw.is_floating_point() or raw.dtype == torch.uint8)
        found = [Layer(INPUT, "input")] if measurable else []
        found += [Layer(name + MOMENTS, "middle") for name in trial.find_stages()]
        if hidden != INPUT or (not measurable and INPUT in readable_parts(parts)):
            found.append(Layer(hidden, "hidden"))
        found.append(Layer(head, "output"))
        if isinstance(self.module, torch.jit.ScriptModule):
            return tuple(Layer(each.name, "hidden") for each in found)
        return tuple(found)

    def sensitivity(self, layer: str, inputs: Sizes) -> Sensitivity:
        check_type(self, TorchModel)
        if inputs.probe is None:
            raise LayerError("nothing is known about inputs in several arrays")
        if self.pooling.of(layer) is not None:
            raise LayerError(f"nothing is known about layer {layer!r} after pooling")
        if layer == OUTPUT and self.scores is not None and layer not in self._places():
            raise LayerError("nothing is known about scores that are chosen by scores=")
        from iknow.metrics.lipschitz_torch import sensitivities  # only certificates need it

        alike = partial(TorchModel, scores=self.scores)
        module = self.module if layer == INPUT else copy_at_rest(self.module)
        return sensitivities(module, inputs.shape, [layer], inputs.probe, alike)[layer]

    def _places(self) -> Mapping[str, Any]:
        return readable_parts(dict(self.module.named_modules()))

    def _locate(self, layers: Sequence[str]) -> Any:
        parts, watch = dict(self.module.named_modules()), self._settled.get(tuple(layers))
        if watch is None or watch.parts != parts:
            super()._locate(layers)
            watch = self._settled[tuple(layers)] = WatchedParts(parts, layers, self.pooling)
        return watch

    def _take(self, batch: Any) -> tuple[Fields, Bools | None]:
        """Copies on the module's device and in its precision, and which are not finite."""
        like = next(chain(self.module.parameters(), self.module.buffers(), [torch.empty(0)]))
        tensors: dict[str, Tensor] = {}
        strange: Bools | None = None
        for name, values in (batch.arrays if isinstance(batch, Fields) else {"0": batch}).items():
            if is_copy := not isinstance(values, Tensor):
                # torch takes no read-only, reversed or byte-swapped arrays.
                dtype = np.asarray(values).dtype.newbyteorder("=")
                values = torch.from_numpy(np.array(values, dtype=dtype, order="C"))
            precision = values.dtype
            if values.is_floating_point():
                precision = like.dtype if like.is_floating_point() else torch.get_default_dtype()
            tensor = values.detach().to(like.device, precision, copy=not is_copy)
            # An infinite term never leaves a sum, which takes less time than to look at each.
            if tensor.is_floating_point() and not isfinite(tensor.sum()):
                finite = torch.isfinite(tensor)
                bad = ~finite.flatten(1).all(dim=1) if tensor.ndim > 1 else ~finite
                strange = bad.cpu().numpy() | (False if strange is None else strange)
            tensors[name] = tensor
        return Fields(tensors), strange

    _as_array = staticmethod(to_array)

    def _run(self, tensors: Fields, layers: Sequence[str], watch: WatchedParts) -> Pass:
        act, found = watch.reader(len(tensors))
        scores, reads = self._forward(tensors, watch, act), dict[str, Read]()
        if self.scores is not None or not isinstance(scores, Tensor):
            scores = find_output(scores, self.scores, len(tensors), self._name)
        for layer in watch:
            if layer not in found:
                raise LayerError(
                    f"layer {layer!r} of {self._name} did not run in the forward pass: choose one "
                    "that does"
                )
            values, last, mask = found[layer]
            is_last = values.ndim < 3 or features_last(last, values.shape)
            reads[layer] = Read(values, is_last, mask)
        return Pass(scores, reads)

    def _arguments(self, tensors: Fields) -> Any:
        """What to call the module with, by position and by name."""
        return arguments(tensors, self.module)

    def _forward(
        self, tensors: Fields, watch: WatchedParts | Trial, act: Callable[[str, Any], None]
    ) -> Any:
        """All that the module returns."""
        placed, named = self._arguments(tensors)
        device = next(iter(tensors.arrays.values())).device.type
        # Evidence and queries need the same precision, even if the caller uses autocast.
        mixed = torch.is_autocast_enabled(device)
        exact = torch.autocast(device, enabled=False) if mixed else nullcontext()
        batch = tensors.arrays["0"] if [*tensors.arrays] == ["0"] else tensors
        taken = refusing(self._name, batch, _is_refusal)
        try:
            with forward_pass(self.module, watch, act), torch.no_grad(), exact, taken:
                return self.module(*placed, **named)
        except RefusedError as error:
            if all(tensor.is_floating_point() for tensor in tensors.arrays.values()):
                raise
            raise RefusedError(
                f"{error}. Whole numbers and bools go to the network as they are: if it takes "
                "floats, pass X.astype('float32'), scaled as for its training"
            ) from error


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, FAILURES) and not isinstance(error, torch.cuda.OutOfMemoryError)


def raw_input(tensors: Fields) -> Tensor | None:
    """The tensor that is the layer "input": the only one."""
    values: list[Tensor] = list(tensors.arrays.values())
    return values[0] if len(values) == 1 else None


def arguments(tensors: Fields, module: nn.Module) -> tuple[list[Any], dict[str, Any]]:
    """What to call a module with: tensors by position and by name, or one dict of them.

    A module with a single parameter, which is none of the names, takes the dict as a whole.
    """
    named = dict(tensors.arrays)
    if placed := [named.pop(name) for name in tensors.arrays if name.isdigit()]:
        return placed, named
    taken = parameters_of(module)
    is_single = len(taken) == 1 and not any(x.kind is x.VAR_KEYWORD for x in taken.values())
    return ([named], {}) if is_single and taken.keys().isdisjoint(named) else ([], named)


def parameters_of(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """What the forward of a module takes; nothing if that is unknown, as for compiled code."""
    try:
        is_script = isinstance(module, torch.jit.ScriptModule)
        return {} if is_script else inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return {}


def _is_array(values: Any) -> bool:
    return isinstance(values, Tensor | np.ndarray) and values.ndim > 0


def _prepare_one(values: Any, what: str) -> Any:
    if isinstance(values, Tensor):
        if is_plain(values) and values.ndim:
            return values
        raise InputError(
            "a torch module's inputs must be a dense tensor of real numbers with samples along "
            f"its first axis; got {describe(values)}"
        )
    if isinstance(values, list | tuple):
        lengths = {len(row) for row in values if isinstance(row, list | tuple) or _is_array(row)}
        if len(lengths) > 1:  # as a tokenizer returns without padding
            raise InputError(
                f"{what} holds sequences of different lengths, from {min(lengths)} to "
                f"{max(lengths)}: pad them, for example with tokenizer(texts, padding=True, "
                "return_tensors='pt')"
            )
    return as_numbers(values, what)


def _unwrap(module: Any) -> Any:
    """The module inside wrappers that only run it faster."""
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod"):
            module = module._orig_mod  # its class is not imported: that takes seconds
        else:
            return module


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
        _check(program)
        with warnings.catch_warnings():  # torch copies classes that it calls deprecated
            warnings.simplefilter("ignore", FutureWarning)
            super().__init__(torch.export.unflatten(program), pool=pool, scores=scores)
        self.program, self._name = program, "the exported program"

    def _arguments(self, tensors: Fields) -> Any:
        taken = self.program.graph_signature.user_inputs
        given = dict(tensors.arrays)
        placed = [given.pop(name) for name in tensors.arrays if name.isdigit()]
        rest = taken[len(placed) :]
        if len(tensors.arrays) != len(taken) or (given and set(given) != set(rest)):
            raise InputError(
                f"the exported program takes the inputs {names(taken)}; got {names(tensors.arrays)}"
            )
        return self.program.call_spec.in_spec.unflatten([*placed, *map(given.get, rest)])


def _check(program: Any) -> None:
    """Refuse a program in training mode, one that writes to its own buffers, and one that does not
    take any number of samples.
    """
    written = list(program.graph_signature.buffers_to_mutate.values())
    for node in program.module().graph.nodes:
        arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
        by_name = {each.name: value for each, value in zip(arguments, node.args, strict=False)}
        if by_name.get("train") is True or by_name.get("training") is True:
            raise InputError(
                f"the program was exported in training mode ({node.name}), so its answers depend "
                "on chance or on the batch: export module.eval()"
            )
        first = node.args[0] if node.args else None
        is_own = isinstance(first, fx.Node) and first.op == "get_attr"
        if is_own and str(node.target).removeprefix("aten.").partition(".")[0].endswith("_"):
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
    if written:
        raise InputError(
            f"the program writes to its buffer {written[0]!r}, so its answers may depend on those "
            "before: export module.eval(), or a module without a memory"
        )


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
