"""The adaptive attack: by one who knows the network, the evidence and the settings.

Two attacks on test samples that a network answers rightly, with every other class as the target in
turn, each pixel changed by ε at most. The networks are that of the paper (MNIST, dense) and, with
fewer samples, steps and starts, the residual network of CIFAR-10.

    as worded    minimize the distance to training samples of the target class in all used layers,
                 while the answer changes
    strong       make every voice assert a wrong answer: for each layer radius, ratio and what must
                 have been seen are known, and the least confidence, so what is missing of each is a
                 hinge in the loss, and neighbors are searched anew

A sample counts as broken if any start and step gives an input that the library itself, asked at the
end, asserts as IK with a wrong label. The same attacker meets a softmax threshold of the same
coverage, for which it needs confidence alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.scoreboard.data import Data
from benchmarks.scoreboard.problems import Kind
from benchmarks.scoreboard.torch.descent import (
    Conditions,
    LayerEvidence,
    descend,
    nearest_guides,
)
from benchmarks.scoreboard.torch.plain_index import PlainIndex
from benchmarks.scoreboard.torch.training import predict, train
from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.assertion import Assertion
from iknow.evaluation.peers import log_probability
from iknow.evaluation.risk import match_coverage
from iknow.metrics import Cosine
from iknow.models.network import MOMENTS


@dataclass(frozen=True)
class Study:
    """What is attacked, and how hard."""

    dataset: str
    kind: Kind
    epsilon: float
    n_samples: int
    steps: int
    n_guides: int  # training samples of each class to start from, or to go to
    coverages: tuple[float, ...] = (0.5, 0.75, 0.9)


STUDIES = {
    "adaptive attack": Study("mnist", "mlp", 0.1, 400, 150, 4),
    "adaptive attack, CIFAR-10": Study("cifar", "resnet", 4 / 255, 100, 60, 1, (0.75,)),
}


def study(given: Study, data: Data, seed: int, device: str, quick: bool) -> dict[str, Any]:
    """The share of right answers turned into a wrong IK, by setting."""
    if quick:
        data = data.few()
    network = train(given.kind, data.x, data.y, data.n_classes, 1000 * seed, device, quick)
    if data.x.ndim > 2:  # steps are taken on rows of numbers
        network = nn.Sequential(nn.Unflatten(1, data.x.shape[1:]), network).eval()
        data = data.flat()
    x, y = torch.from_numpy(data.x).to(device), torch.from_numpy(data.y).to(device)
    tests = torch.from_numpy(data.x_test).to(device)
    answers = predict(network, tests).argmax(1).cpu().numpy()
    chosen = np.flatnonzero(answers == data.y_test)[: 8 if quick else given.n_samples]
    start, truth = tests[chosen], torch.from_numpy(data.y_test[chosen]).to(device)
    steps, n_guides = (4, 1) if quick else (given.steps, given.n_guides)
    guides = nearest_guides(start, x, y, data.n_classes, n_guides)
    found: dict[str, Any] = {"of": len(chosen), "epsilon": round(given.epsilon, 4)}
    ec = EpistemicClassifier(
        network,
        classes=np.arange(data.n_classes),
        search=partial(PlainIndex, device=device),
        progress=False,
    ).fit(data.x, data.y)
    for coverage in given.coverages:
        ec.tune(data.x_val, data.y_val, coverage=coverage)
        conditions = _conditions(ec, network, x, y, data.n_classes)
        for kind in ("strong", "as worded"):
            broken = _break(
                ec, conditions, start, truth, x, guides, kind == "strong", steps, given.epsilon
            )
            found[f"iknow {kind} {coverage}"] = float(broken.mean())
        broken = _break_softmax(
            network, data, start, truth, coverage, 4 if quick else 100, given.epsilon
        )
        found[f"softmax {coverage}"] = float(broken.mean())
    return found


def _conditions(
    ec: EpistemicClassifier, network: nn.Module, x: Tensor, y: Tensor, n_classes: int
) -> Conditions:
    """What IK needs, in a form with gradients, by the settings of a tuned classifier."""
    rules: dict[str, Any] = dict(ec.neighborhoods_)
    directions = [name for name in rules if isinstance(ec.indexes_[name].metric, Cosine)]
    look = observer(network, list(rules), directions)
    parts: dict[str, list[Tensor]] = {name: [] for name in rules}
    with torch.no_grad():
        for part in torch.split(x, 2048):
            for name, points in look(part)[1].items():
                parts[name].append(points)
    layers = {
        name: LayerEvidence(torch.cat(parts[name]), y, n_classes, rule.quorum)
        for name, rule in rules.items()
    }
    limits = {name: (rule.radius, rule.ratio, rule.seen) for name, rule in rules.items()}
    return Conditions(look, layers, limits, ec.selection_.least_confidence)


def observer(
    network: nn.Module, names: Sequence[str], directions: Sequence[str]
) -> Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]]:
    """A function from inputs of shape (n, d) to logits, and the points of layers by name.

    directions: the layers whose points are directions.
    """
    modules = {name: name.removesuffix(MOMENTS) for name in names if name != "input"}
    seen: dict[str, Tensor] = {}
    for module in set(modules.values()):
        network.get_submodule(module).register_forward_hook(
            lambda _, __, out, module=module: seen.update({module: out})
        )

    def look(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logits, points = network(x), {}
        for name in names:
            if name == "input":
                points[name] = x
            elif name.endswith(MOMENTS):
                # A deviation of 0 has no gradient.
                values = seen[modules[name]]
                mean = values.flatten(2).mean(2)
                spread = (values.flatten(2) - mean[..., None]).square().mean(2)
                points[name] = torch.hstack([mean, spread.clamp_min(1e-12).sqrt()])
            else:
                points[name] = seen[modules[name]].flatten(1)
            if name in directions:
                points[name] = functional.normalize(points[name], dim=1)
        return logits, points

    return look


def _break(
    ec: EpistemicClassifier, conditions: Conditions, start: Tensor, truth: Tensor, x: Tensor,
    guides: Tensor, strong: bool, steps: int, epsilon: float,
) -> Any:  # fmt: skip
    """Which samples are broken, (n,), as the library says about the best input of each start."""
    n_classes = guides.shape[1]
    broken = np.zeros(len(start), dtype=bool)
    plans = [
        (guide, begin, mode)
        for guide in range(guides.shape[2])
        for begin, mode in _starts(guide, strong)
    ]
    for guide, begin, mode in plans:
        left = torch.from_numpy(np.flatnonzero(~broken)).to(start.device)
        if not len(left):
            break
        rows = left.repeat_interleave(n_classes)
        target = torch.arange(n_classes, device=start.device).repeat(len(left))
        other = target != truth[rows]
        rows, target = rows[other], target[other]
        found = descend(
            conditions, start[rows], target, x[guides[rows, target, guide]], epsilon, steps,
            begin=begin, mode=mode,
        )  # fmt: skip
        assessed = ec.assess(found.cpu().numpy())
        places = rows.cpu().numpy()
        wrong = assessed.belief_codes != truth.cpu().numpy()[places]
        broken[places[(assessed.assertion == Assertion.IK) & wrong]] = True
    return broken


def _starts(guide: int, strong: bool) -> list[tuple[str, str]]:
    if not strong:
        return [("guide", "distance"), ("self", "distance")]
    more = [("self", "sum"), ("random", "max")] if guide == 0 else []
    return [("guide", "sum"), ("guide", "max"), *more]


def _break_softmax(
    network: nn.Module, data: Data, start: Tensor, truth: Tensor, coverage: float, steps: int,
    epsilon: float,
) -> Any:  # fmt: skip
    """The same for a threshold on softmax at the same coverage."""

    def confidence(logits: Tensor) -> Any:
        values = logits.cpu().numpy()
        return log_probability(values, values.argmax(axis=1))

    clean = predict(network, torch.from_numpy(data.x_val).to(start.device))
    limit = match_coverage(confidence(clean), coverage).value
    broken = np.zeros(len(start), dtype=bool)
    for code in range(data.n_classes):
        target, changed = torch.full_like(truth, code), start.clone()
        for _ in range(steps):
            changed.requires_grad_(True)
            loss = functional.cross_entropy(network(changed), target, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, changed)
            changed = changed.detach() - epsilon / 10 * gradient.sign()
            changed = torch.minimum(torch.maximum(changed, start - epsilon), start + epsilon)
            changed = changed.clamp(0, 1)
        logits = predict(network, changed)
        wrong = (logits.argmax(1) != truth).cpu().numpy()
        broken |= wrong & (confidence(logits) >= limit)
    return broken
