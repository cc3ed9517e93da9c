"""TorchModel: reads the layers of a torch module through forward hooks.

Layers are "input", "output" and the names in `named_modules()`. The module runs in eval mode
without gradients, on its own device and in its own precision. Its mode, hooks and parameters are
restored, even after an error, whatever other threads do with it (`iknow.geometry.torch.passes`).

A row may differ by some units in the last place between batch sizes: torch chooses other kernels,
which add in another order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.arrays import Bools
from iknow.core.sensitivity import Sensitivity
from iknow.errors import IknowError, InputError, LayerError, RefusedError
from iknow.geometry.torch.passes import forward_pass
from iknow.models.apart import observe_apart
from iknow.models.lengths import Sizes
from iknow.models.model import Model, Observation, check_layers, make_observation
from iknow.models.numbers import as_numbers
from iknow.models.promise import check_type


class TorchModel(Model):
    """A trained torch module that maps a batch to scores of shape (n, n_classes).

    It unwraps `torch.compile`, `DataParallel` and `DistributedDataParallel` to read the layers.

    Args:
        module: The module.

    Examples:
        >>> model = TorchModel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
        >>> model.observe(model.prepare(X), ["1"]).activations["1"].shape
        (150, 8)
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = _unwrap(module)

    @property
    def is_elsewhere(self) -> bool:
        return any(like.device.type != "cpu" for like in self.module.parameters())

    def prepare(self, inputs: Any) -> Any:
        if not isinstance(inputs, Tensor):
            return as_numbers(inputs, "X")
        if not _is_plain(inputs) or inputs.ndim == 0:
            raise InputError(
                "a torch module's inputs must be a dense tensor of real numbers with samples along "
                f"its first axis; got {_describe(inputs)}"
            )
        return inputs

    def default_layers(self, batch: Any) -> tuple[str, ...]:
        """Return the last layer with weights and the one that feeds it, for a `batch`."""
        order: list[str] = []
        unreadable: set[str] = set()
        leaves = {n: m for n, m in self.module.named_modules() if n and not list(m.children())}
        inputs, _ = self._to_tensor(batch)

        def note(name: str, output: Any) -> None:
            per_sample = isinstance(output, Tensor) and output.shape[:1] == inputs.shape[:1]
            if name in order or not per_sample:
                unreadable.add(name)
            order.append(name)

        self._run(inputs, leaves, note)
        weighted = [i for i, name in enumerate(order) if list(leaves[name].parameters())]
        if not weighted:
            return ("input", "output")
        last = weighted[-1]
        # Dropout changes nothing in eval mode: take the layer before it.
        skipped = unreadable | {n for n in order if isinstance(leaves[n], nn.Dropout | nn.Identity)}
        before = ["input", *(name for name in order[:last] if name not in skipped)]
        return (before[-1], "output" if order[last] in unreadable else order[last])

    def level_layers(self, batch: Any) -> tuple[str, ...]:
        """Return the input and the layer that feeds the last one with weights, for a `batch`."""
        return tuple(dict.fromkeys(("input", self.default_layers(batch)[0])))

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        modules = dict(self.module.named_modules())
        names = ["input", *(name for name in modules if name), "output"]
        check_layers(layers, dict.fromkeys(names), self._name)
        inputs, strange = self._to_tensor(batch)
        if not strange.any():
            return self._ask(inputs, layers, modules)
        return observe_apart(
            lambda part, wanted: self._ask(part.clone(), wanted, modules),
            inputs,
            layers,
            strange.astype(np.int64),
            substitute=lambda: torch.zeros_like(inputs),
        )

    def sensitivity(self, layer: str, inputs: Sizes) -> Sensitivity:
        check_type(self, TorchModel)
        from iknow.geometry.torch.module import sensitivities  # only certificates need it

        return sensitivities(self.module, inputs.shape, [layer], inputs.probe, TorchModel)[layer]

    def _ask(
        self, inputs: Tensor, layers: Sequence[str], modules: dict[str, nn.Module]
    ) -> Observation:
        """The module's answer for a tensor that it may write to."""
        found: dict[str, Any] = {}
        if "input" not in modules:  # read before the module runs: it may work in place
            found["input"] = _to_array(inputs, "the input")

        def keep(name: str, output: Any) -> None:
            if name in found:
                raise LayerError(
                    f"layer {name!r} ran more than once in one forward pass, so it has no single "
                    "activation: use a separate module each time, or choose another layer"
                )
            found[name] = _to_array(output, f"layer {name!r}")

        wanted = {name: modules[name] for name in layers if name in modules and name}
        scores = self._run(inputs, wanted, keep)
        if "output" not in modules:
            found["output"] = scores
        missing = [layer for layer in layers if layer not in found]
        if missing:
            raise LayerError(
                f"layer {missing[0]!r} of {self._name} did not run in the forward pass: "
                "choose one that does"
            )
        return make_observation(scores, {layer: found[layer] for layer in layers})

    @property
    def _name(self) -> str:
        return type(self.module).__name__

    def _run(
        self, inputs: Tensor, watched: Mapping[str, nn.Module], act: Callable[[str, Any], None]
    ) -> Any:
        # Evidence and queries need the same precision, even if the caller uses autocast.
        exact = torch.autocast(inputs.device.type, enabled=False)
        with forward_pass(self.module, watched, act), torch.no_grad(), exact:
            try:
                output = self.module(inputs)
            except (torch.cuda.OutOfMemoryError, IknowError):
                raise
            except (RuntimeError, ValueError, IndexError, AssertionError) as error:
                raise RefusedError(
                    f"{self._name} failed on a batch of shape {tuple(inputs.shape)} and dtype "
                    f"{inputs.dtype}: {error}"
                ) from error
        return _to_array(output, f"the output of {self._name}")

    def _to_tensor(self, batch: Any) -> tuple[Tensor, Bools]:
        """A copy on the module's device and in its precision, and which samples are not finite."""
        like = next(self.module.parameters(), next(self.module.buffers(), torch.empty(0)))
        if not isinstance(batch, Tensor):
            # torch takes no read-only, reversed or byte-swapped arrays.
            dtype = np.asarray(batch).dtype.newbyteorder("=")
            batch = torch.from_numpy(np.array(batch, dtype=dtype, order="C"))
        tensor: Tensor = batch
        if not tensor.is_floating_point():  # integers may be positions in an embedding
            return tensor.to(like.device, copy=True), np.zeros(len(tensor), dtype=bool)
        precision = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        tensor = tensor.detach().to(like.device, precision, copy=True)
        finite = torch.isfinite(tensor)
        invalid = ~finite.flatten(1).all(dim=1) if tensor.ndim > 1 else ~finite
        return tensor, invalid.cpu().numpy()


