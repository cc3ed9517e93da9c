"""The graph of a torch.export program: what can be read in it, and what batches it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import fx

from iknow.errors import InputError
from iknow.models.torch.tensors import first_tensor

CALLS = ("call_function", "call_method", "call_module")
UNBOUNDED = 1 << 40  # more samples than any batch holds


class Reader(fx.Interpreter):
    """Runs a graph and keeps the results of some nodes."""

    def __init__(self, module: fx.GraphModule, wanted: Iterable[str]) -> None:
        super().__init__(module)
        self._wanted = set(wanted)
        self.found: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self._wanted:
            self.found[n.name] = first_tensor(value).clone()  # something may overwrite it later
        return value


def check_at_rest(program: Any, nodes: Iterable[fx.Node]) -> None:
    """Refuse a program in training mode, and one that writes to its own buffers."""
    written = list(program.graph_signature.buffers_to_mutate.values())
    for node in nodes:
        arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
        by_name = {each.name: value for each, value in zip(arguments, node.args, strict=False)}
        if by_name.get("train") is True or by_name.get("training") is True:
            raise InputError(
                f"the program was exported in training mode ({node.name}), so its answers depend "
                "on chance or on the batch: export module.eval()"
            )
        first = node.args[0] if node.args else None
        is_own = isinstance(first, fx.Node) and first.op == "get_attr"
        if is_own and operation(node).endswith("_"):
            written.append(str(first))
    if written:
        raise InputError(
            f"the program writes to its buffer {written[0]!r}, so its answers may depend on those "
            "before: export module.eval(), or a module without a memory"
        )


def gives_tensor(node: fx.Node) -> bool:
    return node.op in CALLS and hasattr(node.meta.get("val"), "dtype")


def operation(node: fx.Node) -> str:
    """The name of an operation without its package and variant, such as "linear"."""
    return str(node.target).removeprefix("aten.").partition(".")[0]


def batch_sizes(nodes: Iterable[fx.Node], ranges: Mapping[Any, Any]) -> tuple[int, int | None]:
    """The smallest and the largest number of samples that a program takes; None for any."""
    smallest, largest = 1, None
    for node in nodes:
        shape = getattr(node.meta.get("val"), "shape", ())
        if node.op != "placeholder" or not shape:
            continue
        if isinstance(shape[0], int):
            return shape[0], shape[0]
        bounds = ranges.get(shape[0].node.expr)
        if bounds is not None:
            smallest = max(smallest, int(bounds.lower))
            upper = int(bounds.upper) if bounds.upper < UNBOUNDED else None
            largest = upper if largest is None else min(largest, upper or largest)
    if largest is not None and largest < 1:
        raise InputError("the exported program takes no samples at all")
    return smallest, largest
