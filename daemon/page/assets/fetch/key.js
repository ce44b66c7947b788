// Asks what is known of one key: in the last window, and over time.

import { sameKey } from "../report/key.js";
import { isStandard, lists, ordering, viewOf } from "../report/lists.js";
import { now, span } from "../state/known.js";
import { iso } from "../times.js";
import { ask } from "./source.js";

// In how many steps of whole windows the time is told at most.
const POINTS = 360;

// Asks all views of the last window about a key.
export const askKey = (question) => ask("api/ask", { key: question });

// Returns the numbers of a key in each window: {windows, leftOut}. `leftOut` windows asked another question.
export const windowsOfKey = (key, choice) => (choice.isSpan ? ofSpan(key, choice) : ofReports(key, choice));

// The windows of a span as weir remembers them.
async function ofSpan(key, choice) {
  const view = isStandard(key) ? undefined : viewOf(span.report, choice);
  if (!isStandard(key) && !view) return { windows: [], leftOut: 0 };
  const times = { from: iso(choice.from), to: iso(choice.to) };
  const told = await ask("api/history", { key: choice.key, view, ...times, points: POINTS });
  const windows = told.windows.map((window) => ({ ...window, amount: window[choice.by] }));
  return { windows, leftOut: told.left_out ?? 0 };
}

// The last reports that this page knows, in the same shape.
function ofReports(key, { by }) {
  const reports = now.earlier.map((report) => ({ window: report.window, all: lists(report, by) }));
  const own = (list) => !list.counted && list.rows.some((row) => sameKey(row.key, key));
  const asked = reports.map(({ all }) => all.find(own)).findLast(Boolean);
  const windows = [];
  let leftOut = 0;
  for (const { window, all } of reports) {
    const list = all.find((one) => one.name === asked?.name);
    if (!list) continue;
    // A view that keeps its name may have asked something else.
    if (list.question !== asked?.question) {
      leftOut += 1;
      continue;
    }
    const row = list.rows.find((one) => sameKey(one.key, key));
    windows.push({ ...window, windows: 1, listed: row ? 1 : 0, amount: row && ordering(row.amount, by) });
  }
  return { windows, leftOut };
}
