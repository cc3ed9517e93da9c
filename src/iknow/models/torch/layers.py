"""The layers of a torch module: which there are, what hooks see of them in one forward pass, and
which are the last hidden layer and the head.

A layer "name" is what the module of this name returns, "name.input" what enters it: its first
tensor in either case. Tensors are copied when they are seen, before anything works on them in
place.

Where the features are in its activations decides which axes are pooled. Convolutions and batch
normalization have channels in the second axis, (n, channels, ...); linear layers, layer
normalization, embeddings, attention and recurrent layers have features in the last, (n, tokens,
features). What comes after them, such as an activation function or a block, keeps their order
unless it moves axes. So the features are the axis, second or last, that is as long as the last such
module that ran is wide. If both or neither are, the order is that module's own.

The head is the module with weights whose output is the scores; if none is, the one whose output
ranks the classes alike, as before a softmax; if none does, the last that runs. What enters it is
the last hidden layer. If an earlier module returned these very numbers, the layer has the name of
that module; after code without a name, such as the sum in a residual block or a mean over tokens,
it is "HEAD.input".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from iknow.errors import LayerError
from iknow.models.network import ENTRANCE
from iknow.models.pooling import Pooling

CHANNELS_FIRST = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)
FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, nn.EmbeddingBag, nn.RNNBase)
WIDTHS = ("out_channels", "num_features", "num_channels", "out_features", "embedding_dim")
ROWS_TO_MARK = 4
ROWS_TO_COMPARE = 32


def readable_parts(module: nn.Module) -> dict[str, nn.Module]:
    """The modules inside a module by name, except TorchScript, which takes no hooks."""
    return {
        name: part
        for name, part in module.named_modules()
        if name and not isinstance(part, torch.jit.ScriptModule)
    }


@dataclass(frozen=True)
class Axes:
    """How a module orders its output: its width, and whether the features come last."""

    width: int | None = None
    last: bool | None = None

    def features_last(self, shape: tuple[int, ...]) -> bool:
        """Whether the last axis of activations of a shape, batch included, holds the features."""
        if len(shape) < 3:
            return True
        second, last = shape[1] == self.width, shape[-1] == self.width
        if second != last:
            return last
        return len(shape) == 3 if self.last is None else self.last


UNKNOWN = Axes()


def axes_of(part: nn.Module) -> Axes | None:
    """How a module orders its output; None if it says nothing about it."""
    if not isinstance(part, (*CHANNELS_FIRST, *FEATURES_LAST)):
        return None
    width: Any = next((getattr(part, name) for name in WIDTHS if hasattr(part, name)), None)
    if isinstance(part, nn.LayerNorm):
        width = part.normalized_shape[-1]
    elif isinstance(part, nn.RNNBase):
        width = (part.proj_size or part.hidden_size) * (2 if part.bidirectional else 1)
    return Axes(width, isinstance(part, FEATURES_LAST))


class Reading:
    """Reads some layers of a module during a pass over n samples.

    keep: makes the copy of a tensor, whose name in errors it gets, that is kept.

    Attributes:
        watched: Modules by name to call `act` with, after they ran.
        entered: Modules by name to call `act` with, before they run.
        found: By layer its activations, the axes of the last module that has an order, and the mask
            of a layer that has its own.
    """

    def __init__(
        self,
        parts: Mapping[str, nn.Module],
        layers: Sequence[str],
        pooling: Pooling,
        n_samples: int,
        keep: Callable[[Any, str], Any] | None = None,
    ) -> None:
        self._keep = keep or to_array
        self.watched = {name: parts[name] for name in layers if name in parts}
        self.entered = {
            name: parts[name.removesuffix(ENTRANCE)]
            for name in layers
            if name not in parts and name.removesuffix(ENTRANCE) in parts and name != ENTRANCE
        }
        self._wanted = {**self.watched, **self.entered}
        self._ordering: dict[str, Axes] = {}
        if any(isinstance(pooling.of(name), str) for name in self._wanted):
            found = {name: axes_of(part) for name, part in parts.items()}
            self._ordering = {name: axes for name, axes in found.items() if axes is not None}
            self.watched = {**{name: parts[name] for name in self._ordering}, **self.watched}
        self._n_samples = n_samples
        self._axes = UNKNOWN
        self.found: dict[str, tuple[Any, Axes, Any]] = {}

    def act(self, name: str, values: Any) -> None:
        """Keep what entered or left a module."""
        self._axes = self._ordering.get(name, self._axes)
        if name not in self._wanted:
            return
        if name in self.found:
            raise LayerError(
                f"layer {name!r} ran more than once in one forward pass, so it has no single "
                "activation: use a separate module each time, or choose another layer"
            )
        tensor, mask = samples_first(self._wanted[name], values, self._n_samples)
        self.found[name] = self._keep(tensor, f"layer {name!r}"), self._axes, mask


Mark = tuple[int, int, bool]
"""How many numbers, their hash, and whether they are all the same."""


@dataclass
class Trial:
    """A forward pass over n samples that finds the head, module by module without children."""

    leaves: dict[str, nn.Module]
    n_samples: int
    order: list[str] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    came_in: dict[str, Mark | None] = field(default_factory=dict)
    came_out: dict[str, Mark | None] = field(default_factory=dict)
    scores: dict[str, Tensor] = field(default_factory=dict)

    @property
    def entered(self) -> dict[str, nn.Module]:
        return {f"{n}{ENTRANCE}": part for n, part in self.leaves.items() if has_weights(part)}

    def act(self, name: str, values: Any) -> None:
        """Note what enters or leaves a module."""
        if name not in self.leaves:
            place = name.removesuffix(ENTRANCE)
            self.came_in[place] = self._mark(place, values)
            return
        is_whole = self._is_table(values)
        if name in self.order or not is_whole:
            self.unreadable.add(name)
        self.order.append(name)
        self.came_out[name] = self._mark(name, values)
        if is_whole and values.ndim <= 2:
            self.scores[name] = values[:ROWS_TO_COMPARE].detach().clone()

    def _mark(self, place: str, values: Any) -> Mark | None:
        tensor, _ = samples_first(self.leaves[place], values, self.n_samples)
        return mark(tensor) if self._is_table(tensor) else None

    def _is_table(self, value: Any) -> bool:
        """Whether a value is a plain tensor with a row for each sample."""
        is_plain_tensor = isinstance(value, Tensor) and is_plain(value)
        return is_plain_tensor and value.shape[:1] == (self.n_samples,)

    def find(self, scores: Any, raw: Mark | None) -> tuple[str, str] | None:
        """The last hidden layer and the head; None if no module has weights.

        scores: as the module returned them. raw: of the layer "input", None if there is none.
        """
        weighted = [name for name in self.order if has_weights(self.leaves[name])]
        if not weighted:
            return None
        head = self._find_head(dict.fromkeys(weighted), scores)
        # Dropout changes nothing in eval mode: take the layer before it.
        named = [
            name
            for name in self.order[: self.order.index(head)]
            if name not in self.unreadable
            and not isinstance(self.leaves[name], nn.Dropout | nn.Identity)
        ]
        has_rows = head in self.scores or not isinstance(scores, Tensor)
        readable = head not in self.unreadable and has_rows
        return self._find_hidden(head, named, raw), head if readable else "output"

    def _find_head(self, weighted: dict[str, None], scores: Any) -> str:
        if isinstance(scores, Tensor):
            first = scores[:ROWS_TO_COMPARE]
            names = [name for name in reversed(weighted) if name in self.scores]
            alike = [name for name in names if self.scores[name].numel() == first.numel()]
            for same in (torch.equal, _rank_alike):
                for name in alike:
                    if same(self.scores[name].reshape(first.shape), first):
                        return name
        return next(reversed(weighted))

    def _find_hidden(self, head: str, named: list[str], raw: Mark | None) -> str:
        entering = self.came_in.get(head)
        if entering is None or self.order.count(head) > 1:
            return named[-1] if named else "input"
        # Zeros from different modules are alike: then only the module just before may count.
        for name in reversed(named[-1:] if entering[2] else named):
            if self.came_out[name] == entering:
                return name
        return "input" if raw == entering else f"{head}{ENTRANCE}"


def has_weights(part: nn.Module) -> bool:
    return next(part.parameters(), None) is not None


def mark(tensor: Tensor) -> Mark:
    """The numbers of the first samples, whatever their shape, in a few bytes."""
    flat = tensor[:ROWS_TO_MARK].detach().reshape(-1).cpu().contiguous()
    same = bool((flat == flat[:1]).all())
    return flat.numel(), hash(flat.view(torch.uint8).numpy().tobytes()), same


def _rank_alike(values: Tensor, scores: Tensor) -> bool:
    """Whether the columns, or the rows of a single column, are in the same order."""
    axis = -1 if scores.ndim == 2 and scores.shape[1] > 1 else 0
    return torch.equal(values.argsort(dim=axis), scores.argsort(dim=axis))


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is dense and holds real numbers."""
    dense = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_meta
    return dense and not tensor.is_complex() and not tensor.is_quantized


