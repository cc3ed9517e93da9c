/* The scatter of a layer: d_g, how far the believed class is, against d_¬g, how far any other.

Its marks are copied pixel by pixel: ten thousand take a quarter of the time that drawImage needs. */

import * as Algebra from "./algebra.js";
import { h, badge, byId, short, token } from "./dom.js";
import { distancesOf, targetWords } from "./layer.js";

function frame(canvas) {
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth || 420, canvas.clientHeight || 360];
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

/* Where to put ticks: about five round numbers. */
function ticks(most) {
  const power = 10 ** Math.floor(Math.log10(most / 2));
  const step = power * ([1, 2, 5].find((times) => most / (power * times) <= 6) ?? 10);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, t) => t * step);
}

function axes({ pen, height, x, y, mostX, mostY, quorum: [own, other] }) {
  pen.font = `11px ${token("--font")}`;
  pen.strokeStyle = token("--line");
  pen.fillStyle = token("--soft");
  pen.lineWidth = 1;
  pen.textAlign = "center";
  for (const tick of ticks(mostX)) {
    line(pen, [[x(tick), y(0)], [x(tick), y(mostY)]], []);
    pen.fillText(short(tick), x(tick), y(0) + 15);
  }
  pen.textAlign = "right";
  for (const tick of ticks(mostY)) {
    line(pen, [[x(0), y(tick)], [x(mostX), y(tick)]], []);
    if (tick) pen.fillText(short(tick), x(0) - 6, y(tick) + 4);
  }
  pen.textAlign = "center";
  pen.fillText(`distance to ${targetWords(own, "the class it says")}`, (x(0) + x(mostX)) / 2, height - 6);
  pen.save();
  pen.translate(11, (y(0) + y(mostY)) / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(`to ${targetWords(other, "any other class")}`, 0, 0);
  pen.restore();
}

export function line(pen, points, dash) {
  pen.setLineDash(dash);
  pen.beginPath();
  points.forEach(([px, py], p) => (p ? pen.lineTo(px, py) : pen.moveTo(px, py)));
  pen.stroke();
  pen.setLineDash([]);
}

export function nameRegion({ pen }, text, x, y, align) {
  pen.font = `600 12px ${token("--font")}`;
  pen.textAlign = align;
  pen.lineWidth = 4;
  pen.strokeStyle = token("--card");
  pen.strokeText(text, x, y);
  pen.fillStyle = token("--ink");
  pen.fillText(text, x, y);
}

/* A layer that changes its mind at one distance for all classes: its lines and regions. */
export function cross(plot, at, dash) {
  const { pen, x, y, mostX, mostY } = plot;
  if (at < mostX) line(pen, [[x(at), y(0)], [x(at), y(mostY)]], dash);
  if (at < mostY) line(pen, [[x(0), y(at)], [x(mostX), y(at)]], dash);
  const [left, right, top, bottom] = [x(0) + 8, x(mostX) - 8, y(mostY) + 16, y(0) - 8];
  nameRegion(plot, "IK", left, top, "left");
  nameRegion(plot, "IMK", left, bottom, "left");
  if (at < mostX) [top, bottom].forEach((height) => nameRegion(plot, "IDK", right, height, "right"));
}

/* An assertion's shape around a place; r: its radius. */
const MARKS = [
  (pen, x, y, r) => pen.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r),
  (pen, x, y, r) => {
    pen.moveTo(x, y - 1.3 * r); pen.lineTo(x + 1.2 * r, y + 0.9 * r);
    pen.lineTo(x - 1.2 * r, y + 0.9 * r); pen.closePath();
  },
  (pen, x, y, r) => pen.arc(x, y, r, 0, 2 * Math.PI),
];

/* The pixels of one mark: filled, or an outline if it has a width. */
function stamp(assertion, r, color, strength, width, scale) {
  const size = 2 * Math.ceil(scale * (1.4 * r + 2)) + 1;
  const pen = h("canvas", { width: size, height: size })
    .getContext("2d", { willReadFrequently: true });
  pen.translate(size / 2, size / 2);
  pen.scale(scale, scale);
  pen.globalAlpha = strength;
  pen.fillStyle = pen.strokeStyle = color;
  pen.lineWidth = width;
  pen.beginPath();
  MARKS[assertion](pen, 0, 0, r);
  if (width) pen.stroke(); else pen.fill();
  return inkOf(pen.getImageData(0, 0, size, size).data, size);
}

