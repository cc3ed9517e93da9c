"use strict";
/* The augmented confusion matrix: for each assertion, what was said against what was true. */

const Matrix = (() => {
  const { h, byId, count, badge, token, MEANINGS } = Dom;
  const MOST_IN_A_TABLE = 16;
  const ORDER = [2, 1, 0];

  const hue = (a) => `--${Algebra.ASSERTIONS[a].toLowerCase()}`;

  /* How strongly a cell is tinted: by square root, so that small counts are seen. */
  const strength = (n, most) => (n ? 0.12 + 0.6 * Math.sqrt(n / most) : 0);

  function cell(page, a, said, was, n, most) {
    const { facts } = page;
    if (!n) return h("td", { class: "none" }, "·");
    const words = was === null ? `${count(n)} said “${facts.classes[said]}”`
      : `${count(n)} said “${facts.classes[said]}”, truly “${facts.trueClasses[was]}”`;
    const button = h("button", {
      type: "button", title: `${words}: ${MEANINGS[a]}`, "aria-label": `${words}: ${MEANINGS[a]}`,
      onclick: () => page.filter({ assertion: a, belief: said, truth: was }),
    }, count(n));
    const wrong = was !== null && was !== said;
    const td = h("td", { class: wrong && a === Algebra.IK ? "alarm" : "" }, button);
    td.style.background =
      `color-mix(in srgb, var(${hue(a)}) ${100 * strength(n, most)}%, transparent)`;
    return td;
  }

  function asTable(page, a, at, most) {
    const { classes, trueClasses } = page.facts;
    const head = trueClasses.map((label) => h("th", { scope: "col", title: label },
      h("span", null, label)));
    const rows = classes.map((label, said) => h("tr", null,
      h("th", { scope: "row", title: label }, label),
      trueClasses.map((_, was) => cell(page, a, said, was, at(a, said, was), most))));
    return h("table", { class: "counts" },
      h("thead", null, h("tr", null, h("td", { class: "corner" }, h("span", null, "true →"), h("span", null, "said ↓")), head)),
      h("tbody", null, rows));
  }

  /* Many classes: a picture to point at. */
  function asPicture(page, a, at, most) {
    const { classes, trueClasses } = page.facts;
    const size = Math.max(4, Math.floor(340 / trueClasses.length));
    const canvas = h("canvas", { class: "heat", width: size * trueClasses.length,
      height: size * classes.length, role: "img",
      "aria-label": `Matrix for ${Algebra.ASSERTIONS[a]}; its largest cells are listed below` });
    const pen = canvas.getContext("2d");
    const [alarm, color] = [token("--wrong"), token(hue(a))];
    classes.forEach((_, said) => trueClasses.forEach((__, was) => {
      const n = at(a, said, was);
      if (!n) return;
      pen.globalAlpha = Math.min(1, 0.3 + strength(n, most));
      pen.fillStyle = said !== was && a === Algebra.IK ? alarm : color;
      pen.fillRect(was * size, said * size, size - 1, size - 1);
    }));
    const place = (event) => [Math.floor(event.offsetY / size), Math.floor(event.offsetX / size)];
    canvas.addEventListener("mousemove", (event) => {
      const [said, was] = place(event);
      if (said >= classes.length || was >= trueClasses.length) return;
      canvas.title = `said “${classes[said]}”, truly “${trueClasses[was]}”: ${at(a, said, was)}`;
    });
    canvas.addEventListener("click", (event) => {
      const [said, was] = place(event);
      if (at(a, said, was)) page.filter({ assertion: a, belief: said, truth: was });
    });
    return h("div", { class: "scroll" }, canvas, largest(page, a, at));
  }

  /* The most frequent mistakes as buttons, for those who do not point. */
  function largest(page, a, at) {
    const { classes, trueClasses } = page.facts;
    const found = [];
    classes.forEach((_, said) => trueClasses.forEach((__, was) => {
      if (said !== was && at(a, said, was)) found.push([at(a, said, was), said, was]);
    }));
    found.sort((one, other) => other[0] - one[0]);
    return h("ul", { class: "largest" }, found.slice(0, 5).map(([n, said, was]) => h("li", null,
      h("button", { type: "button",
        onclick: () => page.filter({ assertion: a, belief: said, truth: was }) },
      `${n} × said “${classes[said]}”, truly “${trueClasses[was]}”`))));
  }

  /* Without the truth: how often each class was said, and how. */
  function byClass(page, matrix) {
    const { classes } = page.facts;
    const n = classes.length;
    const most = matrix.reduce((a, b) => Math.max(a, b), 1);
    return h("div", { class: "scroll" }, h("table", { class: "counts wide" },
      h("thead", null, h("tr", null, h("td", { class: "corner" }, "the model says"),
        ORDER.map((a) => h("th", { scope: "col" }, badge(a))))),
      h("tbody", null, classes.map((label, said) => h("tr", null,
        h("th", { scope: "row", title: label }, label),
        ORDER.map((a) => cell(page, a, said, null, matrix[a * n + said], most)))))));
  }

  function update(page, summary) {
    const { classes, trueClasses } = page.facts;
    if (trueClasses) byId("matrix-title").textContent = "What was said, and what was true";
    byId("matrix-hint").textContent = trueClasses === null
      ? "How often each class was said. Click a number to see these samples."
      : "For each assertion, what the model said (rows) against what was true (columns). "
        + "A wrong “I know” is outlined. Click a number to see these samples.";
    if (trueClasses === null) {
      byId("matrices").replaceChildren(byClass(page, summary.matrix));
      return;
    }
    const at = (a, said, was) =>
      summary.matrix[(a * classes.length + said) * trueClasses.length + was];
    const most = summary.matrix.reduce((a, b) => Math.max(a, b), 1);
    const draw = trueClasses.length > MOST_IN_A_TABLE ? asPicture : asTable;
    byId("matrices").replaceChildren(...ORDER.map((a) => h("figure", null,
      h("figcaption", null, badge(a), ` ${count(summary.counts[a])}`), draw(page, a, at, most))));
  }

  return { update };
})();
