"""Which code a forward may run, so that tracing it once shows what it always does.

A stand-in for the batch goes through a forward once (`trace`). That shows what the forward does to
every batch only if none of its code writes anything that outlives the call: then each call finds
the same state and takes the same path. (The stand-in itself refuses to say anything about the
batch's values, size or dtype.) So a profiler watches all Python functions that run:

- their code does not assign to attributes, items, globals or outer variables, and has no `try`,
  `with`, `import`, and no `is` except `is None`: an exception or an identity can tell a stand-in
  from a tensor;
- the module attributes that they name, their globals, arguments and outer variables are functions,
  modules or values that never change: a list could be appended to;
- they call only compiled functions that always return the same;
- they compute nothing with parameters and buffers (`OwnTensors`).

Nothing watches other threads and monkey patches, which may change torch or the model.

A forward may neither compute with its own tensors nor read their type: we trace a float64 copy of
the network, where the dtype of a parameter or the sum of two may differ from the original. A
profiler does not see operators and attributes, but a torch function mode, which affects only this
thread, does.
"""

from __future__ import annotations

import builtins
import dis
import gc
import math
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from iknow.errors import LayerError

SAME_IN_A_COPY: Set[Any] = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "ndim")),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.__float__, Tensor.__int__, Tensor.__bool__),
}
"""What a forward may ask of a parameter or a buffer: the float64 copy gives the same answer."""


