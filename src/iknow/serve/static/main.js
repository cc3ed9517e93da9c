/* The page put together: every answer of the server is shown as a whole. */

import { brief, byId, count, h } from "../../report/static/dom.js";
import { facts } from "./about.js";
import * as Models from "./models.js";
import { poll, token } from "./poll.js";
import { clock, duration, sentence, share } from "./words.js";

const models = Models.make(byId("tabs"), byId("models"));
const SIGNS = { healthy: "✓", alarm: "▲", trouble: "▲", gone: "✕", token: "?", starting: "…" };
let seen = 0;  // when the server last answered

/* Set only if it is new: screen readers read alerts again whenever they are touched. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
  element.hidden = text === "";
}

function health(state, text) {
  document.body.dataset.state = state;
  const sign = SIGNS[state];
  byId("health").replaceChildren(h("span", { "aria-hidden": "true" }, `${sign} `), text);
}

/** @param {Status} status */
function judge({ server, models: found = [] }) {
  const alarmed = found.filter(Models.isAlarmed);
  const broken = server?.audit?.ok === false || typeof server?.audit?.error === "string";
  if (server?.ready === false) return ["starting", "Starting"];
  if (alarmed.length) return ["alarm", alarmed.length === 1 ? "Alarm" : `${alarmed.length} alarms`];
  if (broken) return ["trouble", "Audit trail in trouble"];
  return ["healthy", "Healthy"];
}

/** @param {Status} status */
function alarmText({ server, models: found = [] }) {
  const rings = found.filter(Models.isAlarmed).map((model) => {
    const said = [model.alarm, model.accuracy].filter((each) => each?.alarmed)
      .map((each) => each?.text).filter(Boolean);
    return `${model.name} ${model.version}: ${said.join(" ") || "the alarm rings."}`;
  });
  const trouble = typeof server?.audit?.error === "string" ? [`Audit trail: ${server.audit.error}`] : [];
  return [...rings, ...trouble].join(" ");
}

function title(state, word, found) {
  const counts = found.length === 1 ? Models.latest(found[0]) : null;
  if (state !== "healthy") return `${word} · iknow`;
  return counts?.rows ? `${share(counts.IK, counts.rows)} known · iknow` : "iknow";
}

/** @param {Status} status */
function show(status) {
  const found = status.models ?? [], { server } = status;
  const [state, word] = judge(status);
  health(state, word);
  document.title = title(state, word, found);
  say(byId("alert"), alarmText(status));
  byId("access").hidden = true;
  byId("forget").hidden = token.get() === "";
  const served = found.length === 1 ? `${brief(found[0].name, 60)} ${brief(String(found[0].version), 20)}`
    : `${count(found.length)} models`;
  byId("server").replaceChildren("serves ", h("b", null, served),
    server?.version ? ` · iknow ${server.version}` : "",
    Number.isFinite(server?.uptime) ? ` · up ${duration(server?.uptime)}` : "");
  byId("empty").hidden = found.length > 0;
  models.update(found);
  byId("server-facts").replaceChildren(h("div", null, ...facts("Queue", server?.queue)),
    h("div", null, ...facts("Audit trail", server?.audit)));
  seen = Date.now() / 1000;
}

function lose({ trouble, text }) {
  if (trouble === "token") {
    const refused = token.get() !== "";
    health("token", refused ? "Token refused" : "Token needed");
    say(byId("alert"), "");
    say(byId("refused"), refused ? text || "The server refuses this token." : "");
    if (byId("access").hidden) {
      byId("access").hidden = false;
      byId("token").focus();
    }
  } else {
    health("gone", "No answer");
    const old = seen ? ` Everything below is as of ${clock(seen)}.` : "";
    say(byId("alert"), `${sentence(text)}${old} The page keeps trying.`);
  }
  document.title = `${trouble === "token" ? "Token needed" : "No answer"} · iknow`;
}

/* The answer came from elsewhere, and anything may be missing in it. */
function tell(answer) {
  try {
    if (answer.status) show(answer.status);
    else lose(answer);
  } catch (error) {
    lose({ trouble: "gone", text: `The server's answer cannot be shown: ${error}` });
  }
  page.answers += 1;
}

const refresh = poll(tell);

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("token").value.trim();
  if (!/^[\x21-\x7e]+$/.test(text)) {
    say(byId("refused"), "A token is one word of plain letters, digits and signs.");
    return;
  }
  token.set(text);
  byId("token").value = "";
  refresh();
});
byId("forget").addEventListener("click", () => { token.forget(); refresh(); });

export const page = { refresh, answers: 0 };
