/* Small helpers: elements, and numbers as text. Text is always set as text, never as markup. */

/* The names of the assertions, in the order of their codes. */
export const ASSERTIONS = ["IDK", "IMK", "IK"];

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => (child ?? null) !== null));
  return element;
}

export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
/** @type {(id: string) => any} */
export const byId = (id) => document.getElementById(id);

/* A color, or another word, of the style sheet. */
export const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* The name of a class, or what to say if the model gave no answer. */
export const label = (facts, code) => (code < 0 ? "no answer" : facts.classes[code]);

/* The beginning of a long text; the rest belongs in a title. */
export const brief = (text, most = 60) =>
  (text.length > most ? `${[...text].slice(0, most - 1).join("")}…` : text);

export const count = (n) => n.toLocaleString("en-US");

/* As Python writes it. Only x.25 and x.75 are ties, which go to the even digit. */
export function percent(part, whole) {
  if (!whole) return "–";
  const value = 100 * (part / whole);
  return `${(4 * value) % 4 === 1 ? Math.floor(value) + 0.2 : value.toFixed(1)}%`;
}

/* This many significant digits, without needless zeros. */
export function short(value, digits = 4) {
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 10 ** -digits || size >= 1e6)
    ? value.toExponential(digits - 2) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

export const SHAPES = ["■", "▲", "●"];
export const MEANINGS = ["I don't know", "I may know", "I know"];

/* An assertion by color, shape and letters. */
export function badge(assertion) {
  const name = ASSERTIONS[assertion];
  return h("span", { class: `badge ${name.toLowerCase()}`, title: MEANINGS[assertion] },
    h("span", { class: "shape", "aria-hidden": "true" }, SHAPES[assertion]), name);
}
