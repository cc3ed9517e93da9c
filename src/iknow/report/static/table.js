/* The table of samples: which ones, in what order. Only the rows in view exist, so ten thousand
scroll as well as ten. */

import * as Algebra from "./algebra.js";
import { h, byId, badge, brief, count, label, short, MEANINGS } from "./dom.js";
import * as Pictures from "./pictures.js";

/** @type {Record<string, any>} */
export const EMPTY = {
  assertion: null, reason: null, belief: null, truth: null, right: null, index: null,
};

function passes(evidence, assessed, filter, i) {
  const same = (wanted, value) => wanted === null || wanted === value;
  return same(filter.assertion, assessed.assertion[i]) && same(filter.reason, assessed.reason[i])
    && same(filter.belief, evidence.belief[i]) && same(filter.index, evidence.index[i])
    && (evidence.truth === null || (same(filter.truth, evidence.truth[i])
      && (filter.right === null || Algebra.isRight(evidence, i) === Boolean(filter.right))));
}

/* Wrong IKs in front, the surest of them first; then what is nearest to another assertion. */
const byAttention = (evidence, assessed) => (i) => {
  const margin = Math.abs(assessed.margin[i]);
  return Algebra.wrongIk(evidence, assessed, i) ? -1 - margin : margin;
};

/* Orders by name: what they are called, and the key to sort by, smallest first. */
/** @type {Record<string, [string, (e: any, a: any) => (i: number) => number]>} */
const ORDERS = {
  attention: ["wrong IKs, then closest calls", byAttention],
  margin: ["margin, smallest first", (e, a) => (i) => a.margin[i]],
  margin_down: ["margin, largest first", (e, a) => (i) => -a.margin[i]],
  level: ["level, smallest first", (e) => (i) => e.level[i]],
  level_down: ["level, largest first", (e) => (i) => -e.level[i]],
  probability: ["least likely right", (e) => (i) => e.probability[i]],
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
  const keys = Float64Array.from({ length: evidence.n }, (_, i) => key(i));
  return Uint32Array.from(keys.keys()).filter((i) => passes(evidence, assessed, filter, i))
    .sort((one, other) => keys[one] - keys[other] || one - other);  // ∞ - ∞ is NaN: by number
}

const MOST_OFFERED = 1000;  // of more classes, those that occur

const field = (id, label, control) =>
  h("div", { class: "field" }, h("label", { for: id }, label), control);

/* The choices above the table. onchange(filter, order) is called after every change. */
export function createFilters(facts, evidence, onchange) {
  let filter = { ...EMPTY };
  let order = "attention";
  const names = (labels) => labels.map((label, code) => [code, label]);
  const found = (labels, codes) => {
    const present = new Set(codes);
    return names(labels).filter(([code]) => labels.length <= MOST_OFFERED || present.has(code));
  };
  function pick(name, value) {
    filter[name] = value === "" ? null : Number(value);
    onchange(filter, order);
  }
  function choice([name, label, options]) {
    const select = h("select", { id: `filter-${name}` }, h("option", { value: "" }, "any"),
      options.map(([value, text]) => h("option", { value, title: text }, brief(text))));
    select.addEventListener("change", () => pick(name, select.value));
    return field(select.id, label, select);
  }
  const hasTruth = facts.trueClasses !== null;
  const shown = Object.entries(ORDERS).filter(([name]) =>
    (hasTruth || name !== "truth") && (facts.knowsRobustness || name !== "radius")
    && (evidence.level || !name.startsWith("level"))
    && (evidence.probability || name !== "probability"));

  const search = h("input", { type: "search", id: "filter-index", inputmode: "numeric", size: 7,
    placeholder: "number", autocomplete: "off" });
  search.addEventListener("input", () => pick("index", search.value.replace("#", "").trim()));
  const orders = h("select", { id: "order" },
    shown.map(([name, [text]]) => h("option", { value: name },
      hasTruth ? text : text.replace("wrong IKs, then ", ""))));
  orders.addEventListener("change", () => { order = orders.value; onchange(filter, order); });
  /** @type {[string, string, any[]][]} */
  const choices = [
    ["assertion", "Assertion", [2, 1, 0].map((a) => [a, `${Algebra.ASSERTIONS[a]}: ${MEANINGS[a]}`])],
    ["reason", "Reason", names(Algebra.REASONS)],
    ["belief", "The model says", found(facts.classes, evidence.belief)],
  ];
  if (hasTruth) {
    choices.push(["truth", "True class", found(facts.trueClasses, evidence.truth)],
      ["right", "The model is", [["1", "right"], ["0", "wrong"]]]);
  }
  byId("filters").replaceChildren(...choices.map(choice), field("filter-index", "Sample", search),
    field("order", "Order", orders),
    h("button", { type: "button", id: "clear", onclick: () => set({}) }, "Show all"));

  /* Filter by these and nothing else. */
  function set(wanted) {
    filter = { ...EMPTY, ...wanted };
    for (const [name, value] of Object.entries(filter)) {
      const field = byId(`filter-${name}`);
      if (field) field.value = value ?? "";
    }
    onchange(filter, order);
  }

  function setOrder(name) {
    order = orders.value = name;
    onchange(filter, order);
  }

  return { set, setOrder, current: () => [filter, order] };
}

const ROW = 46, SPARE = 6, PRINTED = 40;

/* Name, heading, width, and width where there is little room: "0" leaves it out. */
const COLUMNS = [
  ["picture", "", "38px", "36px"], ["index", "sample", "62px", "50px"],
  ["belief", "says", "minmax(0, 1fr)", "minmax(0, 1fr)"],
  ["truth", "true", "minmax(0, 1fr)", "minmax(0, 1fr)"],
  ["assertion", "", "58px", "58px"], ["reason", "reason", "102px", "0"],
  ["level", "level", "56px", "0"], ["margin", "margin", "74px", "66px"], ["radius", "robust", "64px", "0"],
];

