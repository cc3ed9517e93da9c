"""TorchModel: looking into a torch module through forward hooks.

Layers are named as in `named_modules()`; "input" is what goes in and "output" what comes out. The
module is run in eval mode without gradients, on its own device and in its own precision, and is
left as it was found: mode, hooks and parameters, also when something goes wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.arrays import Bools, Labels
from iknow.errors import InputError, LayerError
from iknow.models.model import Observation, check_layers, make_observation


class TorchModel:
    """A trained torch module that maps a batch to scores of shape (n, n_classes)."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    @property
    def classes(self) -> Labels | None:
        return None

    def prepare(self, inputs: Any) -> Any:
        if isinstance(inputs, Tensor):
            return inputs
        array = np.asarray(inputs)
        if array.dtype.kind not in "fiub":
            raise InputError(f"a torch module's inputs must be numbers; got dtype {array.dtype}")
        return array

    def default_layers(self, batch: Any) -> tuple[str, ...]:
        """The layer that feeds the last one with weights, and that last one: hidden and logits."""
        order: list[str] = []
        leaves = {n: m for n, m in self.module.named_modules() if n and not list(m.children())}
        with _hooks(leaves, lambda name, _: order.append(name)):
            self._run(self._to_tensor(batch)[0])
        weighted = [i for i, name in enumerate(order) if list(leaves[name].parameters())]
        if not weighted:
            return ("input", "output")
        last = weighted[-1]
        # Dropout and the like change nothing in eval mode; the layer before them has the name.
        before = [n for n in order[:last] if not isinstance(leaves[n], (nn.Dropout, nn.Identity))]
        return (before[-1] if before else "input", order[last])

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        modules = dict(self.module.named_modules())
        names = ["input", *(name for name in modules if name)]
        check_layers(layers, names if "output" in modules else [*names, "output"], self._name)
        inputs, invalid = self._to_tensor(batch)
        found: dict[str, Any] = {}

        def keep(name: str, output: Any) -> None:
            if name in found:
                raise LayerError(
                    f"layer {name!r} ran more than once in one forward pass, so its activation is "
                    "not one thing: give each use a module of its own, or choose another layer"
                )
            found[name] = _to_array(output, f"layer {name!r}")

        wanted = {name: modules[name] for name in layers if name in modules and name}
        with _hooks(wanted, keep):
            scores = self._run(inputs)
        found["input"] = _to_array(inputs, "the input")
        found.setdefault("output", scores)
        missing = [layer for layer in layers if layer not in found]
        if missing:
            raise LayerError(
                f"layer {missing[0]!r} of {self._name} did not run in the forward pass: "
                "choose one that does"
            )
        return make_observation(scores, {layer: found[layer] for layer in layers}, invalid=invalid)

    def fingerprint(self) -> str:
        """A hash of the module's structure and all its parameters and buffers."""
        digest = hashlib.sha256(repr(self.module).encode())
        for name, tensor in self.module.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return f"torch:{digest.hexdigest()}"

    @property
    def _name(self) -> str:
        return type(self.module).__name__

    def _run(self, inputs: Tensor) -> Any:
        with _evaluating(self.module), torch.no_grad():
            try:
                output = self.module(inputs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise InputError(
                    f"{self._name} failed on a batch of shape {tuple(inputs.shape)} and dtype "
                    f"{inputs.dtype}: {error}"
                ) from error
        return _to_array(output, f"the output of {self._name}")

    def _to_tensor(self, batch: Any) -> tuple[Tensor, Bools]:
        """The batch on the module's device and in its precision; non-finite values are set to 0.

        Whole numbers stay whole: they may be positions in an embedding.
        """
        like = next(self.module.parameters(), next(self.module.buffers(), torch.empty(0)))
        tensor = torch.as_tensor(batch)
        if not tensor.is_floating_point():
            return tensor.to(like.device), np.zeros(len(tensor), dtype=bool)
        tensor = tensor.detach().to(
            like.device, like.dtype if like.is_floating_point() else torch.get_default_dtype()
        )
        finite = torch.isfinite(tensor)
        invalid = ~finite.flatten(1).all(dim=1) if tensor.ndim > 1 else ~finite
        return torch.where(finite, tensor, torch.zeros_like(tensor)), invalid.cpu().numpy()


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode inside, each submodule's own mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def _hooks(modules: dict[str, nn.Module], act: Callable[[str, Any], None]) -> Iterator[None]:
    """Call `act(name, output)` whenever one of the modules has run."""
    handles = [
        module.register_forward_hook(lambda _m, _i, output, name=name: act(name, output))
        for name, module in modules.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _to_array(output: Any, what: str) -> Any:
    """A tensor as a numpy array of its own: a later in-place operation must not change it."""
    if not isinstance(output, Tensor):
        raise LayerError(
            f"{what} must be a tensor; got {type(output).__name__}: choose another layer, or wrap "
            "the module so that it returns one"
        )
    wide = torch.float64 if output.dtype == torch.float64 else torch.float32
    return output.detach().to("cpu", wide, copy=True).numpy()
