"use strict";
/* Heat: how a count is tinted, and a matrix of many classes as a picture. */

const Heat = (() => {
  const { h, token } = Dom;

  const hue = (a) => `--${Algebra.ASSERTIONS[a].toLowerCase()}`;

  /* How strongly a cell is tinted: by square root, so that small counts are seen. */
  const strength = (n, most) => (n ? 0.12 + 0.6 * Math.sqrt(n / most) : 0);

  /* Many classes: a picture to point at. */
  function draw(page, a, at, most) {
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

  return { hue, strength, draw };
})();
