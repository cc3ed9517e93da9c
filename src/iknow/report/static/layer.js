/* One layer of the evidence, sample by sample.

For each sample i, a layer holds the distance to the nearest training sample of the believed class
(column 0) and of other classes, nearest first (columns 1, 2, ...). Two others decide every
assertion and reason, as a reach holds the nearest others or none; classes with reaches of their
own need all columns. With a quorum it is the distance to the sample that completes it: nothing else
changes. The samples before that one are kept to show them.

A rank is 1 + the number of neighbors nearer than that distance: d <= r_k exactly when its rank <= k.
The r_j are needed for margins only; they are stored and compared in single precision, which keeps
ties ties. */

/** @type {(layer: Layer, i: number, j: number) => number} */
export const distanceAt = (layer, i, j) => layer.distances[i * layer.width + j];
/** @type {(layer: Layer, setting: Setting, i: number) => number} */
export const kthDistance = (layer, { k }, i) => layer.neighbors[i * layer.nNeighbors + k - 1];
/** @type {(layer: Layer, setting: Setting, i: number, j: number) => boolean} */
export const isRanked = (layer, { k }, i, j) => layer.ranks[i * layer.width + j] <= k;
/** @type {(layer: Layer, i: number) => number} */
export const nearestDistance = (layer, i) =>
  Math.min(distanceAt(layer, i, 0), layer.width > 1 ? distanceAt(layer, i, 1) : Infinity);
/** @type {(layer: Layer, setting: Setting, i: number) => boolean} */
export const isInhabited = (layer, { radius }, i) => nearestDistance(layer, i) <= radius;
