// The section "Interfaces": a chart of rates for each.

import { go, OF_REPORTS, toSpan } from "../state/address.js";
import { connection, now, span } from "../state/known.js";
import { charted, seriesOf } from "../state/series.js";
import { moment, plain } from "../times.js";
import { caption } from "./caption.js";
import { RateChart } from "./chart/rate.js";
import { byId, h, nothing, put } from "./dom.js";

// By the name of the interface: {plot, head, card}.
const charts = new Map();

export function drawCharts(choice) {
  const place = byId("charts");
  const names = charted(choice);
  for (const [name, { card }] of charts) {
    if (names.includes(name)) continue;
    card.remove();
    charts.delete(name);
  }
  put(byId("rates-hint"), names.length === 0 ? "" : hint(choice));
  if (names.length === 0) {
    put(place, nothing(whyNone(choice)));
    return;
  }
  place.querySelector(".empty")?.remove();
  for (const name of names) {
    const { plot, head } = chartOf(name, place);
    const series = seriesOf(name, choice);
    put(head, ...caption(name, series, choice));
    plot.show(series);
  }
}

function hint(choice) {
  if (choice.isSpan) return span.pastWhy ?? `Drag over a chart to look closer, at whole windows.${begin(choice)}`;
  const drag = "Drag over a chart for the lists of that time.";
  if (now.pastWhy) return `${drag} Nothing from before this page was opened: ${now.pastWhy}`;
  return `The last five minutes, ${OF_REPORTS ? "from reports" : "second by second"}. ${drag}`;
}

// The chart may have no earlier reports, or have left them out because there are too many.
function begin({ from }) {
  const reach = Date.parse(span.past?.reaches_back_to?.seconds ?? "");
  return reach > from + 1000 ? ` It begins ${moment(reach)} UTC: nothing earlier can be drawn.` : "";
}

function whyNone({ isSpan }) {
  if (isSpan) {
    if (span.pastWhy) return plain(span.pastWhy);
    return span.past ? "Nothing is known of this time." : "Asking weir for this time.";
  }
  if (connection.broken) return connection.broken.why;
  if (!OF_REPORTS) return "The first second is being counted.";
  return now.last ? "No report has come in the last five minutes." : now.why;
}

function chartOf(name, place) {
  const known = charts.get(name);
  if (known) return known;
  const plot = new RateChart((from, to) => go(toSpan(from, to)), `Rate of ${name} over time`);
  const head = h("header", null);
  const card = h("article", { class: "card rate", "data-interface": name }, head, plot.element);
  charts.set(name, { plot, head, card });
  place.append(card);
  return charts.get(name);
}
