"""Descent: steps by the sign of the gradient towards a wrong IK, within ε of a sample.

With d_t the distance that counts for the target class t, d_o the one against it, and r the distance
to the tenth nearest sample of any class, each voice of the level gives a condition:

    log d_t - log radius <= 0,    log ratio - log(d_o / d_t) <= 0,    log r - log seen <= 0,
    the answer is t, by log-odds of at least a limit

Mode "sum" adds what is missing of each, "max" weighs the hardest most, and "distance" minimizes the
distance to one training sample of t, in units of the radii, with what is missing of the answer. The
length of steps shrinks twice. The input at which the conditions hold is kept; else the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from iknow.core.level import NEIGHBORS

LENGTHS = (0.25, 0.08, 0.02)  # of steps, in units of ε
MOMENTUM = 0.75
SLACK = 0.005  # by which a condition shall hold
SEARCH_EVERY = 3
ROWS_AT_ONCE = 8192


class LayerEvidence:
    """Exact neighbors in one layer, and distances to them with gradients.

    points: training activations, (n, d). y: class codes, (n,). quorum: which nearest sample counts,
    for and against.
    """

    def __init__(self, points: Tensor, y: Tensor, n_classes: int, quorum: tuple[int, int]) -> None:
        self.center = points.mean(0)  # smaller numbers round less
        order = y.argsort(stable=True)
        self.points = points[order] - self.center
        self.norms = (self.points**2).sum(1)
        self.sizes = torch.bincount(y, minlength=n_classes).tolist()
        self.quorum = quorum

    @torch.no_grad()
    def find(self, queries: Tensor, belief: Tensor) -> tuple[Tensor, ...]:
        """Rows of `points`, (n,) each: what counts for the belief, against it, and as seen."""
        found = [
            self._find(*part)
            for part in zip(
                torch.split(queries - self.center, ROWS_AT_ONCE),
                torch.split(belief, ROWS_AT_ONCE),
                strict=True,
            )
        ]
        return tuple(map(torch.cat, zip(*found, strict=True)))

    def _find(self, queries: Tensor, belief: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        squares = torch.addmm(self.norms, queries, self.points.T, alpha=-2)
        needed = max(self.quorum)
        own, other, distances, start = [], [], [], 0
        for size in self.sizes:
            k = min(needed, size)
            near = squares[:, start : start + size].topk(k, dim=1, largest=False)
            own.append(near.indices[:, min(self.quorum[0], k) - 1] + start)
            other.append(near.indices[:, min(self.quorum[1], k) - 1] + start)
            distances.append(near.values[:, min(self.quorum[1], k) - 1])
            start += size
        against = torch.stack(distances, 1).scatter(1, belief[:, None], torch.inf)
        nearest = against.argmin(1, keepdim=True)
        k = min(NEIGHBORS, len(self.points))
        return (
            torch.stack(own, 1).gather(1, belief[:, None])[:, 0],
            torch.stack(other, 1).gather(1, nearest)[:, 0],
            squares.topk(k, dim=1, largest=False).indices[:, k - 1],
        )

    def distance(self, queries: Tensor, rows: Tensor) -> Tensor:
        """The distance of each query to a row of `points`, (n,), with a gradient."""
        squares = ((queries - self.center - self.points[rows]) ** 2).sum(1)
        return squares.clamp_min(1e-12).sqrt()


def nearest_guides(start: Tensor, x: Tensor, y: Tensor, n_classes: int, n_guides: int) -> Tensor:
    """The nearest training samples of each class, as rows of `x`, (n, n_classes, n_guides)."""
    found = []
    for code in range(n_classes):
        rows = (y == code).nonzero()[:, 0]
        distances = torch.cdist(start.flatten(1), x[rows].flatten(1))
        found.append(rows[distances.topk(n_guides, dim=1, largest=False).indices])
    return torch.stack(found, 1)


@dataclass(frozen=True, eq=False)
class Conditions:
    """What IK needs: evidence in layers, (radius, ratio, seen), by layer, and the least log-odds. A
    silent voice has the limit inf, 0, inf, or -inf. observe: inputs → logits, and points by layer.
    """

    observe: Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]]
    layers: dict[str, LayerEvidence]
    limits: dict[str, tuple[float, float, float]]
    least: float


def descend(
    conditions: Conditions, x: Tensor, target: Tensor, guide: Tensor, epsilon: float, steps: int,
    *, begin: str, mode: str,
) -> Tensor:  # fmt: skip
    """An input for each row of `x` and its target class, of the shape of `x`."""
    lower, upper = (x - epsilon).clamp(0, 1), (x + epsilon).clamp(0, 1)
    noise = x + epsilon * (2 * torch.rand_like(x) - 1)
    first = {"guide": guide, "self": x, "random": noise}[begin]
    changed = torch.minimum(torch.maximum(first, lower), upper)
    kept, momentum = changed.clone(), torch.zeros_like(changed)
    done = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    found: dict[str, tuple[Tensor, ...]] = {}
    with torch.no_grad():
        _, guides = conditions.observe(guide)
    for step in range(steps):
        fresh = step % SEARCH_EVERY == 0 or step == steps - 1
        changed = changed.detach().requires_grad_(True)
        logits, points = conditions.observe(changed)
        missing, holds = _judge(conditions, logits, points, target, found, fresh)
        if fresh:
            new = holds & ~done
            kept[new], done = changed.detach()[new], done | holds
        if mode == "distance":
            missing = [missing[0], *_distances(conditions, points, guides)]
        losses = torch.stack(missing)
        loss = losses.sum(0) * 0.2 + losses.amax(0) if mode == "max" else losses.sum(0)
        (gradient,) = torch.autograd.grad(loss.sum(), changed)
        size = gradient.abs().mean(1, keepdim=True).clamp_min(1e-12)
        momentum = MOMENTUM * momentum + gradient / size
        length = epsilon * LENGTHS[len(LENGTHS) * step // steps]
        changed = changed.detach() - length * momentum.sign()
        changed = torch.minimum(torch.maximum(changed, lower), upper)
    return torch.where(done[:, None], kept, changed.detach())


def _judge(
    conditions: Conditions, logits: Tensor, points: dict[str, Tensor], target: Tensor,
    found: dict[str, tuple[Tensor, ...]], fresh: bool,
) -> tuple[list[Tensor], Tensor]:  # fmt: skip
    """What is missing of each condition, and where all hold by the neighbors last found."""
    own_logit = logits.gather(1, target[:, None])[:, 0]
    others = logits.scatter(1, target[:, None], -torch.inf)
    best, odds = others.amax(1), own_logit - others.logsumexp(1)
    holds = (best < own_logit) & (odds >= conditions.least)
    missing = [functional.relu(best - own_logit + 0.02) * 0.3]
    if conditions.least > -torch.inf:
        missing.append(functional.relu(conditions.least - odds + 0.02) * 0.3)
    for name, (radius, ratio, seen) in conditions.limits.items():
        queries, layer = points[name], conditions.layers[name]
        if fresh:
            found[name] = layer.find(queries.detach(), target)
        own, other, tenth = (layer.distance(queries, rows) for rows in found[name])
        holds = holds & (own <= radius) & (other >= ratio * own) & (tenth <= seen)
        excess = [own / radius, ratio * own / other, tenth / seen]
        spoken = [radius < torch.inf, ratio > 0, seen < torch.inf]  # log 0 has no gradient
        pairs = zip(excess, spoken, strict=True)
        missing += [functional.relu(each.log() + SLACK) for each, heard in pairs if heard]
    return missing, holds


def _distances(
    conditions: Conditions, points: dict[str, Tensor], guide: dict[str, Tensor]
) -> list[Tensor]:
    """Distances to one training sample in every layer, in units of the radii."""
    return [
        (points[name] - guide[name]).norm(dim=1) / min(radius, seen)
        for name, (radius, _, seen) in conditions.limits.items()
    ]
