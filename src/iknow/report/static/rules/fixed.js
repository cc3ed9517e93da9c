/* Fixed: a rule that this page has no mirror of. What Python found for it is in the page. */

import { makeRule } from "./rule.js";

const at = (layer, i, j) => i * layer.width + j;

const GIVEN = {
  reach: (layer, setting, i, j) => layer.reach[at(layer, i, j)],
  words: (reach, { text }) => `${reach}, as ${text} has it`,
};
const NONE_GIVEN = { ...GIVEN, words: (reach, { text }) => `none, as ${text} has it`, none: true };

export const Fixed = makeRule({
  name: "Fixed",
  words: "Fixed: this page cannot move it.",
  lines: "A layer with a fixed rule has no lines.",
  parameters: {},
  slack: null,
  ballOf: (layer, setting, i) => (layer.none[i] ? NONE_GIVEN : GIVEN),
  isWithin: (layer, setting, i, j) => layer.within[at(layer, i, j)] === 1,
  marginOf: (layer, setting, i) => layer.margin[i],
  robustRadius: (layer, setting, i) => layer.robust[i],
});
