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
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from iknow.locking import fork_waits_for
from iknow.models.torch.layers import Trial, Watch

_turn = threading.Condition(threading.RLock())
_passes: list[_Pass] = []
"""The passes under way, in all threads; guarded by `_turn`."""
_here = threading.local()
"""Of each thread, in `last`: its pass that began last."""

COMPILED = "_compiled_call_impl"


@contextmanager
def forward_pass(
    module: nn.Module, watch: Watch | Trial, act: Callable[[str, Any], None]
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
