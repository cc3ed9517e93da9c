"""Tables of choices, from records: python -m benchmarks.scoreboard.explore RECORDS [--only NAME]."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import binom

COVERAGES = (0.6, 0.75, 0.9)
M = 5


class Records:
    """One network: arrays by seed/variant/cell/quantity."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        d = np.load(path)
        self.a = {k: d[k] for k in d.files}
        self.seeds = sorted({k.split("/")[0] for k in d.files})
        self.variants = sorted({k.split("/")[1] for k in d.files})
        self.spaces = sorted(
            {k.split("/")[3] for k in d.files} - {"belief", "label", "logodds", "energy"}
        )

    def cells(self, seed, variant):
        return [
            c
            for c in dict.fromkeys(
                k.split("/")[2] for k in self.a if k.startswith(f"{seed}/{variant}/")
            )
            if c != "val"
        ]

    def get(self, seed, variant, cell, what):
        return self.a[f"{seed}/{variant}/{cell}/{what}"]


def rank_up(ref, x):
    """Share of reference values that are at most x."""
    return np.searchsorted(np.sort(ref), x, side="right") / len(ref)


def rank_down(ref, x):
    """Share of reference values that are at least x."""
    return 1 - np.searchsorted(np.sort(ref), x, side="left") / len(ref)


class Voices:
    """u, v per space and quorum, w, of every cell of one network of one seed."""

    def __init__(self, rec, seed, variant):
        self.rec, self.seed, self.variant = rec, seed, variant
        self.n_ref = len(rec.get(seed, variant, "val", "label")) // 5
        self.memo = {}

    def raw(self, cell, space, quorum):
        d = self.rec.get(self.seed, self.variant, cell, space).astype(np.float64)
        own, other = d[:, quorum[0] - 1], d[:, M + quorum[1] - 1]
        return own, other / own

    def uv(self, cell, space, quorum):
        key = (cell, space, quorum)
        if key not in self.memo:
            own, ratio = self.raw("val", space, quorum)
            o, r = self.raw(cell, space, quorum)
            self.memo[key] = rank_down(own[: self.n_ref], o), rank_up(ratio[: self.n_ref], r)
        return self.memo[key]

    def w(self, cell):
        ref = self.rec.get(self.seed, self.variant, "val", "logodds")[: self.n_ref]
        return rank_up(ref, self.rec.get(self.seed, self.variant, cell, "logodds"))

    def right(self, cell):
        return self.rec.get(self.seed, self.variant, cell, "belief") == self.rec.get(
            self.seed, self.variant, cell, "label"
        )


Method = Callable[[Voices, str], np.ndarray]


def level(spaces, quorum=(1, 3), g=1.0, confidence=False, out=None) -> Method:
    """min(u / g, v) over spaces; `out` says which spaces to leave out."""

    def method(voices, cell):
        used = [s for s in spaces if out is None or not out(voices, s, quorum)]
        used = used or list(spaces[-1:])
        parts = []
        for s in used:
            u, v = voices.uv(cell, s, quorum)
            parts += [np.minimum(u / g, 1), v]
        if confidence:
            parts.append(voices.w(cell))
        return np.min(parts, axis=0)

    return method


def softmax(voices, cell):
    return voices.rec.get(voices.seed, voices.variant, cell, "logodds")


def energy(voices, cell):
    return voices.rec.get(voices.seed, voices.variant, cell, "energy")


def knn(space, k=5):
    return lambda voices, cell: (
        -voices.raw(cell, space, (1, 1))[0]
        if k == 1
        else -np.minimum(
            voices.rec.get(voices.seed, voices.variant, cell, space)[:, k - 1],
            voices.rec.get(voices.seed, voices.variant, cell, space)[:, M + k - 1],
        ).astype(float)
    )


def trust(space):
    return lambda voices, cell: voices.raw(cell, space, (1, 1))[1]


def augrc(score, wrong):
    """Area under the generalized risk-coverage curve; ties count as their mean."""
    order = np.argsort(-score, kind="stable")
    s, w = score[order], wrong[order].astype(float)
    _, start, counts = np.unique(-s, return_index=True, return_counts=True)
    w = np.repeat(np.add.reduceat(w, start) / counts, counts)
    return np.cumsum(w).mean() / len(w)


