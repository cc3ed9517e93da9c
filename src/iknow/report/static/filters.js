/* Filters: what the table shows, by choice. */

import * as Algebra from "./algebra.js";
import { h, byId, brief, MEANINGS } from "./dom.js";
import * as Order from "./order.js";

const MOST_OFFERED = 1000;  // of more classes, those that occur

function choice(id, label, options, onpick) {
  const select = h("select", { id }, h("option", { value: "" }, "any"),
    options.map(([value, text]) => h("option", { value, title: text }, brief(text))));
  select.addEventListener("change", () => onpick(select.value === "" ? null : select.value));
  return h("div", { class: "field" }, h("label", { for: id }, label), select);
}

/* onchange(filter, order) is called after every change. */
export function create(facts, evidence, onchange) {
  let filter = { ...Order.EMPTY };
  let order = "attention";
  const names = (labels) => labels.map((label, code) => [code, label]);
  const found = (labels, codes) => {
    const present = new Set(codes);
    return names(labels).filter(([code]) => labels.length <= MOST_OFFERED || present.has(code));
  };
  const pick = (name) => (value) => {
    filter[name] = value === null ? null : Number(value);
    onchange(filter, order);
  };
  const hasTruth = facts.trueClasses !== null;
  const shown = Object.entries(Order.ORDERS).filter(([name]) =>
    (hasTruth || name !== "truth") && (facts.knowsRobustness || name !== "radius")
    && (evidence.level || !name.startsWith("level")));

  const search = h("input", { type: "search", id: "filter-index", inputmode: "numeric", size: 7,
    placeholder: "number", autocomplete: "off" });
  search.addEventListener("input", () =>
    pick("index")(search.value.replace("#", "").trim() || null));
  const orders = h("select", { id: "order" },
    shown.map(([name, [text]]) => h("option", { value: name },
      hasTruth ? text : text.replace("wrong IKs, then ", ""))));
  orders.addEventListener("change", () => { order = orders.value; onchange(filter, order); });
  const right = choice("filter-right", "The model is", [["1", "right"], ["0", "wrong"]],
    pick("right"));
  const assertions = [2, 1, 0].map((a) => [a, `${Algebra.ASSERTIONS[a]}: ${MEANINGS[a]}`]);
  byId("filters").replaceChildren(...[
    choice("filter-assertion", "Assertion", assertions, pick("assertion")),
    choice("filter-reason", "Reason", names(Algebra.REASONS), pick("reason")),
    choice("filter-belief", "The model says", found(facts.classes, evidence.belief),
      pick("belief")),
    hasTruth
      ? choice("filter-truth", "True class", found(facts.trueClasses, evidence.truth),
        pick("truth")) : null,
    hasTruth ? right : null,
    h("div", { class: "field" }, h("label", { for: "filter-index" }, "Sample"), search),
    h("div", { class: "field" }, h("label", { for: "order" }, "Order"), orders),
    h("button", { type: "button", id: "clear", onclick: () => set({}) }, "Show all"),
  ].filter((field) => field !== null));

  /* Filter by these and nothing else. */
  function set(wanted) {
    filter = { ...Order.EMPTY, ...wanted };
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
