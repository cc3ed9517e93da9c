/* A plot's frame: canvas, axes, lines, and names of regions. */

import { token, short } from "./dom.js";
import * as Quorum from "./quorum.js";

export function frame(canvas) {
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

export function axes({ pen, height, x, y, mostX, mostY, quorum: [own, other] }) {
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
  pen.fillText(`distance to ${Quorum.target(own, "the class it says")}`, (x(0) + x(mostX)) / 2, height - 6);
  pen.save();
  pen.translate(11, (y(0) + y(mostY)) / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(`to ${Quorum.target(other, "any other class")}`, 0, 0);
  pen.restore();
}

export function line(pen, points, dash) {
  pen.setLineDash(dash);
  pen.beginPath();
  points.forEach(([px, py], p) => (p ? pen.lineTo(px, py) : pen.moveTo(px, py)));
  pen.stroke();
  pen.setLineDash([]);
}

export function name({ pen }, text, x, y, align) {
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
  name(plot, "IK", left, top, "left");
  name(plot, "IMK", left, bottom, "left");
  if (at < mostX) [top, bottom].forEach((height) => name(plot, "IDK", right, height, "right"));
}