class OwnTensors(TorchFunctionMode):
    """Calls `note` with what code reads of tensors that are not stand-ins, while `is_on()`."""

    def __init__(
        self, stand_in: type, is_on: Callable[[], bool], note: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._stand_in, self._is_on, self._note = stand_in, is_on, note

    def __torch_function__(
        self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if self._is_on() and self._stand_in not in kinds and function not in SAME_IN_A_COPY:
            # The getter of an attribute is bound to its descriptor.
            name = getattr(getattr(function, "__self__", None), "__name__", function.__name__)
            self._note(f"it reads {name!r} of one of its own tensors")
        return function(*args, **(kwargs or {}))


PURE_BUILTINS: Set[Any] = {
    *(abs, all, any, divmod, iter, len, max, min, next, pow, round, sorted, sum),
    *(value for value in vars(math).values() if callable(value)),
}
PURE_OWNERS = (list, tuple, dict, set, str, int, float, torch.Size)
PURE_TYPES: Set[Any] = {
    *(bool, dict, enumerate, float, int, list, range, reversed, set, slice, str, super, tuple, zip),
}
PLAIN_VALUES = (
    *(bool, int, float, str, bytes, type(None), type(Ellipsis)),
    *(torch.dtype, torch.device, torch.Size),
)
TORCH_CODE = {
    "torch.nn.modules.module": {"_wrapped_call_impl", "_call_impl", "__getattr__"},
    "torch.nn.modules.container": {
        *("forward", "__iter__", "__len__", "__getitem__", "__contains__"),
        *("keys", "values", "items", "_get_abs_string_index", "_get_item_by_idx"),
    },
}
"""The Python functions of torch, besides those that call the stand-in, that a forward may call."""

CALLERS = ("torch.nn.modules.module", "torch.nn.modules.container", "iknow.metrics.torch.")
"""Functions that may call the user's code. Others may set a precision, or compile."""

FORBIDDEN = (
    *("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_SUBSCR", "STORE_SLICE", "DELETE_"),
    *("IMPORT", "WITH", "EXC", "FINALLY", "MATCH", "AWAIT", "ASYNC", "SEND", "BUILD_CLASS"),
)
"""Parts of instruction names, which vary between versions of Python."""
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")


@contextmanager
def watched(network: nn.Module, stand_in: type, answered: Counter[Any]) -> Iterator[None]:
    """Raise, at the end, if the code that ran inside may behave differently another time.

    answered: how often each function of torch called the stand-in, so did not compute anything.
    """
    watch = _Watch(network, stand_in, answered)
    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()  # code that it calls would be mistaken for the network's
    sys.setprofile(watch)
    try:
        with OwnTensors(stand_in, lambda: sys.getprofile() is watch, watch.faults.append):
            yield
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    watch.finish()


@contextmanager
def unwatched() -> Iterator[None]:
    """A block in which the stand-in itself uses torch."""
    watch = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(watch)


class _Watch:
    """A profiler that records what is wrong with the code it sees, and raises only at the end."""

    def __init__(self, network: nn.Module, stand_in: type, answered: Counter[Any]) -> None:
        self._network, self._stand_in, self._answered = network, stand_in, answered
        self._parts = list(network.modules())
        self._asked: Counter[Any] = Counter()
        self._codes: set[tuple[types.CodeType, int]] = set()
        self._names: set[str] = set()
        self.faults: list[str] = []

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            if _is_foreign(frame):
                self._enter(frame)
            elif frame.f_back is not None and _is_foreign(frame.f_back):
                self._enter_library(frame)
        elif event == "c_call" and _is_foreign(frame) and not _is_pure(argument):
            self._asked[argument] += 1

    def finish(self) -> None:
        for function in self._asked - self._answered:
            self.faults.append(f"it calls {_name(function)}")
        for part in self._parts:
            for name in sorted(self._names & vars(part).keys()):
                self._check(vars(part)[name], f"reads {name!r} of {type(part).__name__}")
            for kind in type(part).__mro__:
                if not _is_torch_type(kind):
                    for name in sorted(self._names & vars(kind).keys()):
                        value = vars(kind)[name]
                        if not isinstance(value, property | staticmethod | classmethod):
                            self._check(value, f"reads {name!r} of {kind.__name__}")
        if self.faults:
            raise LayerError(
                f"the code of {type(self._network).__name__} may behave differently another time: "
                f"{self.faults[0]}"
            )

    def _enter(self, frame: types.FrameType) -> None:
        code, caller = frame.f_code, frame.f_back
        if caller is not None and not _is_foreign(caller):
            name = str(caller.f_globals.get("__name__", ""))
            if not name.startswith(CALLERS):
                self._fault(frame, f"is called by {name}")
        outer = {name: frame.f_locals.get(name) for name in code.co_freevars}
        n_arguments = code.co_argcount + code.co_kwonlyargcount
        arguments = {name: frame.f_locals.get(name) for name in code.co_varnames[:n_arguments]}
        for name, value in (outer | arguments).items():
            if not name.startswith("."):  # a comprehension iterates over a value of its caller
                self._check(value, f"{code.co_name} reads {name!r}")
        if (code, id(frame.f_globals)) in self._codes:
            return
        self._codes.add((code, id(frame.f_globals)))
        self._names.update(code.co_names)
        for fault in _faults_of(code):
            self._fault(frame, fault)
        for name in {s.argval for s in dis.get_instructions(code) if s.opname in GLOBALS}:
            missing = name not in frame.f_globals
            value = getattr(builtins, name, None) if missing else frame.f_globals[name]
            self._check(value, f"{code.co_name} reads the global {name!r}")

    def _enter_library(self, frame: types.FrameType) -> None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if _belongs_to(frame.f_globals, "iknow") or _is_farewell(frame):
            return
        functional = module in ("torch.nn.functional", "torch._jit_internal") and any(
            isinstance(value, self._stand_in)
            for local in frame.f_locals.values()
            for value in (local if isinstance(local, tuple) else (local,))
        )
        if name not in TORCH_CODE.get(module, ()) and not functional:
            assert frame.f_back is not None
            self._fault(frame.f_back, f"calls {module}.{name}")

    def _check(self, value: Any, what: str) -> None:
        if not self._never_changes(value):
            self.faults.append(f"{what}, a {type(value).__name__} that could change")

    def _never_changes(self, value: Any) -> bool:
        kind = type(value)
        if kind in (tuple, frozenset):
            return all(map(self._never_changes, value))
        if kind in PLAIN_VALUES or kind is self._stand_in:
            return True
        if isinstance(value, types.ModuleType):
            return value is math or _belongs_to(vars(value), "torch")
        if isinstance(value, types.MethodType):
            return self._never_changes(value.__self__) and self._never_changes(value.__func__)
        if isinstance(value, types.FunctionType):  # its code is checked if it runs
            return _belongs_to(value.__globals__, "torch") or not vars(value)
        if isinstance(value, type):
            is_error = issubclass(value, Exception) and value.__module__ == "builtins"
            mine = any(value in type(part).__mro__ for part in self._parts)
            return value in PURE_TYPES or is_error or mine
        if isinstance(value, types.BuiltinFunctionType):  # recorded if it is called
            owner = value.__self__
            return owner is None or isinstance(owner, types.ModuleType | type)
        # Parameters and buffers are compared afterwards. Nothing compares other tensors, or modules
        # outside the network.
        return any(value is part for part in self._parts)

    def _fault(self, frame: types.FrameType, what: str) -> None:
        code = frame.f_code
        self.faults.append(f"{code.co_name} (line {code.co_firstlineno}) {what}")


def _is_pure(function: Any) -> bool:
    if isinstance(function, types.BuiltinMethodType) and type(function.__self__) in PURE_OWNERS:
        return True
    return any(function is pure for pure in PURE_BUILTINS)


def _faults_of(code: types.CodeType) -> Iterator[str]:
    """Instructions of a function that could write, or tell a stand-in from a tensor."""
    before = None
    for step in dis.get_instructions(code):
        if any(part in step.opname for part in FORBIDDEN):
            yield f"has the instruction {step.opname} ({step.argval})"
        if step.opname == "STORE_DEREF" and step.argval in code.co_freevars:
            yield f"assigns to the outer variable {step.argval!r}"
        if step.opname == "IS_OP" and (
            before is None or before.opname != "LOAD_CONST" or before.argval is not None
        ):
            yield "compares by `is`"
        before = step
    for name in code.co_names:
        if name.startswith("__") and name not in ("__init__", "__name__"):
            yield f"uses {name}"


def _is_farewell(frame: types.FrameType) -> bool:
    """Whether this is torch's callback for a dead weak reference, which runs without a caller.

    torch.compile keeps such references once it has been used.
    """
    code = frame.f_code
    values = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
    return (
        _belongs_to(frame.f_globals, "torch")
        and len(values) == 1
        and type(values[0]) is weakref.ref
        and values[0]() is None
    )


def _is_foreign(frame: types.FrameType) -> bool:
    """Whether code is the user's; standard library code that torch calls counts as torch's."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    library = package in ("torch", "iknow") or package in sys.stdlib_module_names
    return not (library and _belongs_to(frame.f_globals, package))


def _belongs_to(namespace: dict[str, Any], package: str) -> bool:
    """Whether a namespace is that of a package's module, not of one that borrows its name."""
    name = str(namespace.get("__name__", ""))
    if package == "iknow" and not name.startswith("iknow.metrics.torch."):
        return False
    is_named = name.partition(".")[0] == package and name != "__main__"
    return is_named and getattr(sys.modules.get(name), "__dict__", None) is namespace


def _is_torch_type(kind: type) -> bool:
    """Whether a class belongs to torch or Python, not to the user."""
    home = sys.modules.get(kind.__module__)
    genuine = getattr(home, kind.__qualname__, None) is kind
    return genuine and kind.__module__.partition(".")[0] in ("torch", "builtins", "abc", "typing")


def _name(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    place = getattr(function, "__module__", None) or getattr(type(owner), "__name__", "")
    return f"{place}.{getattr(function, '__qualname__', function)}"
