/* RelativeBall: all samples up to `ratio` times as far as the nearest, if that is within ε. */

import { short } from "../dom.js";
import { distanceAt, isInhabited, nearestDistance } from "../layer.js";
import { line, name } from "../plot.js";
import { makeRule, NO_BALL, WITHIN_RADIUS } from "./rule.js";

/** @type {Ball} */
const MULTIPLE = {
  reach: (layer, { ratio }, i) => ratio * nearestDistance(layer, i),
  holds: (layer, { ratio }, i, j) => distanceAt(layer, i, j) <= ratio * nearestDistance(layer, i),
  words: (reach, { ratio }) => `${reach}, ${short(ratio)} × the distance to the nearest sample`,
};

/* The other class up to that many times as far, and the other way round. */
function rays(plot, { radius, ratio }) {
  const { pen, x, y, mostX, mostY } = plot;
  const up = Math.min(radius, mostX, mostY / ratio);
  const right = Math.min(radius, mostY, mostX / ratio);
  line(pen, [[x(0), y(0)], [x(up), y(up * ratio)]], [5, 3]);
  line(pen, [[x(0), y(0)], [x(right * ratio), y(right)]], [5, 3]);
  if (radius < mostX && radius < mostY) {
    line(pen, [[x(radius), y(mostY)], [x(radius), y(radius)], [x(mostX), y(radius)]], [5, 3]);
  }
  const middle = Math.min(radius, mostX, mostY) * 0.6;
  name(plot, "IK", x(0) + 8, y(mostY) + 16, "left");
  if (radius < mostX) name(plot, "IDK", x(mostX) - 8, y(mostY) + 16, "right");
  name(plot, "IMK", x(middle), y(middle), "center");
}

export const RelativeBall = makeRule({
  name: "RelativeBall", parameters: ["radius", "ratio"],
  words: "If a sample is within ε, all samples up to a multiple of its distance count.",
  ballOf: (layer, setting, i) => (isInhabited(layer, setting, i) ? MULTIPLE : NO_BALL),
  emptyBeyond: WITHIN_RADIUS.reach,
  ratioOf: ({ ratio }) => ratio,
  drawLines: rays,
});
