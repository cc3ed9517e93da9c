/* Robustness: how far an input may be moved before something else could be known about it.

As in iknow.core.robustness, which says why: a change must use up each of several lengths in a
layer, so the largest counts, less rounding, divided by the layer's Lipschitz constant. Of the
layers the largest counts, as IK needs all. Rounding and bisectors ("crossing") are not settings. */

const AT_MOST = 1 + 1e-9, AT_LEAST = 1 - 1e-9; // of a measured distance
const FURTHEST = 1e15 / 2;

/* How far the activation may move before another class could be alone within reach. For that it
needs as many samples as a belief does, and the belief as many as contradict one: with a quorum,
distances of their own. Bisectors say which class has the nearest sample, and nothing of others. */
function clearance(layer, setting, i) {
  const { rule } = setting, { attack } = layer;
  const distanceAt = (j) => (attack ?? layer.distances)[i * layer.width + j];
  let [outside, other] = [Infinity, Infinity];
  for (let j = 1; j < layer.width; j++) {
    const distance = distanceAt(j) * AT_LEAST;
    if (distance === Infinity) continue;
    const limit = rule.emptyBeyond(layer, setting, i, j);
    other = Math.min(other, distance);
    outside = Math.min(outside, limit === Infinity ? -Infinity : distance - limit);
  }
  const own = distanceAt(0) * AT_MOST;
  const inside = own === Infinity ? -Infinity : rule.fullWithin(layer, setting, i, 0) - own;
  const ratio = rule.ratioOf(setting);
  const ahead = other === Infinity ? Infinity : ratio * other;
  const nearer = own === Infinity ? -Infinity : (ahead - own) / (1 + ratio);
  const crossing = ratio >= 1 && setting.quorum[1] === 1 ? layer.crossing[i] : -Infinity;
  return Math.max(inside, outside, nearer, crossing);
}

/* What one layer certifies about a sample; the rule decides, and asks here by default. */
export function layerRadius(layer, setting, i) {
  const room = clearance(layer, setting, i) - layer.rounding[i];
  if (!(room > 0)) return 0;
  const lipschitz = layer.lipschitz * layer.stretch[i];
  return room === Infinity ? Infinity : Math.min(room / lipschitz, FURTHEST);
}

function radiusOf({ invalid, layers }, settings, i) {
  if (invalid[i]) return 0;
  return layers.reduce((best, layer, l) => (Number.isFinite(layer.lipschitz)
    ? Math.max(best, settings[l].rule.robustRadius(layer, settings[l], i)) : best), 0);
}

/* The ℓ2 length below which no change of the input makes another class IK, of shape (n,). */
export const find = (evidence, settings) =>
  Float64Array.from({ length: evidence.n }, (_, i) => radiusOf(evidence, settings, i));
