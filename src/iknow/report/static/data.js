/* The data in the page: compressed arrays → the evidence that the algebra reads. */

import { byId } from "./dom.js";
import { readSetting } from "./rules.js";

const TYPES = { Float64Array, Float32Array, BigInt64Array, Int32Array, Uint16Array, Uint8Array };

/* The bytes of an element that holds gzip in base64. */
export async function bytesOf(id) {
  const text = atob(byId(id).textContent.trim());
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

const OF_LAYERS = ["distances", "codes", "rows", "ranks", "neighbors", "tenth", "rounding", "crossing",
  "stretch", "attack", "nearerRows", "nearerDistances", "features", "shares", "within", "reach", "none", "margin", "robust"];
const OF_SAMPLES = ["index", "counted", "belief", "truth", "invalid", "uncertified", "doubted", "score",
  "removals", "removalsExact", "changes", "level", "weakest", "confidence", "probability"];

/* { facts, evidence, album }, as algebra.js, table.js and pictures.js expect them. */
export async function read() {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser cannot unpack the evidence in this page. "
      + "Chrome or Edge 103, Firefox 113, Safari 16.4, or any later one can.");
  }
  const facts = JSON.parse(byId("facts").textContent);
  const buffer = await bytesOf("arrays");
  const column = (name) => {
    const entry = facts.arrays[name];
    return entry ? new TYPES[entry.type](buffer, entry.offset, entry.length) : null;
  };
  const columns = (names, place = "") =>
    Object.fromEntries(names.map((name) => [name, column(place + name)]));
  const layers = facts.layers.map(({ setting, lipschitz, jumpsAt, features: names, ...layer }, l) => ({ ...layer,
    names,
    lipschitz: Number(lipschitz), jumpsAt: Number(jumpsAt), given: readSetting(setting), ...columns(OF_LAYERS, `${l}.`) }));
  const evidence = { n: facts.n, layers, ...columns(OF_SAMPLES) };
  const rows = column("trainingRows"), places = column("trainingPictures");
  const training = new Map(Array.from(rows, (row, at) => [row, places[at]]));
  const album = {
    index: column("pictures"), samples: column("samplePictures"), training, names: facts.names,
  };
  return { facts, evidence, album };
}
