"""The parts of a network: known modules, code to follow, and what we refuse outright.

A module computes what its type says only if nothing overrides it: a subclass with its own method,
a hook, an attribute on the instance that hides a method, a mode that `eval()` does not change. A
subclass counts as its base only if it defines nothing but how it is built.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrizations, parametrize

from iknow.errors import LayerError
from iknow.metrics.torch.layers import KNOWN

HARMLESS = {
    *("__init__", "extra_repr", "__repr__", "__doc__", "__module__", "__qualname__", "__dict__"),
    *("__weakref__", "__annotations__", "__annotate__", "__annotate_func__", "__constants__"),
    *("__annotations_cache__", "__firstlineno__", "__static_attributes__", "__orig_bases__"),
    *("__parameters__", "__abstractmethods__", "_abc_impl", "_version", "reset_parameters"),
    *("state_dict", "load_state_dict", "_save_to_state_dict", "_load_from_state_dict"),
    *("get_extra_state", "set_extra_state", "__str__", "__slotnames__"),
}
"""What a subclass may define without changing what it computes."""

ALSO_DECISIVE = {"__deepcopy__", "__copy__", "__getattr__", "__class__", "__torch_function__"}
PLAIN_TENSORS = (Tensor, nn.Parameter, getattr(nn, "Buffer", nn.Parameter))
OWN_HOOKS = "iknow.metrics.torch.passes"  # they only read, perhaps in another thread
PARAMETRIZATIONS = {
    getattr(parametrizations, name, None) for name in ("_WeightNorm", "_SpectralNorm")
}


def known_type(part: nn.Module) -> type[nn.Module] | None:
    """The known type of a module: its own, or a base to which it adds nothing."""
    for base in type(part).__mro__:
        if base in KNOWN:
            return base if _adds_nothing(type(part), base, _parametrized(part)) else None
    return None


def is_opaque(part: nn.Module) -> bool:
    """Whether a module is one of torch's own, except containers: its code is not followed."""
    holders = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
    return _is_of_torch(type(part)) and type(part) not in holders


def check_parts(network: nn.Module) -> None:
    """Refuse, by name, parts that may not do what their type or their code says."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        raise LayerError("torch has global hooks on all modules, which may change values")
    if isinstance(network, torch.jit.ScriptModule):
        raise LayerError("a ScriptModule has no code to follow: certify the original module")
    for name, part in network.named_modules(remove_duplicate=False):
        what = f"{name!r} ({type(part).__name__})" if name else type(part).__name__
        for fault in (_find_override(part), _find_hook(part), _find_odd_tensor(part)):
            if fault is not None:
                raise LayerError(f"{what} {fault}")


def check_mode(network: nn.Module) -> None:
    """Refuse parts that stay in training mode after `eval()`."""
    for name, part in network.named_modules():
        if part.training is not False:
            raise LayerError(f"{name!r} ({type(part).__name__}) stays in training mode")


def check_parametrizations(network: nn.Module) -> None:
    """Refuse weights that each pass computes again: their rounding is unknown."""
    for name, part in network.named_modules():
        if parametrize.is_parametrized(part):
            raise LayerError(
                f"{name!r} computes its weight in each pass, with unknown rounding: make it plain "
                "with torch.nn.utils.parametrize.remove_parametrizations"
            )


def _parametrized(part: nn.Module) -> set[str]:
    """Tensors that torch's own parametrizations compute."""
    if not parametrize.is_parametrized(part):
        return set()
    lists: Any = part.parametrizations
    return {name for name, steps in lists.items() if {*map(type, steps)} <= PARAMETRIZATIONS}


def _adds_nothing(kind: type, base: type, computed: set[str]) -> bool:
    strangers = [between for between in kind.__mro__ if between not in base.__mro__]
    made_by_torch = {"__getstate__", "__deepcopy__", *computed} if computed else set()
    return all(vars(stranger).keys() <= HARMLESS | made_by_torch for stranger in strangers)


def _find_override(part: nn.Module) -> str | None:
    """What a class or an instance overrides in nn.Module, besides forward."""
    base = known_type(part)
    if base is None and is_opaque(part):
        return None  # it is not followed
    if type(type(part)) is not type:
        return f"has its own metaclass, {type(type(part)).__name__}"
    near = next((kind for kind in type(part).__mro__ if kind in KNOWN), None)
    if base is None and near is not None:
        return f"has no known bound: it is a {near.__name__} with its own code"
    own = base or nn.Module
    for name in vars(part):
        if callable(getattr(own, name, None)):
            return f"has its own {name} on the instance: define it in the class"
    if base is not None:
        return None
    for kind in type(part).__mro__:
        if _is_of_torch(kind) or kind is object:
            continue
        if "forward" in vars(kind) and not _is_plain_function(vars(kind)["forward"]):
            return "has a forward that is not a plain function: what wraps it is unknown"
        for name in vars(kind).keys() - HARMLESS - {"forward"}:
            if hasattr(nn.Module, name) or name in ALSO_DECISIVE:
                return f"overrides {name}, so what it computes is unknown"
    return None


def _is_plain_function(value: Any) -> bool:
    """Whether a function is the user's own, not the product of a library's decorator."""
    if not isinstance(value, types.FunctionType):
        return False
    package = str(value.__globals__.get("__name__", "")).partition(".")[0]
    library = package == "torch" or (package in sys.stdlib_module_names and package != "__main__")
    return not library or value is nn.Sequential.forward


def _is_of_torch(kind: type) -> bool:
    """Whether a class is torch's, not one that borrows the name of its module."""
    genuine = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
    return genuine and kind.__module__.partition(".")[0] == "torch"


def _find_hook(part: nn.Module) -> str | None:
    hooks = [*part._forward_hooks.values(), *part._forward_pre_hooks.values()]
    if not all(getattr(hook, "__module__", "") == OWN_HOOKS for hook in hooks):
        return "has a hook, which may change values"
    if getattr(part, "_compiled_call_impl", None) is not None:
        return "is compiled: what runs in its place is unknown"
    return None


def _find_odd_tensor(part: nn.Module) -> str | None:
    if known_type(part) is None and is_opaque(part):
        return None
    for name, tensor in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)):
        plain = type(tensor) in PLAIN_TENSORS and tensor.layout == torch.strided
        if not plain or tensor.is_quantized or tensor.is_complex():
            return f"has {name!r}, a {type(tensor).__name__} that is not a plain real tensor"
    return None
