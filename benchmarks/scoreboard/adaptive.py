"""An attack by one who knows everything: the network, the evidence, the settings.

For a test sample that the network answers rightly, a target class t and a near training sample of
t, find x' within eps (every pixel) such that the answer is t AND every layer is near and clear for
t at the threshold. In each step the exact nearest samples in each layer are found anew, and the loss
is the sum of what is missing, each a hinge that is 0 once the condition holds by a little:

    log d_t - log radius        near: d_t to the nearest sample of t
    log ratio - log(d_o / d_t)  clear: d_o the least over other classes of the 3rd nearest
    margin of the logits        the answer is t

Sign steps of a length that shrinks, on the loss as a whole and, in other restarts, on one that
weighs the hardest condition most. Starts: the projection of the training sample into the ball (the
nearest point to it there), the sample itself, and a random point. An attack that succeeds in
any step counts.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F

QUORUM = (1, 3)


def rank_u(ref, d):
    """Share of reference samples whose d is at least this one's."""
    s = ref.sort().values
    return (len(s) - torch.searchsorted(s, d, right=False)).float() / len(s)


def rank_v(ref, r):
    """Share of reference samples whose ratio is at most this one's."""
    s = ref.sort().values
    return torch.searchsorted(s, r, right=True).float() / len(s)


class Evidence:
    """Exact distances in one layer, and which samples they are to."""

    def __init__(self, points, y, n_classes):
        self.center = points.mean(0)
        order = y.argsort(stable=True)
        self.points = points[order] - self.center
        self.norms = (self.points**2).sum(1)
        self.sizes = torch.bincount(y, minlength=n_classes).tolist()
        self.order = order

    @torch.no_grad()
    def find(self, q, belief, chunk=8192):
        """(own, other): rows of `points` of the nearest of the belief and the 3rd nearest of the
        class that contradicts first."""
        owns, others = [], []
        for part, b in zip(
            torch.split(q - self.center, chunk), torch.split(belief, chunk), strict=True
        ):
            d2 = torch.addmm(self.norms, part, self.points.T, alpha=-2)
            first, third, at1, at3, start = [], [], [], [], 0
            for size in self.sizes:
                v, i = d2[:, start : start + size].topk(QUORUM[1], dim=1, largest=False)
                first.append(v[:, 0]), at1.append(i[:, 0] + start)
                third.append(v[:, -1]), at3.append(i[:, -1] + start)
                start += size
            third, at1, at3 = torch.stack(third, 1), torch.stack(at1, 1), torch.stack(at3, 1)
            owns.append(at1.gather(1, b[:, None])[:, 0])
            third.scatter_(1, b[:, None], torch.inf)
            others.append(at3.gather(1, third.argmin(1, keepdim=True))[:, 0])
        return torch.cat(owns), torch.cat(others)

    def distance(self, q, rows):
        return ((q - self.center - self.points[rows]) ** 2).sum(1).clamp_min(1e-12).sqrt()


def study(network, data, quick, seconds):
    """Share of right answers turned into wrong IK, by eps and by the layers in use."""
    x, y, C = data.x, data.y, data.n_classes
    maps = {
        "input": lambda a: a.flatten(1),
        "hidden": lambda a: F.normalize(network.body(a), dim=1),
    }
    evidence = {k: Evidence(fn(x), y, C) for k, fn in maps.items()}
    n_ref = len(data.xv) // 5
    ref, cal = data.xv[:n_ref], data.xv[n_ref:]
    refs, cals = {}, {}
    for k, fn in maps.items():
        for part, to in ((ref, refs), (cal, cals)):
            q, b = fn(part), network(part).argmax(1)
            own, other = evidence[k].find(q, b)
            d = evidence[k].distance(q, own)
            to[k] = (d, evidence[k].distance(q, other) / d)
    n = 40 if quick else 400
    right = network(data.xt).argmax(1) == data.yt
    xs, ys = data.xt[right][:n], data.yt[right][:n]
    result = {}
    for layers in (("input", "hidden"), ("hidden",), ("input",)):
        levels = torch.stack(
            [
                r
                for k in layers
                for r in (rank_u(refs[k][0], cals[k][0]), rank_v(refs[k][1], cals[k][1]))
            ]
        ).amin(0)
        for coverage in (0.75,) if layers != ("input", "hidden") else (0.6, 0.75, 0.9):
            level = levels.sort(descending=True).values[int(coverage * len(levels))].item()
            limits = {}
            for k in layers:
                d, r = refs[k]
                ds, rs = d.sort().values, r.sort().values
                need = max(round(level * len(ds)), 1)  # u >= level: at least `need` are as far
                limits[k] = (ds[len(ds) - need].item(), rs[need - 1].item())
            for eps in (0.05, 0.1, 0.2) if coverage == 0.75 and len(layers) == 2 else (0.1,):
                begin = time.time()
                share, tries = break_in(
                    network, maps, evidence, limits, xs, ys, x, y, C, eps, quick, seconds
                )
                result[f"{'+'.join(layers)} c={coverage} eps={eps}"] = {
                    "wrong_ik": share,
                    "of": len(xs),
                    "restarts": tries,
                    "level": level,
                    "seconds": round(time.time() - begin, 1),
                }
    # A threshold on softmax: the same attacker, who needs only confidence.
    odds = top_odds(network(cal))
    limit = odds.sort(descending=True).values[int(0.75 * len(odds))].item()
    for eps in (0.05, 0.1, 0.2):
        won = torch.zeros(len(xs), dtype=torch.bool, device=xs.device)
        for t in range(C):
            adv = xs.clone()
            target = torch.full_like(ys, t)
            for i in range(100):
                adv = adv.detach().requires_grad_(True)
                z = network(adv)
                with torch.no_grad():
                    won |= (z.argmax(1) != ys) & (top_odds(z) >= limit)
                (grad,) = torch.autograd.grad(F.cross_entropy(z, target, reduction="sum"), adv)
                adv = adv.detach() - eps * 0.1 * grad.sign()
                adv = torch.minimum(torch.maximum(adv, xs - eps), xs + eps).clamp(0, 1)
        result[f"softmax c=0.75 eps={eps}"] = {"wrong_ik": won.float().mean().item()}
    return result


