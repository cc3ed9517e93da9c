"""TorchModel: reads the layers of a torch module through forward hooks.

Layers are "input", "output", the names in `named_modules()`, and "name.input" for what enters one
of these. Of several tensors that a module takes or returns, its layer is the first. TorchScript
takes no hooks: it has "input" and "output" alone.

The module runs in eval mode without gradients, on its own device and in its own precision. Its
mode, hooks and parameters are restored, even after an error, whatever other threads do with it
(`iknow.models.torch.passes`).

A row may differ by some units in the last place between batch sizes: torch chooses other kernels,
which add in another order.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from iknow.core.arrays import Bools
from iknow.core.robustness import Sensitivity
from iknow.errors import IknowError, LayerError, RefusedError
from iknow.models.inputs import Fields, Sizes
from iknow.models.model import Layer, check_type
from iknow.models.network import INPUT, OUTPUT, Network, Pass, Read
from iknow.models.pooling import PoolOption
from iknow.models.scores import ScoresOption, find_output
from iknow.models.torch import inputs as given
from iknow.models.torch.layers import LayerReading, Trial, features_last, readable_parts, to_array
from iknow.models.torch.passes import copy_at_rest, forward_pass

FAILURES = (RuntimeError, ValueError, IndexError, AssertionError)


class TorchModel(Network):
    """A trained torch module: a batch, in one tensor or several, to scores.

    It unwraps `torch.compile`, `DataParallel` and `DistributedDataParallel` to read the layers.
    Inputs are an array or a tensor, a dict of them, passed on by name, or a tuple, passed on by
    position. An `attention_mask` among them says which tokens pooling leaves out.

    Args:
        module: The module.
        pool: How to turn the activations of a layer into one vector per sample
            (`iknow.models.pooling`).
        scores: Where the scores are in what the module returns (`iknow.models.scores`).

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
        if isinstance(self.module, torch.jit.ScriptModule):
            self._hint = " (TorchScript, whose inside cannot be read)"

    @property
    def is_elsewhere(self) -> bool:
        return any(like.device.type != "cpu" for like in self.module.parameters())

    def prepare(self, inputs: Any) -> Any:
        return given.prepare(inputs, self.module)

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the input if a `batch` is one array of numbers, what enters the head, and the
        head. TorchScript hides what enters its head: its output stands for it.
        """
        tensors, _ = self._take(batch)
        parts = readable_parts(self.module)
        trial = Trial(parts, len(tensors), given.raw_input(tensors))
        returned = self._forward(tensors, trial)
        scores = find_output(returned, self.scores, len(tensors), self._name)
        found = describe_layers(*trial.find(scores), tensors, parts)
        if isinstance(self.module, torch.jit.ScriptModule):
            return tuple(Layer(each.name, "hidden") for each in found)
        return found

    def sensitivity(self, layer: str, inputs: Sizes) -> Sensitivity:
        check_type(self, TorchModel)
        if inputs.probe is None:
            raise LayerError("nothing is known about inputs in several arrays")
        if self.pooling.of(layer) is not None:
            raise LayerError(f"nothing is known about layer {layer!r} after pooling")
        named = [name for name, _ in self.module.named_modules()]
        if layer == OUTPUT and self.scores is not None and layer not in named:
            raise LayerError("nothing is known about scores that are chosen by scores=")
        from iknow.metrics.lipschitz_torch import sensitivities  # only certificates need it

        def alike(module: nn.Module) -> TorchModel:
            return TorchModel(module, scores=self.scores)

        module = self.module if layer == "input" else copy_at_rest(self.module)
        return sensitivities(module, inputs.shape, [layer], inputs.probe, alike)[layer]

    @property
    def _name(self) -> str:
        return type(self.module).__name__

    def _take(self, batch: Any) -> tuple[Fields, Bools | None]:
        return given.to_tensors(batch, self.module)

    def _places(self) -> dict[str, nn.Module]:
        return readable_parts(self.module)

    def _run(self, tensors: Fields, layers: Sequence[str], parts: Mapping[str, nn.Module]) -> Pass:
        reading = LayerReading(parts, layers, self.pooling, len(tensors))
        returned = self._forward(tensors, reading)
        scores = self._read_scores(returned, len(tensors))
        if missing := [layer for layer in reading.wanted if layer not in reading.found]:
            raise LayerError(
                f"layer {missing[0]!r} of {self._name} did not run in the forward pass: choose one "
                "that does"
            )
        reads = {
            layer: Read(values, features_last(last, values.shape), mask)
            for layer, (values, last, mask) in reading.found.items()
        }
        return Pass(scores, reads)

    def _as_array(self, values: Any, what: str) -> Any:
        return to_array(values, what)

    def _read_scores(self, returned: Any, n_samples: int) -> Any:
        output = find_output(returned, self.scores, n_samples, self._name)
        is_array = isinstance(output, np.ndarray)
        return output if is_array else to_array(output, f"the output of {self._name}")

    def _forward(self, tensors: Fields, watch: LayerReading | Trial) -> Any:
        """All that the module returns."""
        placed, named = given.arguments(tensors, self.module)
        hooks = forward_pass(self.module, watch.watched, watch.act, watch.entered)
        with hooks, running(self._name, tensors):
            try:
                return self.module(*placed, **named)
            except TypeError:
                given.check_complete(placed, named, self.module)
                raise


@contextmanager
def running(
    name: str, tensors: Fields, failures: tuple[type[Exception], ...] = FAILURES
) -> Iterator[None]:
    """Run a network without gradients; what fails on a batch is a `RefusedError`."""
    device = next(iter(tensors.arrays.values())).device.type
    # Evidence and queries need the same precision, even if the caller uses autocast.
    mixed = torch.is_autocast_enabled(device)
    with torch.no_grad(), torch.autocast(device, enabled=False) if mixed else nullcontext():
        try:
            yield
        except (torch.cuda.OutOfMemoryError, IknowError):
            raise
        except failures as error:
            raise RefusedError(
                f"{name} failed on {given.describe_batch(tensors)}: {error}"
            ) from error


def describe_layers(
    hidden: str, head: str, tensors: Fields, parts: Container[str]
) -> tuple[Layer, ...]:
    """The input, what enters the head, and the head; parts: other layers.

    Nearness of inputs may mean something for numbers or pixels, not for token numbers.
    """
    raw = given.raw_input(tensors)
    measurable = raw is not None and (raw.is_floating_point() or raw.dtype == torch.uint8)
    found = [Layer(INPUT, "input")] if measurable else []
    if hidden != INPUT or (not found and INPUT in parts):
        found.append(Layer(hidden, "hidden"))
    return (*found, Layer(head, "output"))


def _unwrap(module: Any) -> Any:
    """The module inside wrappers that only run it faster."""
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod"):
            module = module._orig_mod  # its class is not imported: that takes seconds
        else:
            return module
