/* The page put together: one state, recomputed as a whole whenever anything is set. */

import * as Algebra from "./algebra.js";
import * as Data from "./data.js";
import * as Detail from "./detail.js";
import { byId } from "./dom.js";
import * as Figures from "./figures.js";
import * as Matrix from "./matrix.js";
import * as Pictures from "./pictures.js";
import * as Plot from "./plot.js";
import * as Reliability from "./reliability.js";
import { robustRadii } from "./rules.js";
import * as Settings from "./settings.js";
import * as Table from "./table.js";

/** What tests and the curious inspect from the console. @type {{ page: any }} */
export const report = { page: null };

function build({ facts, evidence, album }) {
  const summarise = (assessed) => Algebra.summarise(
    evidence, assessed, facts.classes.length, facts.trueClasses?.length ?? 1);
  const assess = (settings) => ({ ...Algebra.assess(evidence, settings),
    radius: robustRadii(evidence, settings) });
  const given = evidence.layers.map((layer) => layer.given);
  const givenSummary = summarise(Algebra.assess(evidence, given));
  const page = { facts, evidence, album, chosen: null, settings: given };
  let waiting = false;

  const least = Number(facts.leastConfidence);
  const settings = Settings.create(evidence.layers, evidence.confidence, least, () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; recompute(); });
  });
  const filters = Table.createFilters(facts, evidence, () => arrange());
  const scatter = Plot.create(evidence.layers, evidence, (i) => page.find(i));

  Object.assign(page, {
    plots: scatter.plots,
    isGiven: settings.isGiven,
    leastConfidence: settings.leastConfidence,
    filter(wanted) {
      filters.set(wanted);
      page.choose(table.first());
      page.meet("samples");
    },
    order: (name) => filters.setOrder(name),
    choose(i) {
      page.chosen = i;
      if (i !== null) table.show(i);
      scatter.update(page);
      Detail.show(page);
    },
    find(i) {
      if (!table.isShown(i)) filters.set({});
      page.choose(i);
      page.meet("samples");
    },
    /* To the pane: by key always, by pointer only where it is not in view already. */
    enter(byKey) {
      const pane = byId("detail");
      if (byKey) pane.focus({ preventScroll: true });
      const below = pane.getBoundingClientRect().top > window.innerHeight - 160;
      if (below) pane.scrollIntoView({ block: "start" });
    },
    leave() { byId("grid").focus({ preventScroll: true }); page.meet("samples"); },
    meet: (id) => byId(id).scrollIntoView({ block: "start" }),
  });
  page.assessed = assess(given);
  const table = Table.create(page);

  const arrange = () =>
    table.update(Table.arrange(evidence, page.assessed, ...filters.current()));

  function recompute() {
    page.settings = settings.current();
    if (evidence.confidence) {
      evidence.doubted = evidence.confidence.map((odds) => Number(odds < settings.leastConfidence()));
    }
    page.assessed = assess(page.settings);
    page.summary = summarise(page.assessed);
    Figures.update(page.summary, givenSummary, facts.trueClasses !== null);
    Matrix.update(page, page.summary);
    byId("uncertified").hidden = settings.isGiven() || !facts.certified;
    arrange();
    scatter.update(page);
    Detail.show(page);
  }

  byId("detail").addEventListener("keydown", (event) => {
    if (event.key === "Escape") page.leave();
  });
  window.addEventListener("resize", () => scatter.update(page));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recompute);
  Reliability.show(evidence);
  recompute();
  page.choose(table.first());
  return page;
}

async function start() {
  try {
    const data = await Data.read();
    Pictures.open(data.album);
    report.page = build(data);
    document.body.dataset.state = "ready";
  } catch (error) {
    byId("trouble").textContent = error instanceof Error ? error.message : error;
    byId("trouble").hidden = false;
    document.body.dataset.state = "failed";
  }
}

start();
