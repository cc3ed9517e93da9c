"""Default layers of a torch module: the vector that its head gets, and the head.

The head is the module with weights whose output is the scores; if none is, the one whose output
ranks the classes alike, as before a softmax; if none does, the last that runs. What enters it is
the last hidden layer. If an earlier module returned these very numbers, the layer has the name of
that module; after code without a name, such as the sum in a residual block or a mean over tokens,
it is "HEAD.input".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from iknow.models.torch.reading import ENTRANCE, samples_first
from iknow.models.torch.tensors import first_tensor, is_plain

ROWS_TO_MARK = 4
ROWS_TO_COMPARE = 32

Mark = tuple[int, int, bool]
"""How many numbers, their hash, and whether they are all the same."""


@dataclass
class Run:
    """A forward pass over n samples, module by module without children."""

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
            self.came_in[place] = self._mark(self.leaves[place], values)
            return
        is_whole = isinstance(values, Tensor) and values.shape[:1] == (self.n_samples,)
        if name in self.order or not is_whole:
            self.unreadable.add(name)
        self.order.append(name)
        self.came_out[name] = self._mark(self.leaves[name], values)
        if is_whole and values.ndim <= 2:
            self.scores[name] = values[:ROWS_TO_COMPARE].detach().clone()

    def _mark(self, part: nn.Module, values: Any) -> Mark | None:
        """The numbers of a tensor with a row per sample, in a few bytes; None for any other."""
        tensor = samples_first(part, first_tensor(values), self.n_samples)
        return mark(tensor) if tensor_of(tensor, self.n_samples) else None

    def find(self, scores: Any, raw: Mark | None) -> tuple[str, str] | None:
        """The last hidden layer and the head; None if no module has weights.

        scores: as the module returned them. raw: of the layer "input", None if there is none.
        """
        weighted = [name for name in self.order if has_weights(self.leaves[name])]
        if not weighted:
            return None
        head = self._find_head(dict.fromkeys(weighted), scores)
        before = self.order[: self.order.index(head)]
        # Dropout changes nothing in eval mode: take the layer before it.
        named = [
            name
            for name in before
            if name not in self.unreadable
            and not isinstance(self.leaves[name], nn.Dropout | nn.Identity)
        ]
        return self._find_hidden(head, named, raw), self._name_output(head, scores)

    def _find_head(self, weighted: dict[str, None], scores: Any) -> str:
        names = [name for name in reversed(weighted) if name in self.scores]
        if isinstance(scores, Tensor):
            first = scores[:ROWS_TO_COMPARE]
            alike = [name for name in names if self.scores[name].numel() == first.numel()]
            for same in (_are_equal, _rank_alike):
                for name in alike:
                    if same(self.scores[name], first):
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

    def _name_output(self, head: str, scores: Any) -> str:
        """The name of the head's output, unless that is no row of scores for each sample."""
        is_table = head in self.scores or not isinstance(scores, Tensor)
        return head if head not in self.unreadable and is_table else "output"


def has_weights(part: nn.Module) -> bool:
    return next(part.parameters(), None) is not None


def mark(tensor: Tensor) -> Mark:
    """The numbers of the first samples, whatever their shape, in a few bytes."""
    flat = tensor[:ROWS_TO_MARK].detach().reshape(-1).cpu().contiguous()
    same = bool((flat == flat[:1]).all())
    return flat.numel(), hash(flat.view(torch.uint8).numpy().tobytes()), same


def tensor_of(value: Any, n_samples: int) -> bool:
    """Whether a value is a tensor with a row for each of n samples."""
    return isinstance(value, Tensor) and is_plain(value) and value.shape[:1] == (n_samples,)


def _are_equal(table: Tensor, scores: Tensor) -> bool:
    return torch.equal(table.reshape(scores.shape), scores)


def _rank_alike(table: Tensor, scores: Tensor) -> bool:
    """Whether the columns, or the rows of a single column, are in the same order."""
    values = table.reshape(scores.shape)
    axis = -1 if scores.ndim == 2 and scores.shape[1] > 1 else 0
    return torch.equal(values.argsort(dim=axis), scores.argsort(dim=axis))
