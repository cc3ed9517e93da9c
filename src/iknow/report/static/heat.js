/* Heat: how a count is tinted, and a matrix of many classes as a picture. */

import * as Algebra from "./algebra.js";
import { h, token } from "./dom.js";

const MOST_IN_A_PICTURE = 1000;  // at 4 pixels a class, as wide as a picture should get

export const hue = (a) => `--${Algebra.ASSERTIONS[a].toLowerCase()}`;

/* How strongly a cell is tinted: by square root, so that small counts are seen. */
export const strength = (n, most) => (n ? 0.12 + 0.6 * Math.sqrt(n / most) : 0);

/* A picture to point at. */
export function draw(page, a, at, most) {
  const { classes, trueClasses } = page.facts;
  if (trueClasses.length > MOST_IN_A_PICTURE) return largest(page, a);
  const size = Math.max(4, Math.floor(340 / trueClasses.length));
  const canvas = h("canvas", { class: "heat", width: size * trueClasses.length,
    height: size * classes.length, role: "img",
    "aria-label": `Matrix for ${Algebra.ASSERTIONS[a]}; its largest cells are listed below` });
  const pen = canvas.getContext("2d");
  const [alarm, color] = [token("--wrong"), token(hue(a))];
  Algebra.pairsOf(page.summary, a).forEach(({ said, was, n }) => {
    pen.globalAlpha = Math.min(1, 0.3 + strength(n, most));
    pen.fillStyle = said !== was && a === Algebra.IK ? alarm : color;
    pen.fillRect(was * size, said * size, size - 1, size - 1);
  });
  const place = ({ offsetX, offsetY }) => [offsetY, offsetX].map((away) => Math.floor(away / size));
  canvas.addEventListener("mousemove", (event) => {
    const [said, was] = place(event);
    if (said >= classes.length || was >= trueClasses.length) return;
    canvas.title = `said “${classes[said]}”, actually “${trueClasses[was]}”: ${at(a, said, was)}`;
  });
  canvas.addEventListener("click", (event) => {
    const [said, was] = place(event);
    if (at(a, said, was)) page.filter({ assertion: a, belief: said, truth: was });
  });
  return h("div", { class: "scroll" }, canvas, largest(page, a));
}

/* The most frequent mistakes as buttons, for keyboards. */
function largest(page, a) {
  const { classes, trueClasses } = page.facts;
  const found = Algebra.pairsOf(page.summary, a).filter(({ said, was }) => said !== was);
  found.sort((one, other) => other.n - one.n || one.said - other.said || one.was - other.was);
  return h("ul", { class: "largest" }, found.slice(0, 5).map(({ n, said, was }) => h("li", null,
    h("button", { type: "button",
      onclick: () => page.filter({ assertion: a, belief: said, truth: was }) },
    `${n} × said “${classes[said]}”, actually “${trueClasses[was]}”`))));
}
