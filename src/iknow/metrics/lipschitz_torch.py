"""What a torch module does to distances: how far apart two inputs can end up in each layer.

`torch.export` writes down what the module does, as a graph of ATen operations (`lipschitz_aten`)
over which `lipschitz` propagates. The graph speaks for every batch and every call only if

- the code changes nothing that outlives the call: torch warns of all such effects, and any warning
  is an error;
- the graph for any number of samples and that for one alone are the same, and no operation mixes
  samples, uses their number, or changes a parameter, a buffer or the input;
- nothing that torch does not follow runs instead: hooks, compiled code, tensors of other types, or
  code that looks at values when torch does not follow: the forward must also run without values;
- what the module really computes agrees: random inputs go through a float64 copy, which must keep
  its state, and `sensitivities` sends real inputs through the module in its own dtype, in batches
  of several sizes and more than once. The results must match those of the graph in float64, up to
  rounding.

What a forward reads from elsewhere (globals, settings, the environment) counts as it is now. Code
that runs only outside compilation (`torch.compiler.is_compiling()`) and computes otherwise without
looking at a value is seen only where these inputs reach it.
"""

from __future__ import annotations

import copy
import logging
import math
import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import _trace
from torch.nn.modules import module as torch_module

from iknow.core.robustness import Sensitivity
from iknow.errors import LayerError
from iknow.locking import fork_waits_for
from iknow.metrics import lipschitz_aten as aten
from iknow.metrics.lipschitz import Node, propagate
from iknow.metrics.lipschitz_aten import Arithmetic, Shape, TensorCall

ROWS = 8
MANY = 11  # samples of an example batch: a number that no axis of a sample is likely to have
OLDEST_TORCH = (2, 13)  # whose export was attacked; it warns of all effects of a forward
HARMLESS = (FutureWarning, DeprecationWarning, ResourceWarning)
RUNNERS = ("OptimizedModule", "DataParallel", "DistributedDataParallel")
SUMS = ("add.Tensor", "sub.Tensor")
PLAIN = (bool, int, float, complex, str, bytes, set, frozenset, range)
ENTRANCE = ".input"
OWN_HOOKS = "iknow.models.torch.layers"  # they only read, perhaps in another thread
PLAIN_TENSORS = (Tensor, nn.Parameter, getattr(nn, "Buffer", nn.Parameter))
_exporting = threading.RLock()  # filters of warnings and torch's tracer belong to the process
fork_waits_for(_exporting)
_seen: ContextVar[dict[str, list[Tensor]]] = ContextVar("_seen")


@torch.library.custom_op("iknow::mark", mutates_args=())
def mark(value: Tensor, layer: str) -> None:
    """Names a value: a node of an exported graph, or, in an ordinary pass, an entry of `_seen`."""
    _seen.get({}).setdefault(layer, []).append(value.clone())


mark.register_fake(lambda value, layer: None)
torch.fx.node.has_side_effect(torch.ops.iknow.mark.default)


def sensitivities(
    module: nn.Module,
    input_shape: Sequence[int],
    layers: Sequence[str],
    probe: Any = None,
    adapter: Callable[[nn.Module], Any] | None = None,
) -> dict[str, Sensitivity]:
    """How far the named layers, as `TorchModel` computes and iknow stores them, can move.

    Only operations that these layers depend on must be known. Rounding covers the cast of the input
    to the module's dtype, each operation in it, in any order of summation, and the cast of the
    result to float32, for inputs of a length up to 1e15 and for torch's current settings.

    input_shape: of one sample. layers: as `TorchModel` names them; "input" is always known. probe:
    some real inputs of shape (n, *input_shape), on which adapter, `TorchModel`, runs the module:
    its activations must match the graph's, up to rounding.
    """
    with torch.inference_mode(False), torch.no_grad():
        if list(layers) == ["input"] and "input" not in dict(module.named_modules()):
            # Whatever the module is, `TorchModel` only casts the input to its dtype.
            arithmetic, shape = Arithmetic(aten.input_dtype(module)), tuple(input_shape)
            (bound,) = propagate([input_node(shape, arithmetic)], aten.run_norm).values()
            return {"input": bound.sensitivity(arithmetic.of_storing(math.prod(shape)))}
        graph = read_graph(module, tuple(input_shape), layers)
        found, bounds = propagate(graph.at_zero, aten.run_norm), {}
        for name in layers:
            node = graph.layers[name]
            stored = graph.arithmetic.of_storing(graph.at_zero[node].numel())
            bounds[name] = found[node].sensitivity(stored)
        if adapter is not None:
            compare(adapter(copy.deepcopy(module)), graph, bounds, probe)
        return bounds