def evaluate(records, method, all_voices):
    """Per (network, cell): wrong IK at each coverage and AUGRC, mean over seeds."""
    rows = {}
    for rec in records:
        for seed in rec.seeds:
            for variant in rec.variants:
                voices = all_voices[rec.name, seed, variant]
                val = method(voices, "val")
                if method not in (softmax, energy):
                    val = val[voices.n_ref :]
                val = np.sort(val)[::-1]
                limits = [val[int(np.ceil(c * len(val))) - 1] for c in COVERAGES]
                clean = method(voices, "clean")
                for cell in rec.cells(seed, variant):
                    if variant == "unseen" and cell == "clean":
                        continue
                    s, wrong = method(voices, cell), ~voices.right(cell)
                    values = [100 * ((s >= limit) & wrong).mean() for limit in limits]
                    n = min(len(s), len(clean))
                    if cell == "clean":
                        a = augrc(s, wrong)
                    else:
                        a = augrc(
                            np.r_[clean[:n], s[:n]], np.r_[~voices.right("clean")[:n], wrong[:n]]
                        )
                    name = cell if variant == "plain" else variant
                    rows.setdefault((rec.name, name), []).append([*values, a])
    return {k: np.mean(v, axis=0) for k, v in rows.items()}


def table(records, methods, all_voices, title):
    print(
        f"\n## {title}\n\nmethod | .60 | .75 | .90 | AUGRC | clean .75 | .75 by network: {', '.join(r.name for r in records)} | .90 by network"
    )
    results = {}
    for name, method in methods.items():
        rows = evaluate(records, method, all_voices)
        results[name] = rows
        nets = [np.mean([v for k, v in rows.items() if k[0] == r.name], axis=0) for r in records]
        mean = np.mean(nets, axis=0)
        clean = np.mean([v[1] for k, v in rows.items() if k[1] == "clean"])
        print(
            f"{name:34s} | {mean[0]:5.2f} | {mean[1]:5.2f} | {mean[2]:5.2f} | {mean[3]:.4f} | {clean:.2f} | "
            + " ".join(f"{n[1]:5.2f}" for n in nets)
            + " | "
            + " ".join(f"{n[2]:5.2f}" for n in nets),
            flush=True,
        )
    return results


# --- layers that say nothing ------------------------------------------------------------------


def agreement(voices, space, quorum):
    _, ratio = voices.raw("val", space, quorum)
    return (ratio[: voices.n_ref] >= 1).mean()


def auroc(voices, space, quorum):
    """AUROC of the ratio for 'the belief is right' on the reference part, and its lower bound."""
    _, ratio = voices.raw("val", space, quorum)
    ratio, right = ratio[: voices.n_ref], voices.right("val")[: voices.n_ref]
    n1, n0 = right.sum(), (~right).sum()
    if n0 == 0:
        return 0.5, 0.0
    a = np.mean(
        [(ratio[right] > r).mean() + 0.5 * (ratio[right] == r).mean() for r in ratio[~right]]
    )
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    se = np.sqrt(
        max(a * (1 - a) + (n1 - 1) * (q1 - a * a) + (n0 - 1) * (q2 - a * a), 0) / (n1 * n0)
    )
    return a, a - 1.645 * se


def kappa(voices, space):
    """Agreement of the layer's nearest sample with the belief, beyond chance."""
    belief = voices.rec.get(voices.seed, voices.variant, "val", "belief")[: voices.n_ref]
    share = np.bincount(belief) / len(belief)
    chance = (share**2).sum()
    return (agreement(voices, space, (1, 1)) - chance) / (1 - chance)


# --- certified coverage -----------------------------------------------------------------------


def certified(score, right, accuracy=0.99, confidence=0.95, step=0.01):
    """Threshold of the largest coverage that a fixed sequence of exact tests certifies."""
    n = len(score)
    order = np.argsort(-score, kind="stable")
    s, wrong = score[order], np.cumsum(~right[order])
    best = np.inf
    least = int(np.ceil(np.log(1 - confidence) / np.log(accuracy)))
    for k in range(max(3 * least, int(step * n)), n + 1, max(int(step * n), 1)):
        while k < n and s[k] == s[k - 1]:
            k += 1
        if binom.cdf(wrong[k - 1], k, 1 - accuracy) > 1 - confidence:
            break
        best = s[k - 1]
    return best


