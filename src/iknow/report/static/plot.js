"use strict";
/* A plot's frame: canvas, axes, and the lines where a layer changes its mind. */

const Plot = (() => {
  const { token, short } = Dom;

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

  function axes({ pen, height, x, y, mostX, mostY, units }) {
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
    pen.fillText(`distance to the class it says${units}`, (x(0) + x(mostX)) / 2, height - 6);
    pen.save();
    pen.translate(11, (y(0) + y(mostY)) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(`to any other class${units}`, 0, 0);
    pen.restore();
  }

  function line(pen, points, dash) {
    pen.setLineDash(dash);
    pen.beginPath();
    points.forEach(([px, py], p) => (p ? pen.lineTo(px, py) : pen.moveTo(px, py)));
    pen.stroke();
    pen.setLineDash([]);
  }

  function name({ pen }, text, x, y, align) {
    pen.font = `600 12px ${token("--font")}`;
    pen.textAlign = align;
    pen.lineWidth = 4;
    pen.strokeStyle = token("--card");
    pen.strokeText(text, x, y);
    pen.fillStyle = token("--ink");
    pen.fillText(text, x, y);
  }

  /* The lines of a ratio: the other class up to so many times as far, and the other way round. */
  function rays({ pen, x, y, mostX, mostY }, radius, ratio) {
    const up = Math.min(radius, mostX, mostY / ratio);
    const right = Math.min(radius, mostY, mostX / ratio);
    line(pen, [[x(0), y(0)], [x(up), y(up * ratio)]], [5, 3]);
    line(pen, [[x(0), y(0)], [x(right * ratio), y(right)]], [5, 3]);
    if (radius >= mostX || radius >= mostY) return;
    line(pen, [[x(radius), y(mostY)], [x(radius), y(radius)], [x(mostX), y(radius)]], [5, 3]);
  }

  /* The lines where this layer changes its mind, and the names of the regions between them. */
  function regions(plot, setting) {
    if (setting.rule === "Nearest") return;
    const { pen, x, y, mostX, mostY } = plot;
    const radius = setting.radii ? setting.factor : setting.radius;
    const isRelative = setting.rule === "RelativeBall";
    pen.strokeStyle = token("--ink");
    pen.lineWidth = 1.4;
    if (isRelative) rays(plot, radius, setting.ratio);
    else {
      const dash = setting.rule === "Ball" ? [5, 3] : [2, 4];
      if (radius < mostX) line(pen, [[x(radius), y(0)], [x(radius), y(mostY)]], dash);
      if (radius < mostY) line(pen, [[x(0), y(radius)], [x(mostX), y(radius)]], dash);
    }
    const [left, right, top, bottom] = [x(0) + 8, x(mostX) - 8, y(mostY) + 16, y(0) - 8];
    name(plot, "IK", left, top, "left");
    if (radius < mostX) name(plot, "IDK", right, top, "right");
    if (!isRelative) name(plot, "IMK", left, bottom, "left");
    if (!isRelative && radius < mostX) name(plot, "IDK", right, bottom, "right");
    const middle = Math.min(radius, mostX, mostY) * 0.6;
    if (isRelative) name(plot, "IMK", x(middle), y(middle), "center");
  }

  return { frame, axes, line, regions };
})();