def _unwrap(module: Any) -> Any:
    """The module inside wrappers that only run it faster."""
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod"):
            module = module._orig_mod  # its class is not imported: that takes seconds
        else:
            return module


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is dense and holds real numbers."""
    dense = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_meta
    return dense and not tensor.is_complex() and not tensor.is_quantized


def _describe(tensor: Tensor) -> str:
    if tensor.is_nested:
        return "a nested tensor"
    return f"{tensor.dtype}, {tensor.layout}, {tuple(tensor.shape)} on {tensor.device}"


def _to_array(output: Any, what: str) -> Any:
    """A copy of a tensor as an array, which no later in-place operation can change."""
    is_tensor = isinstance(output, Tensor)
    if not is_tensor or not _is_plain(output):
        got = _describe(output) if is_tensor else type(output).__name__
        raise LayerError(
            f"{what} must be a dense tensor of real numbers; got {got}: choose another layer, or "
            "wrap the module so that it returns one"
        )
    wide = torch.float64 if output.dtype == torch.float64 else torch.float32
    return output.detach().to("cpu", wide, copy=True).numpy()


def load_batches(dataset: Any, batch_size: int) -> Any:
    """A loader of a torch dataset's samples, in its own order."""
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size)


def load_module(path: str | os.PathLike[str]) -> nn.Module:
    """A whole module saved by torch.save. Such a file can run code: load only what you trust."""
    try:
        module = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # a pickle may raise anything
        raise InputError(f"{path} cannot be loaded as a torch module: {error}") from error
    if not isinstance(module, nn.Module):
        raise InputError(
            f"{path} holds {type(module).__name__}, not a module: save the whole module with "
            "torch.save(module, path), or name code that builds it as package.module:function"
        )
    return module
