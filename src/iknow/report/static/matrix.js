/* The augmented confusion matrix: for each assertion, what was said against what was true, as a
table, or of many classes as a picture. */

import * as Algebra from "./algebra.js";
import { h, byId, count, badge, token, MEANINGS } from "./dom.js";

const MOST_IN_A_PICTURE = 1000;  // at 4 pixels a class, as wide as a picture should get

const hue = (a) => `--${Algebra.ASSERTIONS[a].toLowerCase()}`;

/* How strongly a cell is tinted: by square root, so that small counts are seen. */
const strength = (n, most) => (n ? 0.12 + 0.6 * Math.sqrt(n / most) : 0);

/* A picture to point at. */
function asPicture(page, a, at, most) {
  const { classes, trueClasses } = page.facts;
  if (trueClasses.length > MOST_IN_A_PICTURE) return largest(page, a);
  const size = Math.max(4, Math.floor(340 / trueClasses.length));
  const canvas = h("canvas", { class: "heat", width: size * trueClasses.length,
    height: size * classes.length, role: "img",
    "aria-label": `Matrix for ${Algebra.ASSERTIONS[a]}; its largest cells are listed below` });
  const pen = canvas.getContext("2d");
  const [alarm, color] = [token("--wrong"), token(hue(a))];
  Algebra.pairsOf(page.summary, a).forEach(({ said, was, n }) => {
    pen.globalAlpha = Math.min(1, 0.3 + strength(n, most));
    pen.fillStyle = said !== was && a === Algebra.IK ? alarm : color;
    pen.fillRect(was * size, said * size, size - 1, size - 1);
  });
  const place = ({ offsetX, offsetY }) => [offsetY, offsetX].map((away) => Math.floor(away / size));
  canvas.addEventListener("mousemove", (event) => {
    const [said, was] = place(event);
    if (said >= classes.length || was >= trueClasses.length) return;
    canvas.title = `said “${classes[said]}”, actually “${trueClasses[was]}”: ${at(a, said, was)}`;
  });
  canvas.addEventListener("click", (event) => {
    const [said, was] = place(event);
    if (at(a, said, was)) page.filter({ assertion: a, belief: said, truth: was });
  });
  return h("div", { class: "scroll" }, canvas, largest(page, a));
}

/* The most frequent mistakes as buttons, for keyboards. */
function largest(page, a) {
  const { classes, trueClasses } = page.facts;
  const found = Algebra.pairsOf(page.summary, a).filter(({ said, was }) => said !== was);
  found.sort((one, other) => other.n - one.n || one.said - other.said || one.was - other.was);
  return h("ul", { class: "largest" }, found.slice(0, 5).map(({ n, said, was }) => h("li", null,
    h("button", { type: "button",
      onclick: () => page.filter({ assertion: a, belief: said, truth: was }) },
    `${n} × said “${classes[said]}”, actually “${trueClasses[was]}”`))));
}

const MOST_IN_A_TABLE = 16, MOST_LISTED = 1000;
const ORDER = [2, 1, 0];

/* Fill a cell, unless it shows that number already: most do while a slider moves. */
function fill(td, page, a, said, was, n, most) {
  if (td.dataset.n === String(n)) return;
  td.dataset.n = n;
  td.className = n ? "" : "none";
  td.style.background = n
    ? `color-mix(in srgb, var(${hue(a)}) ${100 * strength(n, most)}%, transparent)` : "";
  if (!n) { td.textContent = "·"; return; }
  const { classes, trueClasses } = page.facts;
  const truth = was === null ? "" : `, actually “${trueClasses[was]}”`;
  const words = `${count(n)} said “${classes[said]}”${truth}: ${MEANINGS[a]}`;
  td.replaceChildren(h("button", { type: "button", title: words, "aria-label": words,
    onclick: () => page.filter({ assertion: a, belief: said, truth: was }) }, count(n)));
  td.classList.toggle("alarm", was !== null && was !== said && a === Algebra.IK);
}

function cell(page, a, said, was, n, most) {
  const td = h("td");
  fill(td, page, a, said, was, n, most);
  return td;
}

