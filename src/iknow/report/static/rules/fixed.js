/* Fixed: a rule that this page cannot move. It shows what Python found. */

import { makeRule } from "./rule.js";

/** @type {Ball} */
const GIVEN = {
  reach: (layer, setting, i, j) => layer.reach[i * layer.width + j],
  holds: (layer, setting, i, j) => layer.within[i * layer.width + j] === 1,
  words: (reach) => `${reach}, by the rule of this layer`,
};
const NOTHING = { ...GIVEN, words: () => "none, by the rule of this layer", none: true };

export const Fixed = makeRule({
  name: "Fixed", parameters: [], slack: "",
  words: "Fixed: this page cannot move it.",
  lines: "A layer with a fixed rule has no lines.",
  ballOf: (layer, setting, i) => (layer.none[i] ? NOTHING : GIVEN),
  marginOf: (layer, setting, i) => layer.margin[i],
  robustRadius: (layer, setting, i) => layer.robust[i],
});
