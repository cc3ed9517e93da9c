/* What it does not know: the last IDKs, each with its evidence to open.

An entry never changes once it is there, so entries stay as they are, open or closed, while newer
ones come in above them. */

import { brief, count, h } from "../../report/static/dom.js";
import * as Evidence from "./evidence.js";
import * as Pictures from "./pictures.js";
import { ago, level, sentence } from "./words.js";

const FEW = 8;

const key = ({ time, request, row }) => JSON.stringify([time, request, row]);
const said = ({ belief }) => (belief === null ? "no answer" : `“${brief(belief, 40)}”`);

/** @param {UnknownRow} found */
function detail(found) {
  const standing = found.level === null ? null : [h("dt", null, "level"),
    h("dd", null, level(found.level)),
    found.decides ? [h("dt", null, "decides"), h("dd", null, found.decides)] : null];
  const large = Pictures.draw(found.picture, `The sample that it says ${said(found)} about`);
  return h("div", { class: "detail" },
    h("div", { class: "portrait" }, large,
      h("dl", { class: "facts" }, h("dt", null, "request"), h("dd", null, h("code", null, found.request)),
        h("dt", null, "row"), h("dd", null, String(found.row)), standing,
        h("dt", null, "time"), h("dd", null, h("time", { datetime: found.time }, found.time)))),
    found.sentence ? h("p", { class: "sentence" }, sentence(found.sentence)) : null,
    Evidence.draw(found));
}

/** @param {UnknownRow} found */
function entry(found) {
  const age = h("span", { class: "age" });
  const thumb = Pictures.draw(found.picture, "");
  const opened = h("details", { ontoggle: fillOnce }, h("summary", null,
    h("span", { class: "thumb" }, thumb ?? h("span", { class: "shape", "aria-hidden": "true" }, "■")),
    h("span", { class: "said" }, h("b", null, said(found)),
      h("span", { class: "why" }, found.reason.toLowerCase())),
    h("span", { class: "number" }, found.level === null ? "" : `level ${level(found.level)}`), age));
  function fillOnce() {
    if (opened.children.length === 1) opened.append(detail(found));
  }
  const moment = Date.parse(found.time) / 1000;
  return { element: h("li", null, opened), setNow: (now) => { age.textContent = ago(now - moment); } };
}

/** @returns {Part<LiveStatus>} */
export function make() {
  const entries = new Map(), items = h("ol", { class: "unknown" });
  let all = false;
  const more = h("button", { type: "button", class: "more", onclick: () => { all = true; fold(); } });
  function fold() {
    [...items.children].forEach((item, place) => { item.hidden = !all && place >= FEW; });
    more.hidden = all || items.children.length <= FEW;
    more.textContent = `Show ${count(items.children.length - FEW)} more`;
  }
  const none = h("p", { class: "soft" }, "Nothing so far.");
  const element = h("section", { class: "card idks" }, h("h2", null, "What it did not know"),
    h("p", { class: "hint" }, "The last IDKs, newest first, a few of those that come together. "
      + "Open one to see what speaks for and against."),
    none, items, more);
  /** @param {LiveStatus} status */
  const update = ({ unknown, now }) => {
    const keys = new Set(unknown.map(key));
    for (const [old, { element: item }] of entries) if (!keys.has(old)) { item.remove(); entries.delete(old); }
    [...unknown].reverse().forEach((found) => {
      if (entries.has(key(found))) return;
      entries.set(key(found), entry(found));
      items.prepend(entries.get(key(found)).element);
    });
    for (const { setNow } of entries.values()) setNow(now);
    fold();
    none.hidden = unknown.length > 0;
  };
  return { element, update };
}
