/* Pictures of samples: an image, a curve, or a table of features. */

import { count, h, short, svg } from "../../report/static/dom.js";
import { points } from "./chart.js";

/* An image whose source is not the PNG of pixels that it should be is left out. */
const isPicture = (source) => typeof source === "string" && source.startsWith("data:image/png;base64,");

function curve(values, label) {
  const all = values.flat(), low = Math.min(...all), high = Math.max(...all);
  const y = (value) => 56 - (52 * (value / 2 - low / 2)) / (high / 2 - low / 2 || 1);
  return svg("svg", { class: "picture series", viewBox: "0 0 100 60", preserveAspectRatio: "none",
    role: "img", "aria-label": label }, values.map((channel, c) => svg("polyline", {
    class: `channel c${c % 4}`,
    points: points(channel.map((value, s) => [(100 * s) / (channel.length - 1), y(value)])),
  })));
}

/** An image or a curve; null for what has neither. @param {Portrayed | null} picture */
export function draw(picture, label) {
  if (picture?.kind === "image" && isPicture(picture.png)) {
    return h("img", { class: "picture", src: picture.png, alt: label, width: picture.width,
      height: picture.height });
  }
  return picture?.kind === "series" ? curve(picture.values, label) : null;
}

/** The features as a table; null for what has none. @param {Portrayed | null} picture */
export function table(picture) {
  if (picture?.kind !== "features") return null;
  const text = (value) => (typeof value === "number" ? short(value) : value);
  return h("div", { class: "features", tabindex: "0", role: "group", "aria-label": "Features" },
    h("table", null, h("tbody", null, picture.values.map((value, f) => h("tr", null,
      h("th", { scope: "row" }, picture.names?.[f] ?? `[${f}]`), h("td", null, text(value)))))),
    picture.more ? h("p", { class: "hint" }, `and ${count(picture.more)} more`) : null);
}
