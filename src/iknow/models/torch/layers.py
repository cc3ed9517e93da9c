"""The layers of a torch module: which there are, what hooks see of them in one forward pass, which
are the last hidden layer and the head, and how one pass at a time goes through each part, in any
thread.

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

To read a module's layers, a pass puts hooks on its parts and sets all of them to eval mode. Both
belong to the module, not to the thread. So modules that share parts wait for each other; others run
side by side. A forked child finds every part free and restored.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from iknow.errors import LayerError
from iknow.locking import fork_waits_for
from iknow.models.network import (
    ENTRANCE,
    INPUT,
    OUTPUT,
    Pooling,
    find_moments,
    outputs_of,
    without_moments,
)
from iknow.models.stages import some_stages, stages_by_resolution

CHANNELS_FIRST = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)
FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, nn.EmbeddingBag, nn.RNNBase)
WIDTHS = ("out_channels", "num_features", "num_channels", "out_features", "embedding_dim")
ROWS_TO_MARK = 4
ROWS_TO_COMPARE = 32
COMPILED = "_compiled_call_impl"
_turn = threading.Condition(threading.RLock())
_passes: list[_Pass] = []
"""The passes under way, in all threads; guarded by `_turn`."""
_here = threading.local()
"""Of each thread, in `last`: its pass that began last."""


def readable_parts(parts: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """The modules inside a module, of all its `parts` by name: TorchScript takes no hooks."""
    script = torch.jit.ScriptModule
    return {name: part for name, part in parts.items() if name and not isinstance(part, script)}


def features_last(part: Any, shape: Sequence[int]) -> bool:
    """Whether the last of three or more axes of activations, (n, ...), holds the features.

    part: the last module that ran and has an order of axes; None if none has.
    """
    width: Any = next((getattr(part, name) for name in WIDTHS if hasattr(part, name)), None)
    if isinstance(part, nn.LayerNorm):
        width = part.normalized_shape[-1]
    elif isinstance(part, nn.RNNBase):
        width = (part.proj_size or part.hidden_size) * (2 if part.bidirectional else 1)
    second, last = bool(shape[1] == width), bool(shape[-1] == width)
    if second != last:
        return last
    return len(shape) == 3 if part is None else isinstance(part, FEATURES_LAST)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is dense and holds real numbers."""
    dense = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_meta
    return dense and not tensor.is_complex() and not tensor.is_quantized