def paths(tabular):
    inp = "input"
    hid = "hidden_cosine"
    out = {}
    for g in (1, 0.5, 0.2, 0.05):
        out[f"uv g={g}"] = level((inp, hid), g=g)
        out[f"uvw g={g}"] = level((inp, hid), g=g, confidence=True)
        out[f"uw g={g}"] = (
            lambda g: (
                lambda voices, cell: np.min(
                    [np.minimum(voices.uv(cell, s, (1, 3))[0] / g, 1) for s in (inp, hid)]
                    + [voices.w(cell)],
                    axis=0,
                )
            )
        )(g)
        out[f"hidden uvw g={g}"] = level((hid,), g=g, confidence=True)
        out[f"hidden uv g={g}"] = level((hid,), g=g)
    out["w + v hidden (sum)"] = lambda voices, cell: (
        voices.w(cell) + voices.uv(cell, hid, (1, 3))[1]
    )
    out["w + v both (sum)"] = lambda voices, cell: (
        2 * voices.w(cell) + voices.uv(cell, hid, (1, 3))[1] + voices.uv(cell, inp, (1, 3))[1]
    )
    out["w alone, 4/5"] = lambda voices, cell: softmax(voices, cell)
    return out


def certificates(records, all_voices, accuracy):
    print(
        f"\n## Certified coverage at {accuracy} with confidence 0.95 (coverage of the test part, and its accuracy on IK)\n"
    )
    print("path | " + " | ".join(r.name for r in records))
    for name in [
        "softmax, all 5,000",
        *paths(False),
        "chosen on the reference part",
        "best by Bonferroni over 6",
    ]:
        line = []
        for rec in records:
            got = []
            for seed in rec.seeds:
                voices = all_voices[rec.name, seed, "plain"]
                right_v, right_t = voices.right("val"), voices.right("clean")
                n = voices.n_ref
                if name == "softmax, all 5,000":
                    v, t = softmax(voices, "val"), softmax(voices, "clean")
                    limit = certified(v, right_v, accuracy)
                elif name.startswith("chosen"):
                    best = (-1, None)
                    for p in paths(False).values():
                        v = p(voices, "val")[:n]
                        order = np.argsort(-v, kind="stable")
                        wrong = np.cumsum(~right_v[:n][order])
                        ok = np.nonzero(binom.cdf(wrong, np.arange(1, n + 1), 1 - accuracy) <= 0.3)[
                            0
                        ]
                        best = (
                            max(best, (ok.max() if len(ok) else -1, -len(best)), key=lambda b: b[0])
                            if False
                            else (
                                ((ok.max() if len(ok) else -1), p)
                                if (ok.max() if len(ok) else -1) > best[0] or best[1] is None
                                else best
                            )
                        )
                    p = best[1]
                    t = p(voices, "clean")
                    limit = certified(p(voices, "val")[n:], right_v[n:], accuracy)
                elif name.startswith("best by"):
                    some = [
                        "uvw g=1",
                        "uvw g=0.2",
                        "uw g=0.2",
                        "uw g=0.05",
                        "hidden uvw g=0.2",
                        "w + v hidden (sum)",
                    ]
                    tried = []
                    for k in some:
                        p = paths(False)[k]
                        limit = certified(
                            p(voices, "val")[n:], right_v[n:], accuracy, 1 - 0.05 / len(some)
                        )
                        tried.append(((p(voices, "val")[n:] >= limit).mean(), limit, p))
                    _, limit, p = max(tried, key=lambda x: x[0])
                    t = p(voices, "clean")
                else:
                    p = paths(False)[name]
                    t = p(voices, "clean")
                    limit = certified(p(voices, "val")[n:], right_v[n:], accuracy)
                ik = t >= limit
                got.append((ik.mean(), right_t[ik].mean() if ik.any() else np.nan))
            m = np.mean(got, axis=0)
            line.append(f"{m[0]:.3f} (.{round(10000 * m[1]) if m[1] == m[1] else 'none'})")
        print(f"{name:30s} | " + " | ".join(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("records", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--parts", default="abcdefhs")
    args = parser.parse_args()
    records = [
        Records(p)
        for p in sorted(args.records.glob("*.npz"))
        if not args.only or p.stem in args.only
    ]
    voices = {(r.name, s, v): Voices(r, s, v) for r in records for s in r.seeds for v in r.variants}
    inp, hid = "input", "hidden_cosine"
    both = (inp, hid)
    t = lambda title, methods, rs=records: table(rs, methods, voices, title)  # noqa: E731
    if "s" in args.parts:
        t(
            "Baselines",
            {
                "softmax": softmax,
                "energy": energy,
                "knn hidden": knn("hidden_cosine"),
                "knn input": knn(inp),
                "trust input": trust(inp),
                "trust hidden": trust("hidden_euclid"),
                "level": level(both),
            },
        )
    if "a" in args.parts:
        t(
            "(a) layers",
            {
                "input + hidden": level(both),
                "hidden": level((hid,)),
                "input": level((inp,)),
                "input + hidden + logits": level((*both, "logits")),
                "hidden + logits": level((hid, "logits")),
                "input + hidden + logits cosine": level((*both, "logits_cosine")),
            },
        )
    if "b" in args.parts:
        t(
            "(b) quorum",
            {
                f"{q}": level(both, q)
                for q in ((1, 1), (1, 2), (1, 3), (1, 5), (2, 3), (3, 3), (2, 5), (3, 5), (5, 5))
            },
        )
    if "c" in args.parts:
        t(
            "(c) metric of the hidden layer",
            {k: level((inp, k)) for k in ("hidden_euclid", "hidden_cosine", "hidden_white")},
        )
        tab = [r for r in records if "input_iqr" in r.spaces]
        if tab:
            t(
                "(c) metric of a tabular input",
                {k: level((k, hid)) for k in ("input", "input_iqr", "input_raw")},
                tab,
            )
    if "d" in args.parts or "e" in args.parts:
        t(
            "(d, e) confidence, nearness u / g",
            {
                f"g={g}{' + confidence' if c else ''}": level(both, g=g, confidence=c)
                for c in (False, True)
                for g in (1, 0.5, 0.2, 0.05)
            },
        )
    if "f" in args.parts:
        print(
            "\n## (f) what the layers are worth, on the reference part (plain, flip10, flip20, unseen; means over seeds)\n"
        )
        print(
            "network variant space | agreement (1,1) | agreement (1,3) | kappa | AUROC of v | its lower bound"
        )
        for r in records:
            for variant in r.variants:
                for s in (inp, hid):
                    vs = [voices[r.name, seed, variant] for seed in r.seeds]
                    a = np.mean([auroc(v, s, (1, 3)) for v in vs], axis=0)
                    print(
                        f"{r.name} {variant} {s} | {np.mean([agreement(v, s, (1, 1)) for v in vs]):.3f} | "
                        f"{np.mean([agreement(v, s, (1, 3)) for v in vs]):.3f} | {np.mean([kappa(v, s) for v in vs]):.3f} | {a[0]:.3f} | {a[1]:.3f}"
                    )
        rules = {"none": None}
        for limit in (0.5, 0.6, 0.7, 0.8, 0.9):
            rules[f"agreement (1,1) < {limit}"] = (
                lambda m: lambda v, s, q: agreement(v, s, (1, 1)) < m
            )(limit)
            rules[f"agreement of quorum < {limit}"] = (
                lambda m: lambda v, s, q: agreement(v, s, q) < m
            )(limit)
        rules["kappa < 0.5"] = lambda v, s, q: kappa(v, s) < 0.5
        rules["AUROC lower bound < 0.5"] = lambda v, s, q: auroc(v, s, q)[1] < 0.5
        rules["AUROC < 0.7"] = lambda v, s, q: auroc(v, s, q)[0] < 0.7
        t("(f) rule to leave a layer out", {k: level(both, out=f) for k, f in rules.items()})
    if "h" in args.parts:
        for accuracy in (0.99, 0.95):
            certificates(records, voices, accuracy)
    if "x" in args.parts:
        rows = {
            k: evaluate(records, m, voices)
            for k, m in {"softmax": softmax, "level": level(both), "hidden": level((hid,))}.items()
        }
        for key in rows["softmax"]:
            print(key, {k: np.round(v[key], 3).tolist() for k, v in rows.items()})


if __name__ == "__main__":
    main()
