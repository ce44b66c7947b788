// Asks what each interface has carried in this month and in the last one.

import { changed } from "../state/changes.js";
import { usage } from "../state/known.js";
import { ask } from "./source.js";

// It changes with each window, but nobody watches a month by the second. In milliseconds.
const EVERY = 30_000;

async function poll() {
  try {
    usage.months = await ask("api/usage", { by: "month", last: 2 });
  } catch {
    usage.months = null; // weir may have no place to keep it: then nothing is shown
  }
  changed("usage");
}

export function followUsage() {
  poll();
  setInterval(poll, EVERY);
}
