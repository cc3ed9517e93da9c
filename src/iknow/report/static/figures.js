/* Figures: coverage and accuracies, as they are now and as they were given. */

import * as Algebra from "./algebra.js";
import { h, byId, count, percent, SHAPES, MEANINGS } from "./dom.js";

const WORDS = {
  IK: "In every layer only the class the model says has enough training samples within reach.",
  IMK: "That class has enough samples within reach, but so do others, or a doubt remains.",
  IDK: "In some layer no class has enough samples within reach, or only others do.",
};
const REASONS_OF = { IK: [], IMK: [1, 2, 6, 7], IDK: [3, 4, 5] };

const add = (numbers, places) => places.reduce((sum, place) => sum + numbers[place], 0);

/* Beside a figure: its value with the given settings, if that differs. */
const before = (now, given) =>
  (now === given ? null : h("span", { class: "before" }, `given: ${given}`));

function tile(a, now, given, hasTruth) {
  const name = Algebra.ASSERTIONS[a];
  const share = (summary) => percent(summary.counts[a], summary.n);
  const right = (summary) => percent(summary.right[a], summary.answered[a]);
  const wrong = now.answered[a] - now.right[a];
  const reasons = REASONS_OF[name].filter((r) => now.reasons[r] > 0)
    .map((r) => h("li", null, `${Algebra.REASONS[r]} `, h("b", null, count(now.reasons[r]))));
  return h("div", { class: `tile ${name.toLowerCase()}` },
    h("h3", null, h("span", { class: "shape", "aria-hidden": "true" }, SHAPES[a]),
      `${MEANINGS[a]} `, h("abbr", null, name)),
    h("p", { class: "big", id: `share-${name}` }, share(now)),
    h("p", { class: "of" }, `${count(now.counts[a])} of ${count(now.n)} `,
      before(share(now), share(given))),
    hasTruth ? h("p", { class: "right" }, h("b", { id: `accuracy-${name}` }, right(now)),
      " right", wrong ? h("span", { class: "wrong" }, ` · ${count(wrong)} wrong`) : "", " ",
      before(right(now), right(given))) : null,
    h("p", { class: "meaning" }, WORDS[name]),
    reasons.length ? h("ul", { class: "reasons" }, reasons) : null);
}

function bar(now) {
  const parts = [Algebra.IK, Algebra.IMK, Algebra.IDK].map((a) => {
    const part = h("span", { class: Algebra.ASSERTIONS[a].toLowerCase() });
    part.style.flexGrow = now.counts[a];
    return part;
  });
  return h("div", { class: "bar", "aria-hidden": "true" }, parts);
}

function accuracies(now, given) {
  const outside = (s) => percent(add(s.right, [0, 1]), add(s.answered, [0, 1]));
  const all = (s) => percent(add(s.right, [0, 1, 2]), add(s.answered, [0, 1, 2]));
  return h("p", { class: "accuracies" },
    "Right when it does not know: ", h("b", { id: "accuracy-outside" }, outside(now)), " ",
    before(outside(now), outside(given)),
    " Right overall, whatever it says: ", h("b", { id: "accuracy-all" }, all(now)));
}

export function update(now, given, hasTruth) {
  byId("figures").replaceChildren(bar(now),
    h("div", { class: "tiles" },
      [Algebra.IK, Algebra.IMK, Algebra.IDK].map((a) => tile(a, now, given, hasTruth))),
    ...(hasTruth ? [accuracies(now, given)] : []));
}
