/* Everything about one model. A part that cannot be drawn says so, and the others go on. */

import { h } from "../../report/static/dom.js";
import * as About from "./about.js";
import * as Accuracy from "./accuracy.js";
import * as Alarm from "./alarm.js";
import * as Classes from "./classes.js";
import { SPANS } from "./columns.js";
import * as Estimate from "./estimate.js";
import * as Levels from "./levels.js";
import * as Shares from "./shares.js";
import * as Speed from "./speed.js";
import * as Timeline from "./timeline.js";
import * as Unknown from "./unknown.js";

function tell(part, value) {
  try {
    part.update(value);
    part.element.classList.remove("broken");
  } catch (error) {  // the status came from elsewhere: anything may be missing in it
    part.element.classList.add("broken");
    part.element.title = `This part could not be drawn: ${error}`;
  }
}

/** @returns {Part<ModelStatus>} */
export function make(id) {
  const range = { chosen: SPANS[0], name: `range-${id}` };
  /** @type {ModelStatus | null} */ let latest = null;
  const choose = (span) => { range.chosen = span; if (latest) update(latest); };
  const ofLive = { now: Shares.make(), timeline: Timeline.make(range, choose), unknown: Unknown.make(),
    speed: Speed.make(range), levels: Levels.make(), estimate: Estimate.make(), classes: Classes.make() };
  const ofModel = { alarm: Alarm.make(), accuracy: Accuracy.make(), about: About.make() };
  const element = h("div", { class: "panel" },
    h("div", { class: "column wide" }, ofLive.now.element, ofLive.timeline.element, ofLive.unknown.element),
    h("div", { class: "column" }, ofModel.alarm.element, ofModel.accuracy.element, ofLive.estimate.element,
      ofLive.speed.element, ofLive.levels.element, ofLive.classes.element),
    ofModel.about.element);
  /** @param {ModelStatus} status */
  function update(status) {
    latest = status;
    for (const part of Object.values(ofModel)) tell(part, status);
    for (const part of Object.values(ofLive)) tell(part, status.live);
  }
  return { element, update };
}
