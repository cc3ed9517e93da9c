"""TorchModel: reads the layers of a torch module through forward hooks.

Layers are "input", "output", the names in `named_modules()`, and "name.input" for what enters one
of these. Of several tensors that a module takes or returns, its layer is the first. TorchScript
takes no hooks: it has "input" and "output" alone.

The module runs in eval mode without gradients, on its own device and in its own precision. Its
mode, hooks and parameters are restored, even after an error, whatever other threads do with it
(`iknow.metrics.torch.passes`).

A row may differ by some units in the last place between batch sizes: torch chooses other kernels,
which add in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from iknow.core.robustness import Sensitivity
from iknow.errors import IknowError, LayerError, RefusedError
from iknow.metrics.torch.passes import forward_pass
from iknow.models.inputs import Fields, Sizes
from iknow.models.model import Layer, Model, Observation, check_layers, check_type, make_observation
from iknow.models.pooling import WHOLE, Pool, Pooling
from iknow.models.refused import observe_apart
from iknow.models.scores import ScoresOption, as_columns, check_scores, find_output
from iknow.models.torch import inputs as given
from iknow.models.torch.calling import arguments, check_complete
from iknow.models.torch.defaults import Run, mark
from iknow.models.torch.reading import ENTRANCE, Read, Reading, readable_parts
from iknow.models.torch.tensors import to_array


class TorchModel(Model):
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
        self,
        module: nn.Module,
        *,
        pool: Pool | Mapping[str, Pool] | None = None,
        scores: ScoresOption = None,
    ) -> None:
        check_scores(scores)
        self.module = _unwrap(module)
        self.pooling, self.scores = Pooling(pool), scores

    @property
    def is_elsewhere(self) -> bool:
        return any(like.device.type != "cpu" for like in self.module.parameters())

    def prepare(self, inputs: Any) -> Any:
        return given.prepare(inputs, self.module)

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the input if a `batch` is one array of numbers, what enters the head, and the
        head, the last layer with weights.

        TorchScript hides what enters its head: its output stands for it.
        """
        tensors, _ = given.to_tensors(batch, self.module)
        parts = readable_parts(self.module)
        run = Run({n: m for n, m in parts.items() if not list(m.children())}, len(tensors))
        raw = given.raw_input(tensors)
        start = None if raw is None else mark(raw)
        returned = self._run(tensors, run.leaves, run.act, run.entered)
        scores = find_output(returned, self.scores, len(tensors), self._name)
        if isinstance(self.module, torch.jit.ScriptModule):
            names = ["input"] if given.is_measurable(tensors) else []
            return tuple(Layer(name, "hidden") for name in [*names, "output"])
        hidden, head = run.find(scores, start) or ("input", "output")
        return given.describe_layers(hidden, head, tensors, parts)

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        parts = readable_parts(self.module)
        self._check_layers(layers, parts)
        tensors, strange = given.to_tensors(batch, self.module)
        if strange is None:
            return self._ask(tensors, layers, parts)
        return observe_apart(
            lambda part, wanted: self._ask(part.copy(), wanted, parts),
            tensors,
            layers,
            strange.astype(np.int64),
            substitute=lambda: given.without_values(tensors),
        )

    def sensitivity(self, layer: str, inputs: Sizes) -> Sensitivity:
        check_type(self, TorchModel)
        self._check_certifiable(layer, inputs)
        from iknow.metrics.torch.module import sensitivities  # only certificates need it

        def alike(module: nn.Module) -> TorchModel:
            return TorchModel(module, scores=self.scores)

        return sensitivities(self.module, inputs.shape, [layer], inputs.probe, alike)[layer]

    def _check_certifiable(self, layer: str, inputs: Sizes) -> None:
        if inputs.probe is None:
            raise LayerError("nothing is known about inputs in several arrays")
        if self.pooling.of(layer) is not None:
            raise LayerError(f"nothing is known about layer {layer!r} after pooling")
        if layer == "output" and self.scores is not None and layer not in self._names():
            raise LayerError("nothing is known about scores that are chosen by scores=")

    def _check_layers(self, layers: Sequence[str], parts: Mapping[str, nn.Module]) -> None:
        plain = [layer for layer in layers if layer.removesuffix(ENTRANCE) not in parts]
        if not (set(plain).difference(WHOLE) or self.pooling.is_by_layer):
            return  # to list all names takes longer than a small module
        listed = list(dict.fromkeys(["input", *parts, "output"]))
        entrances = [f"{name}{ENTRANCE}" for name in parts]
        script = isinstance(self.module, torch.jit.ScriptModule)
        kind = f"{self._name} (TorchScript, whose inside cannot be read)" if script else self._name
        check_layers(plain, listed, kind)
        self.pooling.check_names([*listed, *entrances], self._name)

    def _ask(
        self, tensors: Fields, layers: Sequence[str], parts: dict[str, nn.Module]
    ) -> Observation:
        """The module's answer for tensors that it may write to."""
        reading = Reading(parts, layers, self.pooling, len(tensors))
        mask = given.find_mask(tensors)
        found = reading.found
        if "input" in layers and "input" not in parts:  # before the module runs: it may overwrite
            found["input"] = Read(_read_input(tensors))
        returned = self._run(tensors, reading.watched, reading.act, reading.entered)
        scores = self._read_scores(returned, len(tensors))
        if "output" not in parts:
            found["output"] = Read(scores)
        missing = [layer for layer in layers if layer not in found]
        if missing:
            raise LayerError(
                f"layer {missing[0]!r} of {self._name} did not run in the forward pass: "
                "choose one that does"
            )
        pooled = {}
        for layer in layers:
            read = found[layer]
            last = read.axes.features_last(read.values.shape)
            own = mask if read.mask is None else read.mask
            pooled[layer] = self.pooling(layer, read.values, features_last=last, mask=own)
        return make_observation(scores, pooled)

    def _read_scores(self, returned: Any, n_samples: int) -> Any:
        output = find_output(returned, self.scores, n_samples, self._name)
        if not isinstance(output, np.ndarray):
            output = to_array(output, f"the output of {self._name}")
        return as_columns(output, self.scores, self._name)

    @property
    def _name(self) -> str:
        return type(self.module).__name__

    def _names(self) -> list[str]:
        return [name for name, _ in self.module.named_modules()]

    def _run(
        self,
        tensors: Fields,
        watched: Mapping[str, nn.Module],
        act: Callable[[str, Any], None],
        entered: Mapping[str, nn.Module],
    ) -> Any:
        """All that the module returns."""
        placed, named = arguments(tensors, self.module)
        device = next(iter(tensors.arrays.values())).device.type
        # Evidence and queries need the same precision, even if the caller uses autocast.
        mixed = torch.is_autocast_enabled(device)
        exact = torch.autocast(device, enabled=False) if mixed else nullcontext()
        with forward_pass(self.module, watched, act, entered), torch.no_grad(), exact:
            try:
                return self.module(*placed, **named)
            except (torch.cuda.OutOfMemoryError, IknowError):
                raise
            except TypeError:
                check_complete(placed, named, self.module)
                raise
            except (RuntimeError, ValueError, IndexError, AssertionError) as error:
                raise RefusedError(
                    f"{self._name} failed on {given.describe_batch(tensors)}: {error}"
                ) from error


def _read_input(tensors: Fields) -> Any:
    raw = given.raw_input(tensors)
    if raw is None:
        raise LayerError(
            f"inputs in several arrays ({', '.join(tensors.arrays)}) have no single layer 'input': "
            "choose another layer"
        )
    return to_array(raw, "the input")


def _unwrap(module: Any) -> Any:
    """The module inside wrappers that only run it faster."""
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod"):
            module = module._orig_mod  # its class is not imported: that takes seconds
        else:
            return module
