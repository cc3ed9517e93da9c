/* Sliders: a range that follows the data, a box for exact values, a mark at the given one. */

import { h, short } from "./dom.js";

const STEPS = 1000;

/* A slider's places ↔ values: equally many of the observed distances lie between two places. */
export function quantileScale(values) {
  const sorted = Float64Array.from(values.filter(Number.isFinite)).sort();
  const last = sorted.length - 1;
  if (last < 0) return linearScale(0, 1, STEPS);
  const valueAt = (place) => (place === 0 ? 0 : sorted[Math.round((last * place) / STEPS)]);
  const placeOf = (value) => {
    let [low, high] = [0, last + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1; else high = middle;
    }
    return last ? Math.min(STEPS, (STEPS * low) / last) : STEPS / 2;
  };
  return { valueAt, placeOf, steps: STEPS, first: 0 };
}

export function linearScale(from, to, steps) {
  return {
    valueAt: (place) => from + ((to - from) * place) / steps,
    placeOf: (value) => Math.max(0, Math.min(steps, (steps * (value - from)) / (to - from || 1))),
    steps, first: 0,
  };
}

export const wholeScale = (most) => ({ valueAt: Number, placeOf: Number, steps: most, first: 1 });

/* idle: the slider can be seen, but its value does not count at present. */
export function create({ id, label, scale, value, given, smallest, whole = false, onset,
  idle = false }) {
  const givenPlace = given === null ? null : Math.round(scale.placeOf(given));
  const range = h("input", { type: "range", id, min: scale.first, max: scale.steps, step: 1,
    disabled: idle });
  const box = h("input", { type: "text", inputmode: "decimal", id: `${id}-exact`, size: 8,
    disabled: idle, "aria-label": `${label}, exact value`, autocomplete: "off",
    spellcheck: "false" });
  /* The box shows six digits; what is set has all of them. */
  const tell = (now) => {
    box.value = String(Number(now.toPrecision(6)));
    box.title = String(now);
    range.setAttribute("aria-valuetext", short(now));
  };
  const show = (now) => { range.value = Math.round(scale.placeOf(now)); tell(now); };
  range.addEventListener("input", () => {
    const place = Number(range.value);
    const now = place === givenPlace ? given : scale.valueAt(place);
    tell(now);
    onset(now);
  });
  box.addEventListener("change", () => {
    const text = box.value.trim().replace(",", ".");
    const now = /^(inf|∞)/i.test(text) ? Infinity : Number(text);
    const usable = text !== "" && now >= smallest
      && (!whole || (Number.isInteger(now) && now <= scale.steps));
    show(usable ? now : value());
    if (usable) onset(now);
  });
  show(value());
  const track = h("div", { class: "track" }, range);
  if (givenPlace !== null) {
    const mark = h("span", { class: "mark", title: `given: ${short(given)}` });
    const share = (givenPlace - scale.first) / (scale.steps - scale.first || 1);
    mark.style.left = `calc(9px + ${share} * (100% - 18px))`;
    track.append(mark);
  }
  return h("div", { class: idle ? "slider idle" : "slider" }, h("label", { for: id }, label), track, box);
}