def describe(value: Any) -> str:
    """A tensor, or what came in its place, in an error."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    if value.is_nested:
        return "a nested tensor"
    return f"{value.dtype}, {value.layout}, {tuple(value.shape)} on {value.device}"


def to_array(values: Any, what: str) -> Any:
    """A copy of a tensor as an array, which no later in-place operation can change."""
    if not isinstance(values, Tensor) or not is_plain(values):
        raise LayerError(
            f"{what} must be a dense tensor of real numbers; got {describe(values)}: choose "
            "another layer, or wrap the module so that it returns one"
        )
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    if values.dtype == wide and values.device.type == "cpu":  # numpy copies with less around it
        return values.detach().numpy().copy("K")
    return values.detach().to("cpu", wide, copy=True).numpy()


def first_tensor(values: Any) -> Any:
    """The first tensor in what a module takes or returns; what came if there is none.

    A recurrent layer returns its output and then its state, attention its output and then its
    weights, a block of a transformer its hidden states first of all.
    """
    if isinstance(values, Tensor | PackedSequence):
        return values
    several = isinstance(values, Mapping | tuple | list) or is_dataclass(values)
    found = map(first_tensor, outputs_of(values).values() if several else ())
    return next((each for each in found if isinstance(each, Tensor | PackedSequence)), values)


def samples_first(part: nn.Module, values: Any, n_samples: int) -> tuple[Any, Any]:
    """The first tensor that a module takes or gives, with samples first; its mask or None.

    Sequences of different lengths, packed for a recurrent layer or nested by torch's encoder, are
    padded with 0; the mask, of shape (n, tokens), says which tokens are theirs. Recurrent and
    attention layers with batch_first=False have time first.
    """
    tensor = values if isinstance(values, Tensor) else first_tensor(values)
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


class WatchedParts(dict[str, nn.Module]):
    """The parts that some layers are read from, by layer; settled until a module has other parts.

    parts: all of them, the module itself first. A pass tells what parts in `watched` return, among
    them those in `ordered`, which have an order of axes, and what enters those in `entered`.
    """

    def __init__(
        self, parts: Mapping[str, nn.Module], layers: Sequence[str], pooling: Pooling
    ) -> None:
        readable, asked = readable_parts(parts), layers
        layers = list(dict.fromkeys(without_moments(layer, readable) for layer in layers))
        # Pictures are pooled where they are: a batch of large ones would fill the memory.
        self._pooled = [name for name in layers if name not in asked]
        left = {name: readable[name] for name in layers if name in readable}
        outer = {name: name.removesuffix(ENTRANCE) for name in layers if name not in readable}
        self.entered = {name: readable[part] for name, part in outer.items() if part in readable}
        super().__init__(left | self.entered)
        self.parts, self.ordered = parts, dict[str, nn.Module]()
        if self._pooled or any(isinstance(pooling.of(name), str) for name in self):
            kinds = (*CHANNELS_FIRST, *FEATURES_LAST)
            self.ordered = {n: part for n, part in readable.items() if isinstance(part, kinds)}
        self.watched = self.ordered | left

    def reader(
        self, n_samples: int, keep: Callable[[Any, str], Any] = to_array
    ) -> tuple[Callable[[str, Any], None], dict[str, tuple[Any, nn.Module | None, Any]]]:
        """What a pass over n samples calls, and what that finds: by layer its activations, the last
        module before it that has an order of axes, and the mask of a layer with its own.

        keep: makes the copy of a tensor, whose name in errors it gets, that is kept.
        """
        last: nn.Module | None = None
        found: dict[str, tuple[Any, nn.Module | None, Any]] = {}

        def act(name: str, values: Any) -> None:
            nonlocal last
            last = self.ordered.get(name, last)
            if name not in self:
                return
            if name in found:
                raise LayerError(
                    f"layer {name!r} ran more than once in one forward pass, so it has no single "
                    "activation: use a separate module each time, or choose another layer"
                )
            tensor, mask = samples_first(self[name], values, n_samples)
            if name in self._pooled and isinstance(tensor, Tensor) and tensor.ndim > 3:
                tensor = find_moments(tensor, features_last=features_last(last, tensor.shape))
            found[name] = keep(tensor, f"layer {name!r}"), last, mask

        return act, found


def mark(tensor: Tensor) -> tuple[int, int, bool]:
    """How many numbers the first samples hold, whatever their shape, their hash, and whether all
    are the same.
    """
    flat = tensor[:ROWS_TO_MARK].detach().reshape(-1).cpu().contiguous()
    same = bool((flat == flat[:1]).all())
    return flat.numel(), hash(flat.view(torch.uint8).numpy().tobytes()), same


class Trial:
    """Finds the head in a pass over n samples, among the modules without children.

    raw: the layer "input", before the pass, which may overwrite it; None if there is none.
    """

    def __init__(self, parts: Mapping[str, nn.Module], n_samples: int, raw: Tensor | None) -> None:
        self.parts, self._n_samples = parts, n_samples
        self._raw = None if raw is None else mark(raw)
        self.watched = readable_parts(parts)
        leaves = {name: part for name, part in self.watched.items() if not list(part.children())}
        self._leaves, self._shapes = leaves, list[tuple[str, tuple[int, ...]]]()
        weighted = (name for name, part in leaves.items() if list(part.parameters()))
        self.entered = {f"{name}{ENTRANCE}": parts[name] for name in weighted}
        self._order: list[str] = []
        self._marks: dict[str, tuple[int, int, bool]] = {}
        self._tables: dict[str, Tensor] = {}

    def act(self, name: str, values: Any) -> None:
        enters = name in self.entered
        part = self.entered[name] if enters else self.watched[name]
        tensor, mask = samples_first(part, values, self._n_samples)
        is_whole = isinstance(tensor, Tensor) and is_plain(tensor) and mask is None
        if not enters and is_whole and tensor.ndim > 2 and len(tensor) == self._n_samples:
            self._shapes.append((name, tuple(tensor.shape[1:])))
        if not enters and name not in self._leaves:
            return
        seen = tensor if enters else values
        if not enters:
            self._order.append(name)
        if isinstance(seen, Tensor) and is_plain(seen) and seen.shape[:1] == (self._n_samples,):
            self._marks[name] = mark(tensor)
            if not enters and values.ndim <= 2:
                self._tables[name] = values[:ROWS_TO_COMPARE].detach().clone()

    def find(self, scores: Any) -> tuple[str, str]:
        """The last hidden layer and the head of a module that returned these scores; input and
        output if no part of it has weights.
        """
        weighted = dict.fromkeys(n for n in self._order if f"{n}{ENTRANCE}" in self.entered)
        if not weighted:
            return INPUT, OUTPUT
        head = self._find_head(weighted, scores)
        readable = {name for name in self._marks if self._order.count(name) == 1}
        has_rows = head in self._tables or not isinstance(scores, Tensor)
        shown = head if has_rows and head in readable else OUTPUT
        # Dropout changes nothing in eval mode: take the layer before it.
        idle = (nn.Dropout, nn.Identity)
        before = self._order[: self._order.index(head)]
        named = [n for n in before if n in readable and not isinstance(self.watched[n], idle)]
        entrance = f"{head}{ENTRANCE}"
        entering = self._marks.get(entrance)
        if entering is None or self._order.count(head) > 1:
            return (named or [INPUT])[-1], shown
        # Zeros from different modules are alike: then only the module just before may count.
        for name in reversed(named[-1:] if entering[2] else named):
            if self._marks[name] == entering:
                return name, shown
        return (INPUT if self._raw == entering else entrance), shown

    def find_stages(self) -> list[str]:
        """The parts that end the middle stages of a deep network, at most `MOST_STAGES`.

        Of a network for pictures those before each change of resolution; the last stage ends where
        the last hidden layer begins. Of blocks that keep the shape, as in a transformer, a few.
        """
        times = Counter(name for name, _ in self._shapes)
        shapes = {name: shape for name, shape in self._shapes if times[name] == 1}
        pictures = [name for name, shape in shapes.items() if len(shape) > 2]
        blocks = defaultdict[Any, list[str]](list)
        for name, shape in shapes.items():
            if len(shape) == 2 and name not in self._leaves:
                blocks[type(self.watched[name]), shape].append(name)
        most = max(map(len, blocks.values()), default=0)
        if most > 1:  # of blocks inside blocks the outermost
            alike = (each for each in blocks.values() if len(each) == most)
            outermost = max(alike, key=lambda each: len(list(self.watched[each[0]].modules())))
            stages = outermost[:-1]
        else:
            sizes: dict[str, tuple[int, ...]] = {}  # the outermost part that returns one comes last
            if not any(isinstance(part, CHANNELS_FIRST) for part in self._leaves.values()):
                return []  # such as a single block over tokens
            for name in pictures or shapes:
                c, *size = shapes[name]
                sizes[name] = (c, size[0]) if size[:1] == [c] else tuple(size)
            stages = stages_by_resolution(sizes)
        return some_stages(stages)

    def _find_head(self, weighted: dict[str, None], scores: Any) -> str:
        if isinstance(scores, Tensor):
            first, known = scores[:ROWS_TO_COMPARE], self._tables
            tables = {name: known[name] for name in reversed(weighted) if name in known}
            for same in (torch.equal, _rank_alike):
                for name, table in tables.items():
                    if table.numel() == first.numel() and same(table.reshape(first.shape), first):
                        return name
        return next(reversed(weighted))


def _rank_alike(values: Tensor, scores: Tensor) -> bool:
    """Whether the columns, or the rows of a single column, are in the same order."""
    axis = -1 if scores.ndim == 2 and scores.shape[1] > 1 else 0
    return torch.equal(values.argsort(dim=axis), scores.argsort(dim=axis))


@contextmanager
def forward_pass(
    module: nn.Module, watch: WatchedParts | Trial, act: Callable[[str, Any], None]
) -> Iterator[None]:
    """Exclusive use of a module in eval mode; `act(name, output)` after a watched part runs, and
    `act(name, (args, kwargs))` before an entered one does.

    Only runs in this thread count. A pass inside another one of the same thread silences its hooks.
    """
    one, outer = _Pass(watch.parts.values()), getattr(_here, "last", None)
    try:
        with _turn:
            if _passes:
                _turn.wait_for(one.is_free)
            _passes.append(one)
            # Frozen TorchScript has no mode. A part compiled by `module.compile()` ignores hooks
            # added later. What changes is recorded before it does.
            trains = False
            for part in one.parts:
                if getattr(part, "training", False):
                    trains = True
                    one.changed.append((part, "training", True))
                if (call := vars(part).get(COMPILED)) is not None:
                    one.changed.append((part, COMPILED, call))
                    setattr(part, COMPILED, None)
        _here.last = one
        for name, part in (*watch.watched.items(), *watch.entered.items()):

            def see(_part: Any, given: Any, last: Any, name: str = name) -> None:
                if getattr(_here, "last", None) is one:
                    act(name, (given, last) if name in watch.entered else last)

            if name in watch.entered:
                one.handles.append(part.register_forward_pre_hook(see, with_kwargs=True))
            else:
                one.handles.append(part.register_forward_hook(see))
        if trains:
            module.eval()
        yield
    finally:
        _here.last = outer
        with _turn:
            one.undo()
            if one in _passes:  # unless waiting was interrupted
                _passes.remove(one)
            _turn.notify_all()


def copy_at_rest(module: nn.Module) -> nn.Module:
    """A deep copy of a module, made while no pass changes it."""
    with _turn:
        _turn.wait_for(_Pass([*module.modules()]).is_free)
        return copy.deepcopy(module)


@dataclass(eq=False)
class _Pass:
    """A forward pass of this thread: the parts it runs, and what it changes in them."""

    parts: Collection[nn.Module]
    thread: int = field(default_factory=threading.get_ident)
    handles: list[Any] = field(default_factory=list)
    changed: list[tuple[nn.Module, str, Any]] = field(default_factory=list)

    def is_free(self) -> bool:
        """Whether no other thread runs any of the parts."""
        busy = {id(part) for one in _passes if one.thread != self.thread for part in one.parts}
        return busy.isdisjoint(map(id, self.parts))

    def undo(self) -> None:
        for handle in self.handles:
            handle.remove()
        for part, name, value in self.changed:
            setattr(part, name, value)


def _after_fork_in_child() -> None:
    """Undo the passes of threads that do not exist in the child."""
    for one in [one for one in _passes if one.thread != threading.get_ident()]:
        _passes.remove(one)
        one.undo()


fork_waits_for(_turn)
if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
