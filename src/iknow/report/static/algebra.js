/* The algebra: evidence and settings → assertions, reasons, margins. No page, only numbers.

    layer     as layer.js reads it
    setting   { rule, and a value for each of its parameters }    rule: as in rules.js
    evidence  { n, layers, belief, truth, invalid, uncertified, doubted, counted } */

import { ASSERTIONS } from "./dom.js";
import { distanceAt } from "./layer.js";

export const REASONS = ["known", "overlap", "disagreement", "extrapolation", "contradiction",
  "invalid", "uncertified", "doubt"];
const [IDK, IMK, IK] = ASSERTIONS.keys();
const [KNOWN, OVERLAP, DISAGREEMENT, EXTRAPOLATION, CONTRADICTION, INVALID, UNCERTIFIED, DOUBT] =
  REASONS.keys();
export { ASSERTIONS, IDK, IMK, IK, OVERLAP, EXTRAPOLATION, INVALID, UNCERTIFIED, DOUBT };

/* Does the class in column j have enough samples within reach? */
export const isWithin = (layer, setting, i, j) =>
  distanceAt(layer, i, j) !== Infinity && setting.rule.ballOf(layer, setting, i).holds(layer, setting, i, j);

/* The reach ρ for the class in column j; where there is none, what stands in for it. */
export const reachOf = (layer, setting, i, j = 0) =>
  setting.rule.ballOf(layer, setting, i).reach(layer, setting, i, j);

/** One sample under one setting for each layer.
@param {Evidence} evidence @param {Setting[]} settings */
export function judge(evidence, settings, i) {
  if (evidence.invalid[i]) return { assertion: IDK, reason: INVALID, margin: -Infinity };
  let [empty, believed, contested, mixed, margin] = [false, false, false, false, Infinity];
  evidence.layers.forEach((layer, l) => {
    const own = isWithin(layer, settings[l], i, 0);
    let others = 0;
    for (let j = 1; j < layer.width; j++) others += isWithin(layer, settings[l], i, j) ? 1 : 0;
    empty ||= !own && others === 0;
    believed ||= own;
    contested ||= others > 0;
    mixed ||= others + (own ? 1 : 0) > 1;
    margin = Math.min(margin, settings[l].rule.marginOf(layer, settings[l], i));
  });
  if (evidence.uncertified[i] || evidence.doubted[i]) margin = -Infinity;
  if (empty) return { assertion: IDK, reason: EXTRAPOLATION, margin };
  if (!believed) return { assertion: IDK, reason: CONTRADICTION, margin };
  if (contested) return { assertion: IMK, reason: mixed ? OVERLAP : DISAGREEMENT, margin };
  if (evidence.uncertified[i]) return { assertion: IMK, reason: UNCERTIFIED, margin };
  if (evidence.doubted[i]) return { assertion: IMK, reason: DOUBT, margin };
  return { assertion: IK, reason: KNOWN, margin };
}

/* All samples: columns of shape (n,). */
export function assess(evidence, settings) {
  const assertion = new Uint8Array(evidence.n), reason = new Uint8Array(evidence.n);
  const margin = new Float64Array(evidence.n);
  for (let i = 0; i < evidence.n; i++) {
    const judged = judge(evidence, settings, i);
    [assertion[i], reason[i], margin[i]] = [judged.assertion, judged.reason, judged.margin];
  }
  return { assertion, reason, margin };
}

/* What the assertions add up to. matrix: counts of shape (3, nClasses, nTrue), flat. */
export function summarise(evidence, assessed, nClasses, nTrue) {
  const counts = [0, 0, 0], answered = [0, 0, 0], right = [0, 0, 0];
  const reasons = REASONS.map(() => 0);
  const columns = evidence.truth ? nTrue : 1;
  const pairs = new Map();
  for (let i = 0; i < evidence.n; i++) {
    if (!evidence.counted[i]) continue;
    const a = assessed.assertion[i];
    counts[a] += 1;
    reasons[assessed.reason[i]] += 1;
    const said = evidence.belief[i];
    if (said < 0) continue;  // the model gave no answer: neither right nor wrong
    const truth = evidence.truth ? evidence.truth[i] : 0;
    answered[a] += 1;
    if (evidence.truth && truth === said) right[a] += 1;
    const key = (a * nClasses + said) * columns + truth;
    pairs.set(key, (pairs.get(key) ?? 0) + 1);
  }
  const n = counts[0] + counts[1] + counts[2];
  return { counts, answered, right, reasons, pairs, nClasses, columns, n };
}

/* How many samples with assertion a were said to be of one class, and are of another. */
export const countAt = ({ pairs, nClasses, columns }, a, said, was) =>
  pairs.get((a * nClasses + said) * columns + was) ?? 0;

/* The pairs that occur with an assertion: { said, was, n }. */
export const pairsOf = ({ pairs, nClasses, columns }, a) => [...pairs]
  .filter(([key]) => Math.floor(key / (columns * nClasses)) === a)
  .map(([key, n]) => ({ said: Math.floor(key / columns) % nClasses, was: key % columns, n }));

/* Whether the model is right about a sample; null where it says nothing. */
export const isRight = (evidence, i) =>
  (evidence.belief[i] < 0 ? null : evidence.truth[i] === evidence.belief[i]);
export const isWrong = (evidence, i) => evidence.truth !== null && isRight(evidence, i) === false;
export const wrongIk = (evidence, assessed, i) =>
  assessed.assertion[i] === IK && isWrong(evidence, i);
