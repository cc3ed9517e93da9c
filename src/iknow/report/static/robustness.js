"use strict";
/* Certificates: how far an input may be moved before something else could be known about it.

As in iknow.core.robustness, which says why: each of several lengths in a layer must be used up
first, so the largest counts; rounding uses up some of it, and a layer stretches a change of the
input by no more than its Lipschitz constant; and of the layers, again the largest counts, as IK
needs all of them. Neither rounding nor bisectors ("crossing") depend on the settings. */

const Robustness = (() => {
  const FULL_WITHIN = ["Ball", "BallElseNearest", "BallWithNearest"];
  const [AT_MOST, AT_LEAST] = [1 + 1e-9, 1 - 1e-9]; // of a measured distance
  const FURTHEST = 1e15 / 2;
  const EMPTY_BEYOND = ["Ball", "BallWithNearest", "RelativeBall"];

  /* How far the activation may move before another class could be alone within reach. */
  function clearance(layer, setting, i) {
    const { rule, radius, radii, factor } = setting;
    const radiusOf = (j) => factor * radii[layer.codes[i * layer.width + j]];
    const limit = (j) => {
      if (radii) return radiusOf(j);
      return EMPTY_BEYOND.includes(rule) ? radius : Infinity;
    };
    let [outside, other] = [Infinity, Infinity];
    for (let j = 1; j < layer.width; j++) {
      const distance = Algebra.distanceAt(layer, i, j) * AT_LEAST;
      if (distance === Infinity) continue;
      other = Math.min(other, distance);
      outside = Math.min(outside, limit(j) === Infinity ? -Infinity : distance - limit(j));
    }
    const own = Algebra.distanceAt(layer, i, 0) * AT_MOST;
    const inside = (reach) => (own === Infinity ? -Infinity : reach - own);
    if (radii) return Math.max(inside(radiusOf(0)), outside);
    const full = FULL_WITHIN.includes(rule) ? radius : 0;
    const ratio = rule === "RelativeBall" ? setting.ratio : 1;
    const nearer = own === Infinity ? -Infinity : (ratio * other - own) / (1 + ratio);
    return Math.max(inside(full), outside, nearer, layer.crossing[i]);
  }

  function radiusOf(evidence, settings, i) {
    if (evidence.invalid[i]) return 0;
    return evidence.layers.reduce((best, layer, l) => {
      if (!Number.isFinite(layer.lipschitz)) return best;
      const room = clearance(layer, settings[l], i) - layer.rounding[i];
      if (!(room > 0)) return best;
      if (room === Infinity) return Infinity;
      return Math.max(best, Math.min(room / layer.lipschitz, FURTHEST));
    }, 0);
  }

  /* The ℓ2 length below which no change of the input makes another class IK, of shape (n,). */
  const find = (evidence, settings) =>
    Float64Array.from({ length: evidence.n }, (_, i) => radiusOf(evidence, settings, i));

  return { find };
})();
