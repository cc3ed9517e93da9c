/* The models: one alone as it is, several as tabs that say how each is doing. */

import { brief, h } from "../../report/static/dom.js";
import * as Panel from "./panel.js";
import { bar } from "./shares.js";
import { share } from "./words.js";

/** @param {ModelStatus} model */
export const keyOf = ({ name, version }) => `${name}@${version}`;
/** @param {ModelStatus} model */
export const isAlarmed = ({ alarm, accuracy }) => alarm?.alarmed === true || accuracy?.alarmed === true;
/** What it said lately, or in all if it said nothing lately. @param {ModelStatus} model */
export const latest = ({ live }) => (live?.lately?.rows ? live.lately : live?.total ?? null);

function describe(tab, model) {
  const counts = latest(model);
  tab.classList.toggle("ringing", isAlarmed(model));
  tab.replaceChildren(
    h("span", { class: "tab-name" }, isAlarmed(model) ? h("span", { class: "wrong" }, "▲ ") : null,
      brief(model.name, 40), h("span", { class: "soft" }, ` ${brief(String(model.version), 20)}`)),
    h("span", { class: "soft" }, counts?.rows ? `${share(counts.IK, counts.rows)} known` : "no answers yet"),
    counts?.rows ? bar(counts) : h("div", { class: "bar" }));
}

/* The model that the address names, if it names one. */
function fromAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

/** Tabs in one place, the chosen model's panel in another. */
export function make(tabs, place) {
  const shown = new Map();
  let chosen = fromAddress();

  function choose(key, focus = false) {
    chosen = key;
    for (const [each, { tab, panel }] of shown) {
      tab.setAttribute("aria-selected", String(each === key));
      tab.tabIndex = each === key ? 0 : -1;
      panel.element.hidden = each !== key;
    }
    if (focus) {
      shown.get(key).tab.focus();
      history.replaceState(null, "", `#${encodeURIComponent(key)}`);
    }
  }

  function onkeydown(event) {
    const keys = [...shown.keys()], at = keys.indexOf(chosen), last = keys.length - 1;
    const next = at === last ? 0 : at + 1, before = at === 0 ? last : at - 1;
    const to = { ArrowRight: next, ArrowLeft: before, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(keys[to], true);
  }

  function add(key) {
    const id = `model-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    const tab = h("button", { type: "button", role: "tab", id: `${id}-tab`, "aria-controls": id,
      onclick: () => choose(key, true), onkeydown });
    const panel = Panel.make(id);
    panel.element.id = id;
    panel.element.setAttribute("role", "tabpanel");
    panel.element.setAttribute("aria-labelledby", `${id}-tab`);
    shown.set(key, { tab, panel });
  }

  /** @param {ModelStatus[]} models */
  function update(models) {
    const keys = models.map(keyOf);
    const same = keys.length === shown.size && keys.every((key) => shown.has(key));
    if (!same) {
      for (const key of [...shown.keys()]) if (!keys.includes(key)) shown.delete(key);
      for (const key of keys) if (!shown.has(key)) add(key);
      tabs.replaceChildren(...keys.map((key) => shown.get(key).tab));
      place.replaceChildren(...keys.map((key) => shown.get(key).panel.element));
      tabs.hidden = models.length < 2;
    }
    if (models.length && (!same || !shown.has(chosen))) {
      choose(shown.has(chosen) ? chosen : keyOf(models.find(isAlarmed) ?? models[0]));
    }
    for (const model of models) {
      const { tab, panel } = shown.get(keyOf(model));
      describe(tab, model);
      panel.update(model);
    }
  }
  return { update };
}
