/* The scatter of a layer: d_g, how far the believed class is, against d_¬g, how far any other. */

import * as Algebra from "./algebra.js";
import { h, badge, byId, token } from "./dom.js";
import * as Order from "./order.js";
import { distancesOf, PARAMETERS } from "./parameters.js";
import * as Plot from "./plot.js";
import * as Points from "./points.js";

const EDGE = { left: 46, right: 14, top: 14, bottom: 40 };
const NEAR = 14;

/* Where each sample is, (n, 2), flat. */
function placesOf(evidence, layer) {
  const places = new Float64Array(2 * evidence.n);
  for (let i = 0; i < evidence.n; i++) {
    const [own, ...others] = distancesOf(layer, i);
    places.set([own, others.reduce((a, b) => Math.min(a, b), Infinity)], 2 * i);
  }
  return places;
}

/* What nearly all points are below, in x (0) or y (1); the few beyond stay at the edge. */
function mostOf(places, axis) {
  const finite = places.filter((value, at) => at % 2 === axis && Number.isFinite(value)).sort();
  return finite.length ? finite[Math.floor(0.99 * (finite.length - 1))] : 1;
}

/* The largest value drawn: nearly all points, and the lines. */
function extent(most, radius) {
  const line = Number.isFinite(radius) ? 1.15 * radius : 0;
  return Math.max(1.05 * most, Math.min(line, 3 * most)) || 1;
}

function points({ pen, width, height, spots }, { evidence, assessed, chosen }) {
  const many = evidence.n > 3000;
  const r = many ? 2 : 3.2;
  const scale = window.devicePixelRatio || 1;
  const { assertion } = assessed;
  const colors = ["--idk", "--imk", "--ik"].map(token);
  const filled = colors.map((color, a) => Points.stamp(a, r, color, many ? 0.5 : 0.7, 0, scale));
  const outlined = (size, strength, line) => colors.map((_, a) =>
    Points.stamp(a, size, token("--wrong"), strength, line, scale));
  const [fine, bold] = [outlined(r, 0.7, 1), outlined(r + 0.8, 1, many ? 1.5 : 2)];
  const layers = [
    ...[0, 1, 2].map((a) => ({ passes: (i) => assertion[i] === a, stamps: filled })),
    { passes: (i) => Order.isWrong(evidence, i) && assertion[i] !== Algebra.IK, stamps: fine },
    { passes: (i) => Order.wrongIk(evidence, assessed, i), stamps: bold },
  ];
  pen.drawImage(Points.paint(width, height, spots, assertion, layers, scale), 0, 0, width, height);
  if (chosen === null) return;
  pen.strokeStyle = token("--focus");
  pen.lineWidth = 3;
  pen.beginPath();
  pen.arc(spots[2 * chosen], spots[2 * chosen + 1], r + 6, 0, 2 * Math.PI);
  pen.stroke();
}

function draw(drawn, setting, state) {
  const { pen, width, height } = Plot.frame(drawn.canvas);
  const { places } = drawn, { rule } = setting;
  const limit = PARAMETERS[rule.slack]?.isDistance ? setting[rule.slack] : 0;
  const [mostX, mostY] = drawn.most.map((most) => extent(most, limit));
  const x = (value) => EDGE.left + ((width - EDGE.left - EDGE.right) * value) / mostX;
  const y = (value) => height - EDGE.bottom - ((height - EDGE.top - EDGE.bottom) * value) / mostY;
  const spots = new Float32Array(places.length);
  for (let at = 0; at < places.length; at++) {
    spots[at] = at % 2 ? y(Math.min(places[at], mostY)) : x(Math.min(places[at], mostX));
  }
  const plot = { pen, width, height, x, y, mostX, mostY, spots, quorum: setting.quorum };
  Plot.axes(plot);
  pen.strokeStyle = token("--line");
  const both = Math.min(mostX, mostY);
  Plot.line(pen, [[x(0), y(0)], [x(both), y(both)]], []);
  points(plot, state);
  pen.strokeStyle = token("--ink");
  pen.lineWidth = 1.4;
  rule.drawLines(plot, setting);
  return spots;
}

/* The sample nearest to the pointer, or null. */
function nearest(spots, px, py) {
  let best = NEAR * NEAR;
  let found = /** @type {number | null} */ (null);
  for (let i = 0; i < spots.length / 2; i++) {
    const away = (spots[2 * i] - px) ** 2 + (spots[2 * i + 1] - py) ** 2;
    if (away < best) [best, found] = [away, i];
  }
  return found;
}

export function create(layers, evidence, select) {
  const plots = layers.map((layer) => {
    const canvas = h("canvas", { class: "plot", role: "img",
      "aria-label": `Layer ${layer.name}: distance to the believed class against distance to any `
        + "other. The table below lists the same samples." });
    const places = placesOf(evidence, layer);
    const plot = { layer, canvas, spots: new Float32Array(0), places,
      most: [0, 1].map((axis) => mostOf(places, axis)) };
    const find = (event) => nearest(plot.spots, event.offsetX, event.offsetY);
    canvas.addEventListener("click", (event) => {
      const found = find(event);
      if (found !== null) select(found);
    });
    canvas.addEventListener("mousemove", (event) => {
      const found = find(event);
      canvas.style.cursor = found === null ? "default" : "pointer";
      canvas.title = found === null ? "" : `sample ${evidence.index[found]}`;
    });
    return plot;
  });
  const legend = h("p", { class: "legend" }, [2, 1, 0].map((a) => badge(a)),
    evidence.truth ? h("span", { class: "ringed" }, "red outline: wrong") : null,
    layers.length > 1
      ? h("span", null, "Colors combine all layers; lines are of one layer.") : null);
  byId("plots").replaceChildren(legend, h("div", { class: "grid" }, plots.map((plot) =>
    h("figure", null, h("figcaption", null, `Layer ${plot.layer.name}`), plot.canvas))));
  function update(state) {
    plots.forEach((plot, l) => { plot.spots = draw(plot, state.settings[l], state); });
    const words = new Set(state.settings.map(({ rule }) => rule.lines));
    byId("lines").textContent = [...words].join(" ");  // what the lines do not tell
  }
  return { plots, update };
}
