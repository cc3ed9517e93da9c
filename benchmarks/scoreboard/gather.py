"""Records of the experiments: networks trained, data shifted, evidence measured, on one device.

    python -m benchmarks.scoreboard.gather DATA OUT --seeds 3 --device cuda [--quick] [--only NAME]

One file OUT/NAME.npz per network holds, per seed and cell, what every method needs: the belief, the
label (-1: no answer is right), log-odds of the top class, and per space (a layer with a metric) the
distances to the 1st..5th nearest training sample of the believed class, `own`, and the least over
the other classes of the 1st..5th nearest, `other`. Distances are in units of the median of `own` of
the validation samples. `explore` makes the tables of them, on any machine.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.scoreboard.pack import undelta

M = 5
NAMES = ("mnist_mlp", "mnist_cnn", "grid", "gtsrb")


@dataclass
class Data:
    name: str
    x: torch.Tensor  # training
    y: torch.Tensor
    xv: torch.Tensor
    yv: torch.Tensor
    xt: torch.Tensor
    yt: torch.Tensor
    n_classes: int
    image: bool
    foreign: dict[str, torch.Tensor]


def load(folder: Path, name: str, seed: int, quick: bool, device: str) -> Data:
    rng = np.random.default_rng(seed)
    foreign = {}
    torch.manual_seed(seed)
    if name.startswith("mnist"):
        d = np.load(folder / "mnist.npz")
        shape = (1, 28, 28) if name == "mnist_cnn" else (784,)
        x = d["x_train"].reshape(-1, *shape).astype(np.float32) / 255
        xt = d["x_test"].reshape(-1, *shape).astype(np.float32) / 255
        y, yt = d["y_train"], d["y_test"]
        order = rng.permutation(len(x))
        v, t, s = order[:5000], order[5000:], rng.permutation(len(xt))[:5000]
        x, y, xv, yv, xt, yt = x[t], y[t], x[v], y[v], xt[s], yt[s]
        g = undelta(np.load(folder / "gtsrb.npz")["x_test"])[rng.permutation(12630)[:1500]]
        grey = torch.from_numpy(g.mean(axis=3).astype(np.float32) / 255)[:, None]
        grey = F.interpolate(grey, size=28, mode="bilinear").reshape(-1, *shape)
        foreign["signs"] = grey
        # Letters and other marks: strokes of two digits, one turned, laid over each other.
        a, b = x[:1500].reshape(-1, 28, 28), x[1500:3000].reshape(-1, 28, 28)
        foreign["overlaid"] = torch.from_numpy(
            np.maximum(a, b.transpose(0, 2, 1)[:, ::-1]).reshape(-1, *shape).copy()
        )
    elif name == "gtsrb":
        d = np.load(folder / "gtsrb.npz")
        x = undelta(d["x_train"]).transpose(0, 3, 1, 2).astype(np.float32) / 255
        xt = undelta(d["x_test"]).transpose(0, 3, 1, 2).astype(np.float32) / 255
        y, yt = d["y_train"], d["y_test"]
        order = rng.permutation(len(xt))
        v, t = order[:5000], order[5000:]
        xv, yv, xt, yt = xt[v], yt[v], xt[t], yt[t]
        m = np.load(folder / "mnist.npz")["x_test"][rng.permutation(10000)[:1500]]
        m = torch.from_numpy(m.astype(np.float32) / 255)[:, None]
        foreign["digits"] = F.interpolate(m, size=32, mode="bilinear").repeat(1, 3, 1, 1)
    else:
        d = np.load(folder / "grid.npz")
        order = rng.permutation(10000)
        x, y = d["x"][order].astype(np.float32), d["y"][order]
        x = (x - x[:4000].mean(axis=0)) / x[:4000].std(axis=0)
        x, xv, xt = x[:4000], x[4000:9000], x[9000:]
        y, yv, yt = y[:4000], y[4000:9000], y[9000:]
    if quick:
        x, y, xv, yv, xt, yt = x[:800], y[:800], xv[:300], yv[:300], xt[:200], yt[:200]
        if name == "gtsrb":
            some = rng.permutation(len(d["y_train"]))[:800]
            x = undelta(d["x_train"][:, some]).transpose(0, 3, 1, 2).astype(np.float32) / 255
            y = d["y_train"][some]
    n_classes = int(y.max()) + 1
    if name != "grid":
        foreign["uniform"] = torch.rand(1500, *x.shape[1:])
    arrays = [torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in (x, xv, xt)]
    labels = [torch.from_numpy(a.astype(np.int64)).to(device) for a in (y, yv, yt)]
    n = 60 if quick else 1000
    foreign = {k: a[:n].contiguous().to(device) for k, a in foreign.items()}
    return Data(
        name,
        arrays[0],
        labels[0],
        arrays[1],
        labels[1],
        arrays[2],
        labels[2],
        n_classes,
        name != "grid",
        foreign,
    )


class Network(nn.Module):
    """Logits and the last hidden layer."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def build(name: str, n_classes: int) -> Network:
    if name in ("mnist_mlp", "grid"):
        n_in = 784 if name == "mnist_mlp" else 12
        return Network(
            nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()),
            nn.Linear(32, n_classes),
        )
    c, side, wide = (1, 4, 64) if name == "mnist_cnn" else (3, 5, 128)
    return Network(
        nn.Sequential(
            nn.Conv2d(c, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * side * side, wide),
            nn.ReLU(),
        ),
        nn.Linear(wide, n_classes),
    )


