/* The evidence about one IDK: in each layer the nearest training samples, for and against. */

import { brief, h, short, svg } from "../../report/static/dom.js";
import { share } from "./words.js";

const [WIDTH, EDGE, BASE] = [400, 12, 46];

function mark(x, { label, distance }, side) {
  const anchor = x > WIDTH * 0.72 ? "end" : x < WIDTH * 0.28 ? "start" : "middle";
  const shape = side === "for" ? svg("circle", { cx: x, cy: BASE, r: 6.5 })
    : svg("path", { d: `M${x} ${BASE - 7}l7 7l-7 7l-7-7z` });
  return svg("g", { class: `mark ${side}` }, shape, svg("text", { x, "text-anchor": anchor,
    y: side === "for" ? BASE - 14 : BASE + 25 }, `${brief(label, 14)} ${short(distance)}`));
}

/* Distances on a line, and how far the reach goes. With a quorum the last sample decides. */
function ruler({ reach, limit, ...layer }) {
  const sides = ["for", "against"].filter((side) => Number.isFinite(layer[side].at(-1)?.distance));
  const values = sides.map((side) => layer[side].at(-1).distance).concat(reach ?? []);
  if (!values.length) return null;
  const most = 1.18 * Math.max(...values, 1e-300);
  const x = (value) => EDGE + ((WIDTH - 2 * EDGE) * value) / most;
  const end = x(reach ?? 0), anchor = end > WIDTH * 0.75 ? "end" : end < WIDTH * 0.2 ? "start" : "middle";
  return svg("svg", { class: "ruler", viewBox: `0 0 ${WIDTH} 80`, "aria-hidden": "true" },
    reach === null ? null : [
      svg("rect", { class: "reach", x: EDGE, y: BASE - 9, width: end - EDGE, height: 18, rx: 4 }),
      svg("line", { class: "end", x1: end, x2: end, y1: 16, y2: BASE + 11 }),
      svg("text", { class: "reach-label", x: end, y: 12, "text-anchor": anchor }, `${limit} ${short(reach)}`)],
    svg("line", { class: "axis", x1: EDGE, x2: WIDTH - EDGE, y1: BASE, y2: BASE }),
    sides.flatMap((side) => [
      layer[side].slice(0, -1).filter(({ distance }) => distance !== null).map(({ distance }) =>
        svg("circle", { class: `before ${side}`, cx: x(distance), cy: BASE, r: 3.5 })),
      mark(x(layer[side].at(-1).distance), layer[side].at(-1), side)]));
}

const sample = ({ row, label, distance }) =>
  `#${row} of “${brief(label, 40)}” at ${distance === null ? "∞" : short(distance)}`;
const list = (samples) => samples.map(sample).join(", ") || "no training sample";

const value = (found) => (typeof found === "number" ? short(found) : brief(found, 40));

/* The features that a distance comes from, in words. */
const features = (found) => (found.length ? h("p", { class: "hint" }, "Most of the distance: ",
  found.map((each) => `${each.feature} ${value(each.value)} (${each.unseen ?? share(each.share, 1)})`)
    .join(", ")) : null);

/** @param {LayerEvidence} layer */
function ofLayer(layer) {
  return h("div", { class: "layer" }, h("h3", null, layer.layer),
    h("p", { class: "verdict" }, layer.findings.join("; ")),
    ruler(layer),
    h("dl", { class: "facts" }, h("dt", null, "for"), h("dd", null, list(layer.for)),
      h("dt", null, "against"), h("dd", null, list(layer.against))), features(layer.features));
}

/** @param {UnknownRow} found */
export const draw = (found) => (found.layers.length ? found.layers.map(ofLayer)
  : h("p", { class: "hint" }, "No evidence was gathered about this one."));
