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
/* Distances of a sample to the nearest few classes. */
export const distancesOf = (layer, i, most = layer.width) =>
  Array.from({ length: most }, (_, j) => distanceAt(layer, i, j));
/** @type {(layer: Layer, setting: Setting, i: number) => number} */
export const kthDistance = (layer, { k }, i) => layer.neighbors[i * layer.nNeighbors + k - 1];
/** @type {(layer: Layer, setting: Setting, i: number, j: number) => boolean} */
export const isRanked = (layer, { k }, i, j) => layer.ranks[i * layer.width + j] <= k;
/** Whether any sample is within the radius. @type {(layer: Layer, setting: Setting, i: number) => boolean} */
export const isInhabited = (layer, { radius }, i) =>
  distanceAt(layer, i, 0) <= radius || (layer.width > 1 && distanceAt(layer, i, 1) <= radius);

/* Quorum: how many samples of a class must be within reach for it to count, in words.

    setting.quorum    [for the class the model says, for any other] */

const ORDINALS = ["", "", "second", "third", "fourth", "fifth"];

/* How many the class in column j needs. */
export const countNeeded = ({ quorum }, j) => quorum[j === 0 ? 0 : 1];

/* The sample that completes a quorum of m: "nearest", "third nearest". */
export const rankWords = (m) => (m === 1 ? "nearest" : `${ORDINALS[m] ?? `${m}th`} nearest`);

/* What a distance goes to: "any other class", or "3 samples of any other class". */
export const targetWords = (m, words) => (m === 1 ? words : `${m} samples of ${words}`);

/* A sentence, or nothing if one sample is enough for every class. */
export function describeQuorum({ quorum: [own, other] }) {
  if (own === 1 && other === 1) return "";
  if (own === other) return `A class counts with ${own} samples within reach.`;
  const one = own === 1 ? "one sample" : `${own} samples`;
  const another = other === 1 ? "one" : `${other}`;
  return `The class it says counts with ${one} within reach, any other with ${another}.`;
}
