/* Parameters: what rules are set by, each with its slider and where it makes a difference. */

import { distanceAt } from "./layer.js";
import { linearScale, quantileScale, wholeScale } from "./slider.js";

export const fewestNeighbors = (layers) => Math.min(...layers.map((layer) => layer.nNeighbors));
const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const samplesOf = (layer) => Array.from({ length: layer.distances.length / layer.width }, (_, i) => i);

/* Distances of a sample to the nearest few classes. */
export const distancesOf = (layer, i, most = layer.width) =>
  Array.from({ length: most }, (_, j) => distanceAt(layer, i, j));

/* A radius to start from where none was given: the middle of d_g. */
function commonRadius(layer) {
  const own = samplesOf(layer).map((i) => distanceAt(layer, i, 0));
  return middle(own.filter(Number.isFinite)) ?? 1;
}

/* A parameter that is `perLayer` is set in each layer, another for all layers at once. turns: the values where
a support can change; that of a radius, only where it reaches the nearest sample of a class. */
/** @type {Record<string, Parameter>} */
export const PARAMETERS = {
  radius: {
    id: "radius", symbol: "ε", smallest: 0, isDistance: true, perLayer: true,
    label: ({ name }) => `ε in layer ${name}`,
    start: commonRadius,
    scale: ([layer]) => quantileScale(samplesOf(layer).flatMap((i) =>
      distancesOf(layer, i, Math.min(2, layer.width)))),
    turns: (layer, i) => [0, ...distancesOf(layer, i)],
  },
  k: {
    id: "k", symbol: "k", smallest: 1, whole: true,
    label: () => "k, nearest samples",
    start: (layer) => Math.min(5, layer.nNeighbors),
    scale: (layers) => wholeScale(fewestNeighbors(layers)),
    turns: (layer) => Array.from({ length: layer.nNeighbors }, (_, k) => k + 1),
  },
  ratio: {
    id: "ratio", symbol: "ratio", smallest: 0, perLayer: true,
    label: ({ name }) => `ratio in layer ${name}`,
    start: () => 1.5,
    scale: ([{ given }]) => linearScale(0, Math.max(4, Math.min(1.25 * (given.ratio ?? 0), 40)), 400),
    turns: () => [],
  },
};
