/* What is being served: promises, bundle, and what else the server says about itself. */

import { h } from "../../report/static/dom.js";
import { plain, spaced } from "./words.js";

const HASH = /^[0-9a-f]{40,}$/;

const written = (value) => (HASH.test(String(value)) ? h("code", null, value) : plain(value));

/* Whatever an object holds, as a list of facts. */
export const facts = (title, found) => (found && Object.keys(found).length ? [h("h3", null, title),
  h("dl", { class: "facts" }, Object.entries(found).flatMap(([key, value]) =>
    [h("dt", null, spaced(key)), h("dd", null, written(value))]))] : []);

/** @returns {Part<ModelStatus>} */
export function make() {
  const content = h("div", { class: "about-columns" });
  const element = h("section", { class: "card about" }, h("h2", null, "About this model"), content);
  /** @param {ModelStatus} status */
  const update = ({ name, version, bundle, promises, live }) => {
    const layers = live?.layers?.join(", ");
    content.replaceChildren(
      h("div", null, h("h3", null, "Promised"), promises?.length
        ? h("ul", null, promises.map((promise) => h("li", null, plain(promise))))
        : h("p", { class: "soft" }, "Nothing was promised about this model.")),
      h("div", null, ...facts("Served", { model: name, version, ...(layers ? { layers } : {}),
        ...(bundle ? { bundle } : {}) })));
  };
  return { element, update };
}