/* The columns that there is something to show in. */
function columnsOf({ facts, evidence, album }) {
  const drawn = album.samples.some((at) => at >= 0 && !Pictures.isFeatures(at));
  const empty = { picture: !drawn, truth: !facts.trueClasses, radius: !facts.knowsRobustness,
    level: !evidence.level };
  return COLUMNS.filter(([name]) => !empty[name]);
}

function truthCell({ facts, evidence }, i) {
  const label = facts.trueClasses[evidence.truth[i]];
  const right = Algebra.isRight(evidence, i);
  if (right === null) return h("span", { title: label }, label);
  return h("span", { class: right ? "right" : "wrong", title: label },
    h("span", { class: "sign", role: "img", "aria-label": right ? "right" : "wrong" },
      right ? "✓" : "✗"), ` ${label}`);
}

function cells(page, i) {
  const { facts, evidence, assessed } = page;
  const draw = {
    picture: () => Pictures.draw(Pictures.ofSample(i), `sample ${evidence.index[i]}`),
    index: () => h("span", { class: "number" }, `#${evidence.index[i]}`,
      evidence.counted[i] ? null : h("abbr", { title: "not in the random draw, so not counted" }, "*")),
    belief: () => h("span", { title: label(facts, evidence.belief[i]) },
      label(facts, evidence.belief[i])),
    truth: () => truthCell(page, i),
    assertion: () => badge(assessed.assertion[i]),
    reason: () => Algebra.REASONS[assessed.reason[i]],
    level: () => short(evidence.level[i], 2),
    margin: () => short(assessed.margin[i], 3),
    radius: () => short(assessed.radius[i], 3),
  };
  return page.columns.map(([name]) => h("div", { role: "gridcell", class: `cell of-${name}` },
    draw[name]()));
}

function row(page, i, at) {
  const alarm = Algebra.wrongIk(page.evidence, page.assessed, i);
  const element = h("div", {
    role: "row", id: `row-${i}`, "aria-rowindex": at + 2, "data-at": at,
    class: `row${alarm ? " alarm" : ""}${page.chosen === i ? " chosen" : ""}`,
    "aria-selected": String(page.chosen === i),
  }, cells(page, i));
  element.style.top = `${at * ROW}px`;
  return element;
}

/* page: { facts, evidence, assessed, chosen, choose, isGiven, order(name), enter() } */
export function create(page) {
  let shown = [];
  page.columns = columnsOf(page);
  const head = h("div", { role: "row", class: "row head", "aria-rowindex": 1 },
    page.columns.map(([name, text]) => h("div", { role: "columnheader",
      class: `cell of-${name}` }, text ? h("button", { type: "button", tabindex: -1,
      title: `Order by ${text}`, onclick: () => page.order(name) }, text) : null)));
  const body = h("div", { role: "rowgroup", class: "rows" });
  const view = h("div", { class: "view" }, body);
  const grid = h("div", { role: "grid", class: "table", tabindex: 0, id: "grid",
    "aria-label": "Samples" }, head, view);
  const widths = (place) => page.columns.map((column) => column[place])
    .filter((width) => width !== "0").join(" ");
  grid.style.setProperty("--columns", widths(2));
  grid.style.setProperty("--columns-narrow", widths(3));
  byId("table").replaceChildren(grid);

  const render = (from, to) =>
    body.replaceChildren(...Array.from(shown.slice(from, to), (i, n) => row(page, i, from + n)));
  const print = () => render(0, PRINTED);  // on paper nothing scrolls

  function draw() {
    if (window.matchMedia("print").matches) { print(); return; }
    const from = Math.max(0, Math.floor(view.scrollTop / ROW) - SPARE);
    render(from, from + Math.ceil(view.clientHeight / ROW) + 2 * SPARE);
    if (shown.includes(page.chosen)) {
      grid.setAttribute("aria-activedescendant", `row-${page.chosen}`);
    }
  }

  function reveal(at) {
    const lowest = (at + 1) * ROW - view.clientHeight;
    view.scrollTop = Math.min(at * ROW, Math.max(lowest, view.scrollTop));
  }

  /* Show these samples. */
  function update(positions) {
    shown = positions;
    body.style.height = `${shown.length * ROW}px`;
    grid.setAttribute("aria-rowcount", shown.length + 1);
    const all = shown.length === page.evidence.n ? "" : ` of ${count(page.evidence.n)}`;
    byId("shown").textContent = `${count(shown.length)}${all} samples`;
    draw();
  }

  function choose(at) {
    const place = Math.max(0, Math.min(shown.length - 1, at));
    if (shown.length) page.choose(shown[place]);
  }

  view.addEventListener("scroll", draw, { passive: true });
  body.addEventListener("click", (event) => {
    const found = event.target.closest(".row");
    if (found) { choose(Number(found.dataset.at)); page.enter(false); }
  });
  grid.addEventListener("keydown", (event) => {
    const at = shown.indexOf(page.chosen);
    const leap = Math.max(1, Math.floor(view.clientHeight / ROW) - 1);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + leap, PageUp: at - leap,
      Home: 0, End: shown.length - 1 };
    if (event.key === "Enter") { if (at < 0) choose(0); page.enter(true); }
    else if (event.key in moves) choose(moves[event.key]);
    else return;
    event.preventDefault();
  });
  window.addEventListener("beforeprint", print);
  window.addEventListener("afterprint", draw);
  new ResizeObserver(draw).observe(view);

  return { update, show: (i) => { reveal(Math.max(0, shown.indexOf(i))); draw(); },
    isShown: (i) => shown.includes(i), first: () => shown[0] ?? null };
}
