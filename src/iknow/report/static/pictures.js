/* Pictures: numbers → an image, a curve, or a table of features. Parts are unpacked when needed. */

import * as Data from "./data.js";
import { h, percent, svg, short } from "./dom.js";

const [COLOR, SERIES, FEATURES] = [1, 2, 3];  // 0: gray
const parts = new Map();
let album = null;

export const open = (opened) => { album = opened; };
export const ofSample = (i) => album.samples[i];
export const ofTraining = (row) => album.training.get(row) ?? -1;

function entry(at) {
  const [kind, first, second, part, offset, length] = album.index.subarray(6 * at, 6 * at + 6);
  return { kind, first, second, part, offset, length };
}

async function bytesOf({ part, offset, length }) {
  if (!parts.has(part)) parts.set(part, Data.bytesOf(`pictures-${part}`));
  return (await parts.get(part)).slice(offset, offset + length);
}

export const isFeatures = (at) => at >= 0 && entry(at).kind === FEATURES;

/* An element to show now; it is drawn as soon as its part is unpacked. null: nothing to draw. */
export function draw(at, label) {
  if (at < 0 || isFeatures(at)) return null;
  const found = entry(at);
  const picture = found.kind === SERIES
    ? svg("svg", { class: "picture series", viewBox: "0 0 100 60", role: "img",
      preserveAspectRatio: "none", "aria-label": label })
    : h("canvas", { class: "picture", width: found.second, height: found.first, role: "img",
      "aria-label": label });
  bytesOf(found).then((buffer) => {
    if (found.kind === SERIES) drawSeries(picture, found, new Float32Array(buffer));
    else drawImage(picture, found, new Uint8Array(buffer));
  });
  return picture;
}

function drawImage(canvas, { kind, first: height, second: width }, pixels) {
  const rgba = new Uint8ClampedArray(4 * height * width);
  const channels = kind === COLOR ? 3 : 1;
  for (let p = 0; p < height * width; p++) {
    for (let c = 0; c < 3; c++) rgba[4 * p + c] = pixels[channels * p + (channels === 3 ? c : 0)];
    rgba[4 * p + 3] = 255;
  }
  canvas.getContext("2d").putImageData(new ImageData(rgba, width, height), 0, 0);
}

function drawSeries(picture, { first: channels, second: steps }, values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const y = (value) => 56 - (52 * (value - low)) / (high - low || 1);
  for (let c = 0; c < channels; c++) {
    const points = Array.from(values.subarray(c * steps, (c + 1) * steps),
      (value, s) => `${((100 * s) / (steps - 1)).toFixed(2)},${y(value).toFixed(2)}`);
    picture.append(svg("polyline", { points: points.join(" "), class: `channel c${c % 4}` }));
  }
}

async function featuresOf(at) {
  if (!isFeatures(at)) return null;
  const found = entry(at);
  const values = JSON.parse(new TextDecoder().decode(await bytesOf(found)));
  return { values, names: album.names[found.first] ?? null, more: found.second };
}

/* The texts of samples, one below the other. */
const drawTexts = (columns, rows) => h("dl", { class: "texts" }, columns.flatMap(({ title }, c) =>
  (rows[c] ? [h("dt", null, title), h("dd", null, rows[c].values[0])] : [])));

/* A table of features: one column for each picture, the sample's first. ranked: what features add to
the distance, by name, the largest first: they come first. */
export async function compare(columns, ranked) {
  const rows = await Promise.all(columns.map(({ at }) => featuresOf(at)));
  const first = rows.find((row) => row !== null);
  if (!first) return null;
  if (first.names?.length === 1 && first.names[0] === "text") return drawTexts(columns, rows);
  const nameOf = (f) => first.names?.[f] ?? `[${f}]`;
  const shareOf = (f) => ranked.get(nameOf(f)) ?? 0;
  const places = [...first.values.keys()].sort((a, b) => shareOf(b) - shareOf(a) || a - b);
  const cell = (row, f) => {
    const value = row ? row.values[f] : "–", differs = row && rows[0] && value !== rows[0].values[f];
    return h("td", { class: typeof value === "number" ? "numeric" : null },
      h(differs ? "b" : "span", null, typeof value === "number" ? short(value) : value ?? ""));
  };
  const titles = [{ title: "feature" }, ...columns, ...(ranked.size ? [{ title: "of the distance" }] : [])];
  const body = places.map((f) => h("tr", null, h("th", { scope: "row" }, nameOf(f)),
    rows.map((row) => cell(row, f)),
    ranked.size ? h("td", { class: "numeric" }, shareOf(f) ? percent(shareOf(f), 1) : "") : null));
  return h("div", { class: "features", tabindex: "0", role: "group", "aria-label": "Features" },
    h("table", null, h("thead", null, h("tr", null, titles.map(({ title }) =>
      h("th", { scope: "col" }, title)))), h("tbody", null, body)),
    first.more ? h("p", { class: "hint" }, `and ${first.more} more`) : null);
}
