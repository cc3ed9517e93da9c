/* The frame of a chart: an SVG as wide as its place, drawn anew whenever the data or the width change. */

import { svg } from "../../report/static/dom.js";
import { clock } from "./words.js";

/* A chart that draws itself: draw(width) → { label, shapes }, or null for nothing to draw. */
export function chart(height, draw) {
  const picture = svg("svg", { class: "chart", height, role: "img" });
  const redraw = () => {
    const width = Math.max(picture.clientWidth, 240);
    const { label, shapes } = draw(width);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("aria-label", label);
    picture.replaceChildren(...shapes.flat(Infinity).filter(Boolean));
  };
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(picture);
  return { picture, redraw };
}

/* A round number at or above a value: 1, 2 or 5 times a power of ten. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 5].find((step) => step * power >= value * (1 - 1e-9)) ?? 10);
}

/* Places on a polyline. */
export const points = (places) =>
  places.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

/* Lines across at some values, each with its text to the left. */
export const levelLines = (left, right, y, values, text) => values.map((value) => [
  svg("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
  svg("text", { class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, text(value)),
]);

/* The time of day below a chart of columns. */
export function timeTicks(columns, x, y, wide) {
  const many = wide ? 5 : 3;
  return Array.from({ length: many + 1 }, (_, t) => {
    const at = columns[0].start + (t / many) * (columns[columns.length - 1].end - columns[0].start);
    const anchor = t === 0 ? "start" : t === many ? "end" : "middle";
    return svg("text", { class: "tick", x: x((t / many) * columns.length), y, "text-anchor": anchor },
      clock(at, false));
  });
}
