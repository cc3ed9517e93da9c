/* Parameters: what rules are set by, each with its slider and where it makes a difference. */

import { distanceAt } from "./layer.js";
import { linearScale, quantileScale, wholeScale } from "./slider.js";

const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
export const fewestNeighbors = (layers) => Math.min(...layers.map((layer) => layer.nNeighbors));

/* Distances of samples to the believed class and the nearest other, as the rule measures them. */
function measured(layer, setting) {
  const found = [];
  for (let i = 0; i * layer.width < layer.distances.length; i++) {
    for (let j = 0; j < Math.min(2, layer.width); j++) {
      found.push(setting.rule.measure(layer, setting, i, j));
    }
  }
  return found;
}

/* A radius to start from where none was given: the middle of those of the classes, or of d_g. */
function commonRadius(layer) {
  if (layer.given.radii) return middle(layer.given.radii.slice());
  const own = Array.from({ length: layer.distances.length / layer.width },
    (_, i) => distanceAt(layer, i, 0));
  return middle(own.filter(Number.isFinite)) ?? 1;
}

/* As a radius grows, a support changes only where it reaches the nearest sample of a class. */
const reached = (layer, setting, i) => [0, ...Array.from({ length: layer.width },
  (_, j) => setting.rule.measure(layer, setting, i, j))];

/** @type {import("./types").Parameter} */
export const RADIUS = {
  id: "radius", symbol: "ε", smallest: 0, whole: false, shared: false,
  label: ({ name }) => `ε in layer ${name}`,
  start: commonRadius,
  scale: ([layer], setting) => quantileScale(measured(layer, setting)),
  turns: reached,
  isThere: () => true,
};

/** @type {import("./types").Parameter} */
export const FACTOR = { ...RADIUS, symbol: "factor", start: () => 1,
  label: ({ name }) => `all ε of layer ${name}, times` };

/** @type {import("./types").Parameter} */
export const K = {
  id: "k", symbol: "k", smallest: 1, whole: true, shared: true,
  label: () => "k, nearest samples",
  start: (layer) => Math.min(5, layer.nNeighbors),
  scale: (layers) => wholeScale(fewestNeighbors(layers)),
  turns: (layer) => Array.from({ length: layer.nNeighbors }, (_, k) => k + 1),
  isThere: (layers) => fewestNeighbors(layers) > 0,
};

/** @type {import("./types").Parameter} */
export const RATIO = {
  id: "ratio", symbol: "ratio", smallest: 1, whole: false, shared: true,
  label: () => "ratio to the nearest",
  start: () => 1.5,
  scale: () => linearScale(1, 4, 300),
  turns: () => [],
  isThere: () => true,
};
