"""Forward passes: one at a time through each part of a torch module, in any thread.

To read a module's layers, a pass puts hooks on its parts and sets all of them to eval mode. Both
belong to the module, not to the thread: a second pass would read the first one's layers, and the
first to restore the modes would switch dropout on in the other. So modules that share parts wait
for each other; others run side by side. A forked child finds every part free and restored.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from iknow.locking import fork_waits_for

_turn = threading.Condition(threading.RLock())
_passes: list[_Pass] = []
"""The passes under way, per thread in the order they began; guarded by `_turn`."""

COMPILED = "_compiled_call_impl"


@contextmanager
def forward_pass(
    module: nn.Module,
    watched: Mapping[str, nn.Module],
    act: Callable[[str, Any], None],
    entered: Mapping[str, nn.Module],
) -> Iterator[None]:
    """Exclusive use of a module in eval mode; `act(name, output)` after a watched part runs.

    entered: further parts by name; `act(name, (args, kwargs))` before one of them runs.
    Only runs in this thread count. A pass inside another one of the same thread silences its hooks.
    """
    one = _Pass(module)

    def see(name: str, value: Any) -> None:
        here = [each for each in list(_passes) if each.thread == one.thread]
        if threading.get_ident() == one.thread and here[-1] is one:
            act(name, value)

    try:
        with _turn:
            _turn.wait_for(one.is_free)
            # Frozen TorchScript has no mode. A part compiled by `module.compile()` ignores hooks
            # added later. What changes is recorded before it does.
            training = [part for part in one.parts if getattr(part, "training", False)]
            one.changed += [(part, "training", True) for part in training]
            found = [(part, vars(part).get(COMPILED)) for part in one.parts]
            one.changed += [(part, COMPILED, call) for part, call in found if call is not None]
            _passes.append(one)
        for name, part in entered.items():
            one.handles.append(
                part.register_forward_pre_hook(
                    lambda _, args, kwargs, name=name: see(name, (args, kwargs)), with_kwargs=True
                )
            )
        for name, part in watched.items():
            one.handles.append(
                part.register_forward_hook(lambda _, _given, out, name=name: see(name, out))
            )
        if training:
            module.eval()
        for part in (part for part, name, _ in one.changed if name == COMPILED):
            setattr(part, COMPILED, None)
        yield
    finally:
        with _turn:
            one.undo()
            if one in _passes:  # unless waiting was interrupted
                _passes.remove(one)
            _turn.notify_all()


def copy_at_rest(module: nn.Module) -> nn.Module:
    """A deep copy of a module, made while no pass changes it."""
    with _turn:
        _turn.wait_for(_Pass(module).is_free)
        return copy.deepcopy(module)


class _Pass:
    """A forward pass of this thread: the parts it runs, and what it changes in them."""

    def __init__(self, module: nn.Module) -> None:
        self.thread = threading.get_ident()
        self.parts = list(module.modules())
        self._ids = frozenset(map(id, self.parts))
        self.handles: list[Any] = []
        self.changed: list[tuple[nn.Module, str, Any]] = []

    def is_free(self) -> bool:
        """Whether no other thread runs any of the parts."""
        return all(
            other.thread == self.thread or self._ids.isdisjoint(other._ids) for other in _passes
        )

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