def describe(tensor: Tensor) -> str:
    """A tensor in an error."""
    if tensor.is_nested:
        return "a nested tensor"
    return f"{tensor.dtype}, {tensor.layout}, {tuple(tensor.shape)} on {tensor.device}"


def first_tensor(values: Any) -> Any:
    """The first tensor in what a module takes or returns; what came if there is none.

    A recurrent layer returns its output and then its state, attention its output and then its
    weights, a block of a transformer its hidden states first of all.
    """
    if isinstance(values, Tensor | PackedSequence):
        return values
    if isinstance(values, Mapping):
        parts = list(values.values())
    elif isinstance(values, tuple | list):
        parts = list(values)
    elif is_dataclass(values) and not isinstance(values, type):
        parts = [getattr(values, each.name) for each in fields(values)]
    else:
        return values
    found = map(first_tensor, parts)
    return next((each for each in found if isinstance(each, Tensor | PackedSequence)), values)


def samples_first(part: nn.Module, values: Any, n_samples: int) -> tuple[Any, Any]:
    """The first tensor that a module takes or gives, with samples first; its mask or None.

    Sequences of different lengths, packed for a recurrent layer or nested by torch's encoder, are
    padded with 0; the mask, of shape (n, tokens), says which tokens are theirs. Recurrent and
    attention layers with batch_first=False have time first.
    """
    tensor = first_tensor(values)
    if isinstance(tensor, PackedSequence):
        padded, lengths = pad_packed_sequence(tensor, batch_first=True)
    elif isinstance(tensor, Tensor) and tensor.is_nested:
        padded = tensor.to_padded_tensor(0.0)
        lengths = torch.tensor([len(each) for each in tensor.unbind()])
    else:
        may_be_late = not getattr(part, "batch_first", True) and isinstance(tensor, Tensor)
        late = may_be_late and tensor.ndim == 3 and tensor.shape[1] == n_samples
        return tensor.transpose(0, 1) if late else tensor, None
    return padded, (torch.arange(padded.shape[1]) < lengths[:, None]).numpy()


def to_array(output: Any, what: str) -> Any:
    """A copy of a tensor as an array, which no later in-place operation can change."""
    is_tensor = isinstance(output, Tensor)
    if not is_tensor or not is_plain(output):
        got = describe(output) if is_tensor else type(output).__name__
        raise LayerError(
            f"{what} must be a dense tensor of real numbers; got {got}: choose another layer, or "
            "wrap the module so that it returns one"
        )
    wide = torch.float64 if output.dtype == torch.float64 else torch.float32
    if output.dtype == wide and output.device.type == "cpu":  # numpy copies with less around it
        return output.detach().numpy().copy("K")
    return output.detach().to("cpu", wide, copy=True).numpy()
