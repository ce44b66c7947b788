// Asks for the last reports, and for what came before the page was opened.

import { chosen } from "../state/address.js";
import { changed } from "../state/changes.js";
import { now, rates, span } from "../state/known.js";
import { NOW } from "../state/series.js";
import { iso } from "../times.js";
import { ask } from "./source.js";
import { loadSpan } from "./span.js";

// How many reports are asked for at first, to draw what came before.
const FIRST = 5;

export async function loadReport() {
  try {
    const reports = now.last ? [await ask("api/report")] : await ask("api/report", { last: FIRST });
    const before = now.last ? Date.parse(now.last.window.end) : 0;
    now.take(reports);
    // A time that had no window may have one now.
    if (span.why && chosen().to > before) {
      span.name = null;
      loadSpan();
    }
  } catch (error) {
    if (!now.last) now.why = error.status ? error.message : "weir does not answer";
  }
  changed("all");
}

// Fetches the rates from before the page was opened.
export async function loadPast() {
  const to = Math.floor(Date.now() / 1000) * 1000;
  try {
    rates.fill(await ask("api/history", { from: iso(to - NOW * 1000), to: iso(to), points: NOW }));
    now.pastWhy = null;
  } catch (error) {
    now.pastWhy = error.message;
  }
  changed("past");
}