def compare(model: Any, graph: Graph, bounds: Mapping[str, Sensitivity], probe: Any) -> None:
    """Refuse a model whose activations for some real inputs differ from the graph's."""
    given = probe[:ROWS]
    exact = given.detach().cpu() if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    if not exact.is_floating_point():
        raise LayerError("integer inputs stay integers, which may wrap around: pass floats")
    exact = exact.to(torch.float64)
    lengths = exact.flatten(1).norm(dim=1) if exact.ndim > 1 else exact.abs()
    singles = [slice(i, i + 1) for i in range(min(2, len(exact)))]
    for rows in (slice(0, ROWS), slice(0, ROWS), *singles):
        seen = model.observe(given[rows], list(bounds))
        usable = torch.from_numpy(~seen.invalid)
        wanted = graph.run(exact[rows])
        for layer, bound in bounds.items():
            found = torch.from_numpy(np.asarray(seen.activations[layer])).double()
            off = (found - wanted[layer])[usable].norm(dim=1)
            allowed = bound.off(lengths[rows][usable])
            if not bool((off <= allowed * (1 + 1e-6)).all()):
                raise LayerError(
                    f"layer {layer!r} cannot be bounded: for real inputs the module differs from "
                    f"its graph by {float((off - allowed).max()):.3g} more than rounding allows"
                )


