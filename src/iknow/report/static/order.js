/* Order: which samples the table shows, and in what order. */

import * as Algebra from "./algebra.js";

/** @type {Record<string, any>} */
export const EMPTY = {
  assertion: null, reason: null, belief: null, truth: null, right: null, index: null,
};

/* Whether the model is right about a sample; null where it says nothing. */
export const isRight = (evidence, i) =>
  (evidence.belief[i] < 0 ? null : evidence.truth[i] === evidence.belief[i]);
export const isWrong = (evidence, i) => evidence.truth !== null && isRight(evidence, i) === false;
export const wrongIk = (evidence, assessed, i) =>
  assessed.assertion[i] === Algebra.IK && isWrong(evidence, i);

function passes(evidence, assessed, filter, i) {
  const same = (wanted, value) => wanted === null || wanted === value;
  return same(filter.assertion, assessed.assertion[i]) && same(filter.reason, assessed.reason[i])
    && same(filter.belief, evidence.belief[i]) && same(filter.index, evidence.index[i])
    && (evidence.truth === null || (same(filter.truth, evidence.truth[i])
      && (filter.right === null || isRight(evidence, i) === Boolean(filter.right))));
}

/* Wrong IKs in front, the surest of them first; then what is nearest to another assertion. */
const byAttention = (evidence, assessed) => (i) => {
  const margin = Math.abs(assessed.margin[i]);
  return wrongIk(evidence, assessed, i) ? -1 - margin : margin;
};

/* Orders by name: what they are called, and the key to sort by, smallest first. */
/** @type {Record<string, [string, (e: any, a: any) => (i: number) => number]>} */
export const ORDERS = {
  attention: ["wrong IKs, then closest calls", byAttention],
  margin: ["margin, smallest first", (e, a) => (i) => a.margin[i]],
  margin_down: ["margin, largest first", (e, a) => (i) => -a.margin[i]],
  level: ["level, smallest first", (e) => (i) => e.level[i]],
  level_down: ["level, largest first", (e) => (i) => -e.level[i]],
  index: ["sample number", (e) => (i) => e.index[i]],
  belief: ["what the model says", (e) => (i) => e.belief[i]],
  truth: ["what is true", (e) => (i) => e.truth[i]],
  assertion: ["assertion", (e, a) => (i) => -a.assertion[i]],
  reason: ["reason", (e, a) => (i) => a.reason[i]],
  radius: ["robust radius, largest first", (e, a) => (i) => -a.radius[i]],
};

/* Positions of the samples to show, in order; equals by number. */
export function arrange(evidence, assessed, filter, order) {
  const key = ORDERS[order][1](evidence, assessed);
  const keys = new Float64Array(evidence.n);
  const found = [];
  for (let i = 0; i < evidence.n; i++) {
    if (!passes(evidence, assessed, filter, i)) continue;
    keys[i] = key(i);
    found.push(i);
  }
  return Uint32Array.from(found).sort((one, other) =>
    (keys[one] < keys[other] ? -1 : keys[one] > keys[other] ? 1 : one - other));
}
