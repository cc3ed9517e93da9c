/* Pictures of samples. */

import { h } from "../../report/static/dom.js";

/** An image; null for none, or if its source is not the PNG of pixels that it should be.
@param {Portrayed | null} picture */
export function draw(picture, label) {
  if (!picture?.png?.startsWith?.("data:image/png;base64,")) return null;
  return h("img", { class: "picture", src: picture.png, alt: label, width: picture.width,
    height: picture.height });
}