/* New numbers in the tables that exist already. */
function refill(page, at, most) {
  const tables = byId("matrices").querySelectorAll("figure"), { length } = page.facts.trueClasses;
  ORDER.forEach((a, place) => {
    tables[place].querySelector(".total").textContent = ` ${count(page.summary.counts[a])}`;
    tables[place].querySelectorAll("tbody td").forEach((td, c) => {
      const [said, was] = [Math.floor(c / length), c % length];
      fill(td, page, a, said, was, at(a, said, was), most);
    });
  });
}

/* Counts of pairs, added up over all whose keys differ by a multiple of the period. */
function addUp(pairs, period) {
  const sums = new Map();
  for (const [key, n] of pairs) sums.set(key % period, (sums.get(key % period) ?? 0) + n);
  return sums;
}

/* The most samples that any cell can have, whatever is set: tints keep their meaning. */
const mostIn = ({ pairs, nClasses, columns }) =>
  [...addUp(pairs, nClasses * columns).values()].reduce((a, b) => Math.max(a, b), 1);

function asTable(page, a, at, most) {
  const { classes, trueClasses } = page.facts;
  const head = trueClasses.map((label) =>
    h("th", { scope: "col", title: label }, h("span", null, label)));
  const corner = h("td", { class: "corner" }, h("span", null, "true →"), h("span", null, "said ↓"));
  const rows = classes.map((label, said) => h("tr", null,
    h("th", { scope: "row", title: label }, label),
    trueClasses.map((_, was) => cell(page, a, said, was, at(a, said, was), most))));
  return h("table", { class: most < 100 ? "counts" : "counts dense" },
    h("thead", null, h("tr", null, corner, head)), h("tbody", null, rows));
}

/* The classes to list: all, or of many those that were said most often. */
function listed({ pairs, nClasses }) {
  if (nClasses <= MOST_LISTED) return Array.from({ length: nClasses }, (_, said) => said);
  const often = addUp(pairs, nClasses);
  return [...often.keys()].sort((one, other) => often.get(other) - often.get(one) || one - other)
    .slice(0, MOST_LISTED);
}

/* Without the truth: how often each class was said, and how. */
function byClass(page, summary) {
  const { classes } = page.facts;
  const most = mostIn(summary);
  return h("div", { class: "scroll" }, h("table", { class: "counts wide" },
    h("thead", null, h("tr", null, h("td", { class: "corner" }, "the model says"),
      ORDER.map((a) => h("th", { scope: "col" }, badge(a))))),
    h("tbody", null, listed(summary).map((said) => h("tr", null,
      h("th", { scope: "row", title: classes[said] }, classes[said]),
      ORDER.map((a) => cell(page, a, said, null, Algebra.countAt(summary, a, said, 0), most)))))));
}

export function update(page, summary) {
  const { trueClasses } = page.facts, click = "Click a number to see these samples.";
  if (trueClasses === null) {
    byId("matrix-hint").textContent = `How often each class was said. ${click}`;
    byId("matrices").replaceChildren(byClass(page, summary));
    return;
  }
  byId("matrix-title").textContent = "What was said, and what was true";
  byId("matrix-hint").textContent = "For each assertion, what the model said (rows) against what "
    + `was true (columns). A wrong “I know” is outlined. ${click}`;
  const at = (a, said, was) => Algebra.countAt(summary, a, said, was);
  const most = mostIn(summary);
  const draw = trueClasses.length > MOST_IN_A_TABLE ? asPicture : asTable;
  if (draw === asTable && byId("matrices").querySelector("table")) {
    refill(page, at, most);
    return;
  }
  // Side by side as long as they fit.
  const width = draw === asTable ? 44 + (most < 10000 ? 26 : 31) * trueClasses.length : 290;
  byId("matrices").style.gridTemplateColumns =
    `repeat(auto-fit, minmax(min(100%, ${Math.max(200, width)}px), 1fr))`;
  byId("matrices").replaceChildren(...ORDER.map((a) => h("figure", null,
    h("figcaption", null, badge(a),
      h("span", { class: "total" }, ` ${count(summary.counts[a])}`)),
    draw(page, a, at, most))));
}
