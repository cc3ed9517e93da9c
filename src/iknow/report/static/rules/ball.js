/* Ball: all samples within a radius ε, or within one for each class. */

import { short } from "../dom.js";
import { codeAt, distanceAt } from "../layer.js";
import { cross } from "../plot.js";
import { makeRule, WITHIN_RADIUS } from "./rule.js";

const radiusOf = (layer, { radii }, i, j) => radii[codeAt(layer, i, j)];

/* In units of its class's radius: d <= ε exactly when d / ε <= 1, rounding included. */
function inRadii(layer, setting, i, j) {
  const distance = distanceAt(layer, i, j);
  const units = distance / radiusOf(layer, setting, i, j);
  return Number.isNaN(units) ? (distance === Infinity ? Infinity : 0) : units;
}

/** @type {Ball} */
const OF_CLASS = {
  reach: (layer, setting, i, j) => setting.factor * radiusOf(layer, setting, i, j),
  holds: (layer, setting, i, j) => inRadii(layer, setting, i, j) <= setting.factor,
  words: (reach, { factor }) =>
    (factor === 1 ? "the radius of each class" : `${short(factor)} × the radius of each class`),
};

/* A radius for each class: all of them move together, by a factor. */
const BallOfClass = makeRule({
  name: "Ball", parameters: ["factor"], slack: "factor", unit: "radii",
  words: "Samples within the radius of their class count.",
  ballOf: () => OF_CLASS,
  measure: inRadii,
  measuredReach: (layer, { factor }) => factor,
  fullWithin: OF_CLASS.reach,
  emptyBeyond: OF_CLASS.reach,
  ratioOf: () => null,
  drawLines: (plot, { factor }) => cross(plot, factor, [5, 3]),
});

export const Ball = makeRule({
  name: "Ball", parameters: ["radius"],
  words: "Samples within the radius ε count.",
  ballOf: () => WITHIN_RADIUS,
  fullWithin: WITHIN_RADIUS.reach,
  emptyBeyond: WITHIN_RADIUS.reach,
  drawLines: (plot, { radius }) => cross(plot, radius, [5, 3]),
  settle: (setting) => (Array.isArray(setting.radius)
    ? { factor: 1, ...setting, rule: BallOfClass, radii: setting.radius, radius: null } : setting),
});
