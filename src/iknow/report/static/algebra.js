"use strict";
/* The algebra: evidence and settings → assertions, reasons, margins. No page, only numbers.

A layer holds, for each sample, its distance to the nearest training sample of the believed class
(column 0) and of other classes, nearest first. Two others are enough to tell every assertion and
reason, as a reach either holds the nearest others or none. Only where each class has a radius of
its own are all of them needed, and there.

    layer     { width, distances, codes, rows, ranks, neighbors, nNeighbors }
              distances, codes, rows, ranks: of shape (n, width); neighbors: (n, nNeighbors)
    setting   { rule, radius, k, ratio, radii, factor }    radii: null, or one for each class
    evidence  { n, layers, belief, truth, invalid, uncertified, counted }

A rank is 1 + the number of neighbours nearer than that distance. So d <= r_k exactly when its rank
<= k, and the r_j themselves are needed for margins only: they come in single precision, and are
compared in single precision, which keeps ties ties. */

const Algebra = (() => {
  const ASSERTIONS = ["IDK", "IMK", "IK"];
  const REASONS = [
    "KNOWN", "OVERLAP", "DISAGREEMENT", "EXTRAPOLATION", "CONTRADICTION", "INVALID",
    "UNCERTIFIED",
  ];
  const [IDK, IMK, IK] = [0, 1, 2];
  const [KNOWN, OVERLAP, DISAGREEMENT, EXTRAPOLATION, CONTRADICTION, INVALID, UNCERTIFIED] =
    [0, 1, 2, 3, 4, 5, 6];
  const RULES = {
    Ball: ["radius"],
    Nearest: ["k"],
    BallElseNearest: ["radius", "k"],
    BallWithNearest: ["radius", "k"],
    RelativeBall: ["radius", "ratio"],
  };

  const distanceAt = (layer, i, j) => layer.distances[i * layer.width + j];

  function nearestDistance(layer, i) {
    const own = distanceAt(layer, i, 0);
    return layer.width > 1 ? Math.min(own, distanceAt(layer, i, 1)) : own;
  }

  /* In units of its class's radius: d <= ε exactly when d / ε <= 1, rounding included. */
  function inUnits(distance, radius) {
    const units = distance / radius;
    return Number.isNaN(units) ? (distance === Infinity ? Infinity : 0) : units;
  }

  /* Which ball counts for a sample: "radius", "kth" (neighbour), "ratio", or "none" at all. */
  function ballOf(layer, setting, i) {
    if (setting.rule === "Ball") return "radius";
    if (setting.rule === "Nearest") return "kth";
    const inhabited = nearestDistance(layer, i) <= setting.radius;
    if (setting.rule === "BallElseNearest") return inhabited ? "radius" : "kth";
    if (!inhabited) return "none";
    if (setting.rule === "RelativeBall") return "ratio";
    return kthDistance(layer, setting, i) > Math.fround(setting.radius) ? "kth" : "radius";
  }

  const kthDistance = (layer, setting, i) =>
    layer.neighbors[i * layer.nNeighbors + setting.k - 1];

  /* Is the nearest sample of the class in column j within reach? */
  function isWithin(layer, setting, i, j) {
    const distance = distanceAt(layer, i, j);
    if (distance === Infinity) return false;
    if (setting.radii) {
      const own = setting.radii[layer.codes[i * layer.width + j]];
      return inUnits(distance, own) <= setting.factor;
    }
    const { rule, radius, k, ratio } = setting;
    const ranked = () => layer.ranks[i * layer.width + j] <= k;
    if (rule === "Ball") return distance <= radius;
    if (rule === "Nearest") return ranked();
    const nearest = nearestDistance(layer, i);
    const inhabited = nearest <= radius;
    if (rule === "BallElseNearest") return inhabited ? distance <= radius : ranked();
    if (!inhabited) return false;
    if (rule === "BallWithNearest") return distance <= radius || ranked();
    return distance <= ratio * nearest;
  }

  /* The reach ρ for the class in column j; the radius stands in where there is none. */
  function reachOf(layer, setting, i, j = 0) {
    if (setting.radii) return setting.factor * setting.radii[layer.codes[i * layer.width + j]];
    const ball = ballOf(layer, setting, i);
    if (ball === "kth") return kthDistance(layer, setting, i);
    return ball === "ratio" ? setting.ratio * nearestDistance(layer, i) : setting.radius;
  }

  /* How far the class in column j lies beyond the reach; negative within it. */
  function beyond(layer, setting, i, j) {
    const distance = distanceAt(layer, i, j);
    if (distance === Infinity) return Infinity;
    const reach = reachOf(layer, setting, i, j);
    const single = !setting.radii && ballOf(layer, setting, i) === "kth";
    return (single ? Math.fround(distance) : distance) - reach;
  }

  function layerMargin(layer, setting, i) {
    let margin = -beyond(layer, setting, i, 0);
    for (let j = 1; j < layer.width; j++) {
      margin = Math.min(margin, beyond(layer, setting, i, j));
    }
    return margin;
  }

  /* One sample under one setting for each layer. */
  function judge(evidence, settings, i) {
    if (evidence.invalid[i]) return { assertion: IDK, reason: INVALID, margin: -Infinity };
    let [empty, believed, contested, mixed, margin] = [false, false, false, false, Infinity];
    evidence.layers.forEach((layer, l) => {
      const own = isWithin(layer, settings[l], i, 0);
      let others = 0;
      for (let j = 1; j < layer.width; j++) others += isWithin(layer, settings[l], i, j) ? 1 : 0;
      empty ||= !own && others === 0;
      believed ||= own;
      contested ||= others > 0;
      mixed ||= others + (own ? 1 : 0) > 1;
      margin = Math.min(margin, layerMargin(layer, settings[l], i));
    });
    if (evidence.uncertified[i]) margin = -Infinity;
    if (empty) return { assertion: IDK, reason: EXTRAPOLATION, margin };
    if (!believed) return { assertion: IDK, reason: CONTRADICTION, margin };
    if (!contested && evidence.uncertified[i]) {
      return { assertion: IMK, reason: UNCERTIFIED, margin };
    }
    if (!contested) return { assertion: IK, reason: KNOWN, margin };
    return { assertion: IMK, reason: mixed ? OVERLAP : DISAGREEMENT, margin };
  }

  /* All samples: columns of shape (n,). */
  function assess(evidence, settings) {
    const assertion = new Uint8Array(evidence.n), reason = new Uint8Array(evidence.n);
    const margin = new Float64Array(evidence.n);
    for (let i = 0; i < evidence.n; i++) {
      const judged = judge(evidence, settings, i);
      assertion[i] = judged.assertion;
      reason[i] = judged.reason;
      margin[i] = judged.margin;
    }
    return { assertion, reason, margin };
  }

  /* What the assertions add up to. matrix: counts of shape (3, nClasses, nTrue), flat. */
  function summarise(evidence, assessed, nClasses, nTrue) {
    const counts = [0, 0, 0], right = [0, 0, 0], reasons = [0, 0, 0, 0, 0, 0, 0];
    const answered = [0, 0, 0];
    const columns = evidence.truth ? nTrue : 1;
    const pairs = new Map();
    for (let i = 0; i < evidence.n; i++) {
      if (!evidence.counted[i]) continue;
      const a = assessed.assertion[i];
      counts[a] += 1;
      reasons[assessed.reason[i]] += 1;
      const said = evidence.belief[i];
      if (said < 0) continue;  // the model gave no answer: neither right nor wrong
      const truth = evidence.truth ? evidence.truth[i] : 0;
      answered[a] += 1;
      if (evidence.truth && truth === said) right[a] += 1;
      const key = (a * nClasses + said) * columns + truth;
      pairs.set(key, (pairs.get(key) ?? 0) + 1);
    }
    const n = counts[0] + counts[1] + counts[2];
    return { counts, answered, right, reasons, pairs, nClasses, columns, n };
  }

  /* How many samples with assertion a were said to be of one class, and are of another. */
  const countAt = ({ pairs, nClasses, columns }, a, said, was) =>
    pairs.get((a * nClasses + said) * columns + was) ?? 0;

  /* The pairs that occur with an assertion: { said, was, n }. */
  function pairsOf({ pairs, nClasses, columns }, a) {
    const found = [];
    for (const [key, n] of pairs) {
      const row = Math.floor(key / columns);
      if (Math.floor(row / nClasses) === a) {
        found.push({ said: row % nClasses, was: key % columns, n });
      }
    }
    return found;
  }

  return {
    ASSERTIONS, REASONS, RULES, IDK, IMK, IK, KNOWN, OVERLAP, DISAGREEMENT, EXTRAPOLATION,
    CONTRADICTION, INVALID, UNCERTIFIED, distanceAt, nearestDistance, inUnits, ballOf, isWithin,
    reachOf, beyond, layerMargin, judge, assess, summarise, countAt, pairsOf,
  };
})();
