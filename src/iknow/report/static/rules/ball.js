/* Ball: all samples within a radius ε. */

import { cross } from "../plot.js";
import { makeRule, WITHIN_RADIUS } from "./rule.js";

export const Ball = makeRule({
  name: "Ball", parameters: ["radius"],
  words: "Samples within the radius ε count.",
  ballOf: () => WITHIN_RADIUS,
  fullWithin: WITHIN_RADIUS.reach,
  emptyBeyond: WITHIN_RADIUS.reach,
  drawLines: (plot, { radius }) => cross(plot, radius, [5, 3]),
});
