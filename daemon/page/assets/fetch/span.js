// Asks for a span of time: its lists together, then what its charts show.

import { chosen, replace } from "../state/address.js";
import { changed } from "../state/changes.js";
import { lastEnd, now, span } from "../state/known.js";
import { iso } from "../times.js";
import { ask } from "./source.js";

// How many points a chart of a span has at most.
const POINTS = 600;

const nameOf = ({ from, to }) => `${from} ${to}`;

// Another span may be chosen while an answer is on its way: then the answer is dropped.
export async function loadSpan() {
  const choice = chosen();
  const name = choice.isSpan ? nameOf(choice) : null;
  if (span.name === name) return;
  span.begin(name);
  if (!choice.isSpan) return;
  let times = { from: iso(choice.from), to: iso(choice.to) };
  try {
    if (now.last && choice.from >= lastEnd()) throw new Error("no window of this time has ended yet");
    const report = await ask("api/span", times);
    if (span.name !== name) return;
    times = whole(choice, report);
    // The address has the time of the whole windows, so that it shows the same again, and the chart is of that time.
    replace(times);
    span.name = nameOf(chosen());
    span.report = report;
  } catch (error) {
    if (span.name !== name) return;
    span.why = error.message;
  }
  changed("all");
  await loadCharts(times);
}

async function loadCharts(times) {
  const asked = span.name;
  try {
    const past = await ask("api/history", { ...times, points: POINTS });
    if (span.name !== asked) return;
    span.past = past;
    span.pastWhy = null;
  } catch (error) {
    if (span.name !== asked) return;
    span.past = null;
    span.pastWhy = error.message;
  }
  changed("all");
}

// The time of the windows that touch a time, in milliseconds that touch no others. A start of which nothing is known
// stays.
function whole({ from, to }, { window: { start, end }, missing }) {
  const isMissing = (missing ?? []).some((gap) => Date.parse(gap.start) >= Date.parse(end));
  return { from: iso(Math.min(from, ceilMs(start))), to: isMissing ? iso(to) : iso(Date.parse(end)) };
}

// The first millisecond that is not before a time.
const ceilMs = (text) => Date.parse(text) + (/\.\d{3}0*[1-9]/.test(text) ? 1 : 0);
