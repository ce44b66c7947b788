// Follows a collector, which has reports and no seconds: asks it for the last one again and again.

import { chosen } from "../state/address.js";
import { changed } from "../state/changes.js";
import { connection, now, rates } from "../state/known.js";
import { loadPast, loadReport } from "./reports.js";
import { ask, EVERY } from "./source.js";

export function followCollector() {
  document.addEventListener("visibilitychange", poll);
  setInterval(poll, EVERY);
  poll();
}

async function poll() {
  if (document.hidden) return;
  try {
    const router = await ask("api/observer");
    connection.router = router;
    connection.unknown = null;
    connection.made();
    // The chart goes on, with a gap if nothing comes.
    rates.latest = Math.max(rates.latest, Math.floor(Date.parse(router.time) / 1000));
    // Only a new report is read.
    if (!now.last || router.last?.id !== now.last.id) {
      await loadReport();
      if (!chosen().isSpan) await loadPast();
    }
  } catch (error) {
    refused(error);
  }
  changed("all");
}

function refused(error) {
  if (error.status !== 404) {
    connection.lost(error.status ? error.message : "the collector does not answer");
    return;
  }
  connection.unknown = error.message;
  connection.broken = null;
  now.why = error.message;
}