PLAN = {  # epochs, batch
    "mnist_mlp": (40, 512),
    "mnist_cnn": (6, 256),
    "grid": (100, 128),
    "gtsrb": (25, 128),
}


def train(name: str, x, y, n_classes: int, seed: int, quick: bool) -> Network:
    torch.manual_seed(seed)
    network = build(name, n_classes).to(x.device)
    epochs, batch = PLAN[name]
    if quick:
        epochs = max(epochs // 8, 2)
    for attempt in range(5):
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=x.is_cuda)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(x), device=x.device), batch):
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(network(x[rows]), y[rows]).backward()
                optimizer.step()
        if (predict(network, x[:2000]).argmax(1) == y[:2000]).float().mean() > 0.5 or quick:
            break
        network = build(name, n_classes).to(x.device)
    return network.eval().requires_grad_(False)


@torch.no_grad()
def predict(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([network(part) for part in torch.split(x, 4096)])


@torch.no_grad()
def hidden(network: Network, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([network.body(part) for part in torch.split(x, 4096)])


# --- shifts -----------------------------------------------------------------------------------


def image_shifts(data: Data, x: torch.Tensor) -> dict[str, torch.Tensor]:
    shape = x.shape
    im = x.reshape(-1, 1, 28, 28) if data.name.startswith("mnist") else x
    g = torch.Generator(device=x.device).manual_seed(1)
    weak, strong = (0.2, 0.4) if im.shape[1] == 1 else (0.05, 0.15)
    out = {
        "noise_weak": (im + weak * torch.randn(im.shape, device=x.device, generator=g)).clamp(0, 1),
        "noise_strong": (im + strong * torch.randn(im.shape, device=x.device, generator=g)).clamp(
            0, 1
        ),
        "blur": blur(im, 2.0 if im.shape[1] == 1 else 1.5),
        "contrast": (im.mean((1, 2, 3), keepdim=True) * 0.7 + 0.3 * im).clamp(0, 1),
        "rotation": rotate(im, 45.0 if im.shape[1] == 1 else 25.0, g),
        "occlusion": occlude(im, 12, g),
    }
    return {k: v.reshape(shape) for k, v in out.items()}


def blur(im, sigma):
    r = int(3 * sigma)
    k = torch.exp(-0.5 * (torch.arange(-r, r + 1, device=im.device) / sigma) ** 2)
    k = (k / k.sum()).to(im.dtype)
    c = im.shape[1]
    im = F.conv2d(
        F.pad(im, (r, r, 0, 0), mode="replicate"), k.view(1, 1, 1, -1).repeat(c, 1, 1, 1), groups=c
    )
    return F.conv2d(
        F.pad(im, (0, 0, r, r), mode="replicate"), k.view(1, 1, -1, 1).repeat(c, 1, 1, 1), groups=c
    )


def rotate(im, degrees, g):
    sign = torch.randint(0, 2, (len(im),), device=im.device, generator=g) * 2 - 1
    a = sign * math.radians(degrees)
    theta = torch.stack(
        [torch.stack([a.cos(), -a.sin(), 0 * a], 1), torch.stack([a.sin(), a.cos(), 0 * a], 1)], 1
    )
    return F.grid_sample(
        im,
        F.affine_grid(theta.to(im.dtype), list(im.shape), align_corners=False),
        padding_mode="border",
        align_corners=False,
    )


def occlude(im, size, g):
    n, _, h, w = im.shape
    top = torch.randint(4, h - size - 3, (n, 1, 1, 1), device=im.device, generator=g)
    left = torch.randint(4, w - size - 3, (n, 1, 1, 1), device=im.device, generator=g)
    rows = torch.arange(h, device=im.device).view(1, 1, -1, 1)
    cols = torch.arange(w, device=im.device).view(1, 1, 1, -1)
    inside = (rows >= top) & (rows < top + size) & (cols >= left) & (cols < left + size)
    return torch.where(inside, torch.full_like(im, 0.5), im)


def tabular_shifts(data: Data, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The record is wrong, the truth stays: labels are those of the sample before the shift."""
    g = torch.Generator(device=x.device).manual_seed(1)
    n, d = x.shape
    order = torch.rand(n, d, device=x.device, generator=g).argsort(1)
    swapped = x.clone()
    swapped.scatter_(1, order[:, :2], x.gather(1, order[:, :2].flip(1)))
    other = data.x[
        torch.randint(0, len(data.x), (n, d), device=x.device, generator=g),
        torch.arange(d, device=x.device),
    ]
    resampled = x.clone()
    resampled.scatter_(1, order[:, :3], other.gather(1, order[:, :3]))
    return {
        "noise_weak": x + 0.3 * torch.randn(x.shape, device=x.device, generator=g),
        "noise_strong": x + 1.0 * torch.randn(x.shape, device=x.device, generator=g),
        "swap": swapped,
        "scaling": x * 2,
        "resampling": resampled,
    }


ATTACKS = {
    "mnist_mlp": (0.05, 0.1, 0.2),
    "mnist_cnn": (0.05, 0.1, 0.2),
    "grid": (0.1, 0.3, 1.0),
    "gtsrb": (0.01, 0.03, 0.06),
}


def attack(network, x, y, eps, image, steps=40):
    adv = x.clone()
    for _ in range(steps):
        adv.requires_grad_(True)
        loss = F.cross_entropy(network(adv), y, reduction="sum")
        (grad,) = torch.autograd.grad(loss, adv)
        adv = adv.detach() + eps / 8 * grad.sign()
        adv = torch.minimum(torch.maximum(adv, x - eps), x + eps)
        if image:
            adv = adv.clamp(0, 1)
    return adv


# --- evidence ---------------------------------------------------------------------------------


def spaces(network: Network, data_x: torch.Tensor, y: torch.Tensor, tabular: bool):
    """Per space the map from inputs to where distances are measured, fitted on training data."""
    flat = data_x.flatten(1)
    h, z = hidden(network, data_x), predict(network, data_x)
    n_classes = z.shape[1]
    q = torch.quantile(
        flat[:20000, :64] if flat.shape[1] > 64 else flat,
        torch.tensor([0.25, 0.75], device=h.device),
        dim=0,
    )
    iqr = (q[1] - q[0]).clamp_min(1e-6)
    means = torch.stack(
        [h[y == c].mean(0) if (y == c).any() else h.mean(0) for c in range(n_classes)]
    )
    within = (h - means[y]).T @ (h - means[y]) / len(h)
    within = 0.9 * within + 0.1 * torch.eye(len(within), device=h.device) * within.diagonal().mean()
    whiten = torch.linalg.inv(torch.linalg.cholesky(within.double())).T.float()
    maps = {
        "input": lambda x: x.flatten(1),
        "hidden_euclid": lambda x: hidden(network, x),
        "hidden_cosine": lambda x: F.normalize(hidden(network, x), dim=1),
        "hidden_white": lambda x: hidden(network, x) @ whiten,
        "logits": lambda x: predict(network, x),
        "logits_cosine": lambda x: F.normalize(predict(network, x), dim=1),
    }
    if tabular:
        maps["input_iqr"] = lambda x: x.flatten(1) / iqr
        maps["input_raw"] = maps["input"]
    return maps


@torch.no_grad()
def class_distances(queries, train, y, n_classes, m=M, chunk=4096):
    """(n, n_classes, m) distances to the m nearest of each class."""
    center = train.mean(0)
    train, queries = train - center, queries - center
    groups = [train[y == c] for c in range(n_classes)]
    parts = []
    for part in torch.split(queries, chunk):
        rows = []
        for group in groups:
            k = min(m, len(group))
            if k == 0:
                rows.append(torch.full((len(part), m), torch.inf, device=part.device))
                continue
            d2 = torch.addmm((group * group).sum(1), part, group.T, alpha=-2)
            near = d2.topk(k, dim=1, largest=False).values + (part * part).sum(1, keepdim=True)
            near = near.clamp_min(0).sqrt()
            rows.append(F.pad(near, (0, m - k), value=torch.inf))
        parts.append(torch.stack(rows, 1))
    return torch.cat(parts)


def own_and_other(d, belief):
    rows = torch.arange(len(d), device=d.device)
    own = d[rows, belief].clone()
    d = d.clone()
    d[rows, belief] = torch.inf
    return own, d.amin(1)


def record(network, maps, trained, cells, n_classes):
    """Arrays by 'cell/quantity' for cells {name: (x, y)}."""
    x, y = trained
    out, scales = {}, {}
    beliefs = {}
    for cell, (cx, cy) in cells.items():
        z = predict(network, cx)
        top, belief = z.max(1)
        rest = z.clone()
        rest.scatter_(1, belief[:, None], -torch.inf)
        beliefs[cell] = belief
        out[f"{cell}/belief"] = belief.cpu().numpy().astype(np.int8)
        out[f"{cell}/label"] = cy.cpu().numpy().astype(np.int8)
        out[f"{cell}/logodds"] = (top - rest.logsumexp(1)).cpu().numpy().astype(np.float32)
        out[f"{cell}/energy"] = z.logsumexp(1).cpu().numpy().astype(np.float32)
    for space, fn in maps.items():
        t = fn(x)
        for cell, (cx, _) in cells.items():  # validation comes first
            own, other = own_and_other(class_distances(fn(cx), t, y, n_classes), beliefs[cell])
            scale = scales.setdefault(space, float(own[:, 0].median().clamp_min(1e-6)))
            both = torch.cat([own, other], 1) / scale
            out[f"{cell}/{space}"] = both.clamp(1e-5, 6e4).half().cpu().numpy()
    return out


def cells_of(data: Data, network, n: int):
    x, y = data.xt[:n], data.yt[:n]
    cells = {"val": (data.xv, data.yv), "clean": (data.xt[:5000], data.yt[:5000])}
    shifted = image_shifts(data, x) if data.image else tabular_shifts(data, x)
    cells |= {k: (v, y) for k, v in shifted.items()}
    for eps in ATTACKS[data.name]:
        cells[f"attack_{eps}"] = (attack(network, x, y, eps, data.image), y)
    for k, v in data.foreign.items():
        cells[f"foreign_{k}"] = (v, torch.full((len(v),), -1, device=v.device))
    return cells


def run(data: Data, seed: int, quick: bool) -> tuple[dict[str, np.ndarray], Network]:
    n = 60 if quick else 1000
    out = {}
    C, tabular = data.n_classes, not data.image
    network = train(data.name, data.x, data.y, C, seed, quick)
    main_network = network
    maps = spaces(network, data.x, data.y, tabular)
    for k, v in record(network, maps, (data.x, data.y), cells_of(data, network, n), C).items():
        out[f"plain/{k}"] = v
    g = torch.Generator(device="cpu").manual_seed(seed)
    for share in (0.1, 0.2):
        flip = (torch.rand(len(data.y), generator=g) < share).to(data.y.device)
        shift = torch.randint(1, C, (len(data.y),), generator=g).to(data.y.device)
        noisy = torch.where(flip, (data.y + shift) % C, data.y)
        network = train(data.name, data.x, noisy, C, seed + 100, quick)
        maps = spaces(network, data.x, noisy, tabular)
        cells = {"val": (data.xv[:2500], data.yv[:2500]), "clean": (data.xt[:2500], data.yt[:2500])}
        for k, v in record(network, maps, (data.x, noisy), cells, C).items():
            out[f"flip{int(100 * share)}/{k}"] = v
    if C > 2:
        gone = {10: [3, 7, 4, 8, 1], 43: [12, 4, 25, 38, 13]}[C][seed % 5]
        keep, keep_v, keep_t = data.y != gone, data.yv != gone, data.yt != gone
        x, y = data.x[keep], data.y[keep]
        network = train(data.name, x, y, C, seed + 200, quick)
        maps = spaces(network, x, y, tabular)
        unseen = data.xt[~keep_t][:n]
        cells = {
            "val": (data.xv[keep_v], data.yv[keep_v]),
            "clean": (data.xt[keep_t][:n], data.yt[keep_t][:n]),
            "unseen": (unseen, torch.full((len(unseen),), -1, device=unseen.device)),
        }
        for k, v in record(network, maps, (x, y), cells, C).items():
            out[f"unseen/{k}"] = v
    return out, main_network


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(NAMES))
    parser.add_argument("--attack-seconds", type=float, default=120)
    parser.add_argument("--limit", type=float, default=330, help="no attack begins after it")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False
    from benchmarks.scoreboard.adaptive import study

    start = time.time()
    attacks, kept = {}, []
    for name in args.only:
        out = {}
        for seed in range(args.seeds):
            data = load(args.data, name, seed, args.quick, args.device)
            arrays, network = run(data, seed, args.quick)
            out |= {f"{seed}/{k}": v for k, v in arrays.items()}
            c = arrays["plain/clean/belief"] == arrays["plain/clean/label"]
            print(
                f"{time.time() - start:6.1f}s {name} seed {seed}: test accuracy {c.mean():.4f}",
                flush=True,
            )
            if name == "mnist_mlp" and seed < 2:
                if seed == 0:
                    torch.save(network.state_dict(), args.out / "mnist_mlp.pt")
                kept.append((network, data))
            np.savez_compressed(
                args.out / f"{name}.npz", **out
            )  # each seed: a stopped run leaves some
            del data, arrays
    for seed, (network, data) in enumerate(kept):
        if time.time() - start > args.limit:
            break
        attacks[seed] = study(network, data, args.quick, args.attack_seconds)
        (args.out / "adaptive.json").write_text(json.dumps(attacks, indent=1))
        print(f"{time.time() - start:6.1f}s adaptive", json.dumps(attacks[seed]), flush=True)
    print(f"{time.time() - start:6.1f}s done", flush=True)


if __name__ == "__main__":
    main()
