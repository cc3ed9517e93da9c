/* RelativeBall: the class the model says, within ε; others up to `ratio` times as far as that. */

import { short } from "../dom.js";
import { distanceAt } from "../layer.js";
import { line, name } from "../plot.js";
import { makeRule, NO_BALL, WITHIN_RADIUS } from "./rule.js";

const multiple = (layer, { ratio }, i) => ratio * distanceAt(layer, i, 0);

/** @type {Ball} */
const MULTIPLE = {
  reach: multiple,
  holds: (layer, setting, i, j) => j === 0 || distanceAt(layer, i, j) <= multiple(layer, setting, i),
  words: (reach, { ratio }) => `${reach}, ${short(ratio)} × the distance to the class it says`,
};

/* With a ratio below 1 the class it says would be beyond the reach for others, but counts. */
const SHORT = { ...MULTIPLE, reach: (layer, setting, i, j) =>
  (j === 0 ? distanceAt(layer, i, 0) : multiple(layer, setting, i)) };
SHORT.words = (reach, { ratio }) =>
  `${reach}, the distance to the class it says, and ${short(ratio)} × that for others`;

const FAR = { ...NO_BALL, words: (reach) => `none, as the class it says is not within ε = ${reach}` };

/* Up to ε, a ray: the other class that many times as far. Beyond, nothing counts. */
function ray(plot, { radius, ratio }) {
  const { pen, x, y, mostX, mostY } = plot;
  const end = Math.min(radius, mostX, mostY / ratio);
  line(pen, [[x(0), y(0)], [x(end), y(end * ratio)]], [5, 3]);
  if (radius < mostX) line(pen, [[x(radius), y(0)], [x(radius), y(mostY)]], [5, 3]);
  name(plot, "IK", x(0) + 8, y(mostY) + 16, "left");
  if (radius < mostX) name(plot, "IDK", x(mostX) - 8, y(mostY) + 16, "right");
  name(plot, "IMK", Math.min(x(radius), x(mostX)) - 8, y(0) - 8, "right");
}

export const RelativeBall = makeRule({
  name: "RelativeBall", parameters: ["radius", "ratio"], fromBelief: true,
  words: "If the class it says is within ε, others count up to a multiple of its distance.",
  ballOf(layer, { radius, ratio }, i) {
    const own = distanceAt(layer, i, 0);
    if (own > radius || own === Infinity) return FAR;
    return ratio < 1 ? SHORT : MULTIPLE;
  },
  emptyBeyond: WITHIN_RADIUS.reach,
  ratioOf: ({ ratio }) => ratio,
  drawLines: ray,
});