/* Only the pixels that are not empty: [x, y, red, green, blue, opacity], around the middle. */
function inkOf(pixels, size) {
  const ink = [];
  for (let at = 0; at < size * size; at++) {
    const [red, green, blue, opacity] = pixels.subarray(4 * at, 4 * at + 4);
    const [x, y] = [(at % size) - (size >> 1), Math.floor(at / size) - (size >> 1)];
    if (opacity) ink.push(x, y, red, green, blue, opacity / 255);
  }
  return Float32Array.from(ink);
}

/* Put a mark over what is there: the usual rule for one color over another, with opacity. */
function press({ data, width, height }, ink, x, y) {
  for (let at = 0; at < ink.length; at += 6) {
    const px = x + ink[at], py = y + ink[at + 1];
    if (px < 0 || py < 0 || px >= width || py >= height) continue;
    const to = 4 * (py * width + px);
    const over = ink[at + 5];
    const under = (data[to + 3] / 255) * (1 - over);
    const all = over + under;
    for (let c = 0; c < 3; c++) {
      data[to + c] = (ink[at + 2 + c] * over + data[to + c] * under) / all;
    }
    data[to + 3] = 255 * all;
  }
}

/* A canvas of all marks. layers: { passes(i), stamps by assertion }, the last on top. */
function paint(width, height, spots, assertion, layers, scale) {
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  const canvas = h("canvas", { width: wide, height: high });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(wide, high);
  for (const { passes, stamps } of layers) {
    for (let i = 0; i < assertion.length; i++) {
      if (!passes(i)) continue;
      const [x, y] = [Math.round(scale * spots[2 * i]), Math.round(scale * spots[2 * i + 1])];
      press(image, stamps[assertion[i]], x, y);
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

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
  const filled = colors.map((color, a) => stamp(a, r, color, many ? 0.5 : 0.7, 0, scale));
  const outlined = (size, strength, line) => colors.map((_, a) =>
    stamp(a, size, token("--wrong"), strength, line, scale));
  const [fine, bold] = [outlined(r, 0.7, 1), outlined(r + 0.8, 1, many ? 1.5 : 2)];
  const layers = [
    ...[0, 1, 2].map((a) => ({ passes: (i) => assertion[i] === a, stamps: filled })),
    { passes: (i) => Algebra.isWrong(evidence, i) && assertion[i] !== Algebra.IK, stamps: fine },
    { passes: (i) => Algebra.wrongIk(evidence, assessed, i), stamps: bold },
  ];
  pen.drawImage(paint(width, height, spots, assertion, layers, scale), 0, 0, width, height);
  if (chosen === null) return;
  pen.strokeStyle = token("--focus");
  pen.lineWidth = 3;
  pen.beginPath();
  pen.arc(spots[2 * chosen], spots[2 * chosen + 1], r + 6, 0, 2 * Math.PI);
  pen.stroke();
}

function draw(drawn, setting, state) {
  const { pen, width, height } = frame(drawn.canvas);
  const { places } = drawn, { rule } = setting;
  const limit = rule.slack === "radius" ? setting.radius : 0;
  const [mostX, mostY] = drawn.most.map((most) => extent(most, limit));
  const x = (value) => EDGE.left + ((width - EDGE.left - EDGE.right) * value) / mostX;
  const y = (value) => height - EDGE.bottom - ((height - EDGE.top - EDGE.bottom) * value) / mostY;
  const spots = new Float32Array(places.length);
  for (let at = 0; at < places.length; at++) {
    spots[at] = at % 2 ? y(Math.min(places[at], mostY)) : x(Math.min(places[at], mostX));
  }
  const plot = { pen, width, height, x, y, mostX, mostY, spots, quorum: setting.quorum };
  axes(plot);
  pen.strokeStyle = token("--line");
  const both = Math.min(mostX, mostY);
  line(pen, [[x(0), y(0)], [x(both), y(both)]], []);
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