def read_graph(module: nn.Module, shape: Shape, layers: Sequence[str]) -> Graph:
    """The graph of the named layers of a module."""
    kind, names = type(module).__name__, {"input", "output", *dict(module.named_modules())} - {""}
    wanted = set(layers)
    for layer in layers:
        if not {layer, layer.removesuffix(ENTRANCE)} & names:
            raise LayerError(f"{kind} has no layer {layer!r}")
    _check_parts(module)
    arithmetic = aten.arithmetic_of(module)
    rows = torch.randn(5, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows *= torch.tensor([1, 30, 1e-3, 1e4, 1e-7]).reshape(5, *[1] * len(shape))
    batches = (rows, rows[:1], rows[1:2])
    exact = _marked(copy.deepcopy(module).cpu().double(), wanted)
    seen = _run(exact, batches)
    own = _marked(copy.deepcopy(module), wanted)
    graph, alone = (Graph(_export(own, shape, n), layers, arithmetic) for n in (MANY, 1))
    if not _same(graph.calls, alone.calls):
        raise LayerError(f"the forward of {kind} depends on the number of samples in a batch")
    for batch, found in zip(batches, seen, strict=True):
        for layer, value in graph.run(batch).items():
            values = found.get(layer, [])
            if [each.numel() for each in values] != [value.numel()] or not bool(
                (values[0].reshape(value.shape) - value).norm() <= 1e-5 * value.norm()
            ):
                raise LayerError(f"layer {layer!r} of {kind} differs from its exported graph")
    try:  # what `torch.compiler.is_compiling()` hides from the export
        with torch.no_grad():
            exact(FakeTensorMode(allow_non_fake_inputs=True).from_tensor(rows))
    except Exception as error:  # the user's code may raise anything
        raise LayerError(f"the forward of {kind} may depend on the values it sees") from error
    return graph


def _check_parts(network: nn.Module) -> None:
    """Refuse, by name, parts that an exported graph does not speak for."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        raise LayerError("torch has global hooks on all modules, which may change values")
    for name, part in network.named_modules(remove_duplicate=False):
        what = f"{name!r} ({type(part).__name__})" if name else type(part).__name__
        if isinstance(part, torch.jit.ScriptModule):
            raise LayerError(f"{what} is a ScriptModule: certify the original module")
        if type(part).__name__ in RUNNERS or vars(part).get("_compiled_call_impl") is not None:
            raise LayerError(f"{what} runs a module in its own way: what it computes is unknown")
        hooks = [*part._forward_hooks.values(), *part._forward_pre_hooks.values()]
        if not all(getattr(hook, "__module__", "") == OWN_HOOKS for hook in hooks):
            raise LayerError(f"{what} has a hook, which may change values")
        for key, tensor in (*part._parameters.items(), *part._buffers.items()):
            plain = type(tensor) in PLAIN_TENSORS and tensor.layout == torch.strided
            if tensor is not None and (not plain or tensor.is_quantized or tensor.is_complex()):
                raise LayerError(f"{what} has {key!r}, which is not a plain real tensor")


def _marked(network: nn.Module, layers: Set[str]) -> nn.Module:
    """A network in eval mode whose layers, as hooks see them, are marked.

    "input" and "output" are its own, unless modules have these names.
    """
    parts = dict(network.eval().named_modules())
    for name, part in parts.items():
        if part.training is not False:
            raise LayerError(f"{name!r} ({type(part).__name__}) stays in training mode")
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()
        output, entrance = name or "output", f"{name}{ENTRANCE}".removeprefix(".")
        if output in layers and (name or output not in parts):
            part.register_forward_hook(partial(_mark, output))
        if entrance in layers - parts.keys():
            part.register_forward_pre_hook(partial(_mark, entrance, entering={}), with_kwargs=True)
    return network


def _mark(layer: str, _part: Any, args: Any, seen: Any, entering: Any = None) -> None:
    """Mark what a part returns, or what enters it: `seen` are then the arguments by name."""
    value = seen if entering is None else args[0] if len(args) == 1 and not seen else None
    if isinstance(value, Tensor):
        mark(value, layer)


def _run(network: nn.Module, batches: Sequence[Tensor]) -> list[dict[str, list[Tensor]]]:
    """What a marked network computes by itself; refuses one that this changes."""
    kind, before, found = type(network).__name__, copy.deepcopy(network), []
    for batch in batches:
        seen: dict[str, list[Tensor]] = {}
        token = _seen.set(seen)
        try:
            network(batch.clone())
        except Exception as error:  # the user's code may raise anything
            shape = tuple(batch.shape[1:])
            raise LayerError(f"{kind} failed on samples of shape {shape}: {error}") from error
        finally:
            _seen.reset(token)
        found.append(seen)
    if not _same(vars(before), vars(network)):
        raise LayerError(f"a pass through {kind} changes it, so the next may differ")
    return found


def _same(one: Any, other: Any, seen: frozenset[int] = frozenset()) -> bool:
    """Whether two values are equal in all their parts, as far as these can be looked into."""
    if one is other or id(one) in seen:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.shape == other.shape and torch.allclose(one, other, 0, 0, equal_nan=True)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    seen |= {id(one)}
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(_same(one[key], other[key], seen) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(partial(_same, seen=seen), one, other))
    if isinstance(one, nn.Module) or (hasattr(one, "__dict__") and not callable(one)):
        return _same(vars(one), vars(other), seen)
    return not isinstance(one, PLAIN) or one == other or one != one


def _export(network: nn.Module, shape: Shape, n: int) -> Any:
    """The program of a network for one sample, or for any number of samples, such as `n`."""
    kind = type(network).__name__
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        wanted = ".".join(map(str, OLDEST_TORCH))
        raise LayerError(f"bounds of hidden layers need torch {wanted}; got {torch.__version__}")
    like = next(network.parameters(), next(network.buffers(), torch.empty(0)))
    example = torch.zeros(n, *shape, dtype=aten.input_dtype(network), device=like.device)
    sizes = None if n == 1 else ({0: torch.export.Dim("batch")},)
    with _exporting, _quiet(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            program = torch.export.export(network, (example,), dynamic_shapes=sizes, strict=True)
            told = [str(each.message) for each in said if not issubclass(each.category, HARMLESS)]
            program = program.run_decompositions({})  # without writing in place
        except Exception as error:  # the user's code may raise anything
            why = str(error).strip().partition("\n")[0] or type(error).__name__
            if why.startswith("Constraints violated"):
                why = "its forward depends on the number of samples in a batch"
            raise LayerError(f"{kind} cannot be exported by torch.export: {why}") from error
    if told:
        raise LayerError(f"the forward of {kind} may do something else another time: {told[0]}")
    for spec in program.graph_signature.output_specs:
        if spec.kind.name != "USER_OUTPUT":
            raise LayerError(f"the forward of {kind} changes {spec.target!r}")
    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what torch says about a failed export: its log, and the prints of its tracer."""
    log, tracer = logging.getLogger("torch._guards"), vars(_trace)
    before, tracer["print"] = log.level, lambda *_, **__: None
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
        del tracer["print"]


class Graph:
    """An exported program as nodes to propagate over.

    layers: by name, the nodes of the wanted layers. at_zero: the value of every node at the input
    0, each after those it is made of. calls: what the nodes do, to compare.
    """

    def __init__(self, program: Any, wanted: Sequence[str], arithmetic: Arithmetic) -> None:
        self._program, self.arithmetic = program, arithmetic
        (name,) = program.graph_signature.user_inputs
        (self._start,) = (node for node in program.graph.nodes if node.name == name)
        self._moving = {self._start}
        for node in program.graph.nodes:
            if self._moving.intersection(node.all_input_nodes):
                self._moving.add(node)
        self.calls: list[Any] = []
        self._steps: dict[Node, Callable[..., Tensor]] = {}
        self._constant = cache(self._find_constant)
        start, shape = self._start, self._sample(self._start)
        self._nodes = {start: input_node(shape, arithmetic)}
        self.at_zero = {self._nodes[start]: torch.zeros(1, *shape, dtype=torch.float64)}
        marks: dict[str, list[Any]] = {}
        for node in program.graph.nodes:
            if node.target is torch.ops.iknow.mark.default:
                marks.setdefault(node.args[1], []).append(node.args[0])
        self.layers = {name: self._read(name, marks.get(name, [])) for name in wanted}

    def _read(self, name: str, values: Sequence[Any]) -> Node:
        """The node of a layer, after those of all that it depends on."""
        if len(values) > 1:
            raise LayerError(f"layer {name!r} ran more than once, so it has no single bound")
        if not values:
            raise LayerError(f"layer {name!r} did not run, or is not one tensor: choose another")
        (value,), needed = values, {*values}
        for node in reversed(self._program.graph.nodes):
            if node in needed:
                needed |= self._moving.intersection(node.all_input_nodes)
        try:
            if value not in self._moving:
                raise LayerError("it does not depend on the input")
            for node in self._program.graph.nodes:
                is_size = isinstance(node.meta.get("val"), torch.SymInt | int)
                if node in needed and node not in self._nodes and not is_size:
                    self._nodes[node] = self._translate(node)
        except LayerError as error:
            raise LayerError(f"layer {name!r} cannot be bounded: {error}") from error
        return self._nodes[value]

    def run(self, batch: Tensor) -> dict[str, Tensor]:
        """The values of the layers for a float64 batch, from the graph alone, of shape (n, -1)."""
        values = {self._nodes[self._start]: batch}
        for node, step in self._steps.items():
            values[node] = step(*(values[value] for value in node.inputs))
        return {name: values[node].flatten(1) for name, node in self.layers.items()}

    def _sample(self, node: Any) -> Shape:
        """The shape of one sample of a value, whose first axis must be that of the batch."""
        value, start = node.meta["val"], self._start.meta["val"]
        value = value[0] if isinstance(value, tuple | list) else value
        if not isinstance(value, Tensor):
            raise LayerError(f"{_what(node)} computes with numbers that depend on the input")
        sizes = [getattr(getattr(each, "node", None), "expr", each) for each in value.shape]
        batch = getattr(getattr(start.shape[0], "node", None), "expr", start.shape[0])
        if sizes[:1] != [batch] or not all(type(size) is int for size in sizes[1:]):
            raise LayerError(f"{_what(node)} may mix the samples of a batch")
        if value.dtype != start.dtype:
            raise LayerError(f"{_what(node)} computes in {value.dtype}")
        return tuple(sizes[1:])

    def _translate(self, node: Any) -> Node:
        """The node of an operation; if that keeps all values in their order, the one before it."""
        if node.target is operator.getitem and node.args[1] == 0:  # a pool's or norm's first result
            return self._nodes[node.args[0]]
        name, output = str(node.target).removeprefix("aten."), self._sample(node)
        if name in aten.SAME:
            self.calls.append((name,))
            return self._take(node, node.args[:1])[0]
        function: Callable[..., Tensor] = node.target
        facts: dict[str, Any]
        given, arguments = _arguments(node), None
        are_nodes = {key: value for key, value in given.items() if isinstance(value, torch.fx.Node)}
        moving = [key for key, value in are_nodes.items() if value in self._moving]
        if name == "cat.default" and self._moving.issuperset(given["tensors"]):
            values, axis = given["tensors"], given["dim"]
            function, arguments = lambda *ys: torch.cat(ys, axis), axis
            facts = {"kind": "joined"}
        elif name in SUMS and len(moving) == 2 and given["alpha"] == 1:
            values = [given[key] for key in moving]
            if {*map(self._sample, values)} != {output}:
                raise LayerError(f"{_what(node)} adds values of different shapes")
            facts = {"kind": "sum", "noise": self.arithmetic.of_adding(math.prod(output))}
        elif name in aten.AFFINE.keys() | aten.FUNCTIONS.keys() and len(moving) == 1:
            values = [given.pop(moving[0])]
            arguments = {key: self._in_float64(other) for key, other in given.items()}
            function = TensorCall(
                name, node.target, moving[0], arguments, self._sample(values[0]), output
            )
            try:
                facts = aten.facts_of(function, self.arithmetic)
            except LayerError as error:
                raise LayerError(f"{_what(node)}: {error}") from error
        else:
            raise LayerError(f"torch's {name.partition('.')[0]} is not supported in {_what(node)}")
        inputs, shapes = self._take(node, values), list(map(self._sample, values))

        def step(*batches: Tensor) -> Tensor:
            pairs = zip(batches, shapes, strict=True)
            return function(*(batch.reshape(len(batch), *shape) for batch, shape in pairs))

        value = step(*(self.at_zero[each] for each in inputs))
        made = Node(_what(node), inputs=inputs, center=float(value.norm()), **facts)
        places = [list(self.at_zero).index(each) for each in inputs]
        self.calls.append((str(node.target), places, arguments, output))
        self.at_zero[made], self._steps[made] = value, step
        return made

    def _take(self, node: Any, values: Sequence[Any]) -> tuple[Node, ...]:
        """The nodes of the values that an operation reads."""
        if not self._nodes.keys() >= set(values):
            raise LayerError(f"{_what(node)} depends on the number of samples in a batch")
        return tuple(self._nodes[value] for value in values)

    def _in_float64(self, value: Any) -> Any:
        """An argument that does not depend on the input, with tensors on the CPU."""
        found = torch.fx.node.map_arg(value, self._constant)
        return found.detach().cpu().double() if isinstance(found, Tensor) else found

    def _find_constant(self, node: Any) -> Any:
        if node in self._moving:
            raise LayerError("it has an argument that depends on the number of samples")
        if node.op != "placeholder":
            raise LayerError(
                f"{_what(node)} computes a tensor of its own in each pass, with unknown rounding: "
                "make it plain, as torch.nn.utils.parametrize.remove_parametrizations does"
            )
        specs = self._program.graph_signature.input_specs
        (key,) = (spec.target for spec in specs if spec.arg.name == node.name)
        found = self._program.state_dict.get(key, self._program.constants.get(key))
        is_real = isinstance(found, Tensor) and found.is_floating_point()
        return found.double() if is_real else found


def input_node(shape: Shape, arithmetic: Arithmetic) -> Node:
    return Node("the input", "input", noise=arithmetic.of_cast(math.prod(shape)))


def _arguments(node: Any) -> dict[str, Any]:
    """The arguments of a call by name, with the operation's defaults; of other calls, none."""
    known = getattr(getattr(node.target, "_schema", None), "arguments", ())
    given = dict(zip([each.name for each in known], node.args, strict=False))
    return {each.name: each.default_value for each in known} | given | dict(node.kwargs)


def _what(node: Any) -> str:
    """The module that an operation belongs to, by name and type."""
    path, kind = [*node.meta.get("nn_module_stack", {"": ("", "")}).values()][-1]
    kind = (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]
    return f"{path!r} ({kind})" if path else f"the network ({kind})"