def top_odds(z):
    top, b = z.max(1)
    rest = z.clone()
    rest.scatter_(1, b[:, None], -torch.inf)
    return top - rest.logsumexp(1)


def break_in(network, maps, evidence, limits, xs, ys, x, y, C, eps, quick, seconds):
    """(share of samples with a wrong IK, restarts tried per sample)."""
    steps = 20 if quick else 150
    won = torch.zeros(len(xs), dtype=torch.bool, device=xs.device)
    deadline, tries = time.time() + seconds / 8, 0
    guides = nearest_guides(xs, x, y, C, 2 if quick else 6)  # (n, C, g) rows of x
    # Near guides first; every restart for all samples not yet broken and all other classes.
    plans = [(g, "guide", m) for g in range(guides.shape[2]) for m in ("sum", "max")]
    plans = plans[:2] + [(0, "self", "sum"), (1, "random", "max")] + plans[2:]
    for g, begin, mode in plans:
        if time.time() > deadline or won.all():
            break
        tries += C - 1
        open_ = (~won).nonzero()[:, 0]
        rows = open_.repeat_interleave(C)
        t = torch.arange(C, device=xs.device).repeat(len(open_))
        keep = t != ys[rows]
        rows, t = rows[keep], t[keep]
        won[
            rows[
                pgd(
                    network,
                    maps,
                    evidence,
                    limits,
                    xs[rows],
                    t,
                    x[guides[rows, t, g]],
                    eps,
                    steps,
                    begin,
                    mode,
                )
            ]
        ] = True
    return won.float().mean().item(), tries


def nearest_guides(xs, x, y, C, n):
    out = []
    for c in range(C):
        at = (y == c).nonzero()[:, 0]
        d = torch.cdist(xs.flatten(1), x[at].flatten(1))
        out.append(at[d.topk(n, dim=1, largest=False).indices])
    return torch.stack(out, 1)


def pgd(network, maps, evidence, limits, x0, t, guide, eps, steps, begin, mode):
    """Which of the rows are broken in any step."""
    lower, upper = (x0 - eps).clamp(0, 1), (x0 + eps).clamp(0, 1)
    start = {"guide": guide, "self": x0, "random": x0 + eps * (2 * torch.rand_like(x0) - 1)}[begin]
    adv = torch.minimum(torch.maximum(start, lower), upper)
    broken = torch.zeros(len(adv), dtype=torch.bool, device=adv.device)
    momentum = torch.zeros_like(adv)
    found = {}
    for i in range(steps):
        fresh = i % 3 == 0 or i == steps - 1
        adv = adv.detach().requires_grad_(True)
        z = network(adv)
        target = z.gather(1, t[:, None])[:, 0]
        best = z.scatter(1, t[:, None], -torch.inf).amax(1)
        missing = [F.relu(best - target + 0.02) * 0.3]
        holds = best < target
        for k, (radius, ratio) in limits.items():
            q = maps[k](adv)
            if fresh:
                found[k] = evidence[k].find(q.detach(), t)
            own = evidence[k].distance(q, found[k][0])
            other = evidence[k].distance(q, found[k][1])
            with torch.no_grad():
                holds = holds & (own <= radius) & (other >= ratio * own)
            missing.append(F.relu((own / radius).log() + 0.005))
            missing.append(F.relu((ratio * own / other).log() + 0.005))
        if fresh:
            broken |= holds
        loss = torch.stack(missing)
        loss = loss.sum(0) if mode == "sum" else loss.sum(0) * 0.2 + loss.amax(0)
        (grad,) = torch.autograd.grad(loss.sum(), adv)
        grad = grad / grad.abs().mean(1, keepdim=True).clamp_min(1e-12)
        momentum = 0.75 * momentum + grad
        step = eps * (0.25 if i < steps // 3 else 0.08 if i < 2 * steps // 3 else 0.02)
        adv = torch.minimum(torch.maximum(adv.detach() - step * momentum.sign(), lower), upper)
    return broken
