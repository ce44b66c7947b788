// The section "What weir costs", and what its sinks took.

import { grouped, mebibytes, percent, sum } from "../units.js";
import { h, hint, number } from "./dom.js";

export function cost({ self: own, interfaces, window }) {
  if (!own) return hint("What weir cost is in each report: it is not added up for a span.");
  const seen = sum(interfaces, (of) => of.ledger.seen.packets);
  const sinks = (own.sinks ?? []).map(sinkRow);
  return [
    table(rows(own, seen, window.seconds)),
    sinks.length > 0 ? [h("h3", null, "Reports to sinks"), table(sinks)] : hint("No sink: reports stay here."),
  ];
}

const table = (all) => h("table", { class: "plain" }, h("tbody", null, all));

function row(name, value, text, note) {
  const shown = value === null ? text : number(value, text);
  const cell = h("td", null, shown, note ? h("small", null, ` ${note}`) : null);
  return h("tr", { "data-cost": name }, h("th", { scope: "row" }, name), cell);
}

// weir leaves out what it does not know.
function rows(own, seen, seconds) {
  const perPacket = (nanoseconds) => `${Math.round(nanoseconds)} ns a packet`;
  const ofCore = (nanoseconds) => seconds && `${percent((nanoseconds * seen) / (seconds * 1e9))} of a core`;
  const known = (name, value, text, note) => (value === undefined ? null : row(name, value, text(value), note));
  return [
    known("CPU", own.cpu_ns_per_packet, perPacket, ofCore(own.cpu_ns_per_packet)),
    known("in the kernel", own.kernel_ns_per_packet, perPacket),
    known("memory", own.rss_bytes, mebibytes, `of ${mebibytes(own.memory_bytes)} planned`),
    known("flow cache", own.cache_hit_rate, (rate) => `${percent(rate)} hits`),
    known("fullest ring", own.rings?.peak_fill, percent),
    row("records", own.records, grouped(own.records)),
    own.late_cpus?.length ? row("late CPUs", null, own.late_cpus.join(", ")) : null,
  ];
}

function sinkRow({ name, delivered, queued, dropped, last_error: error }) {
  const cell = h(
    "td",
    null,
    number(delivered, `${grouped(delivered)} delivered`),
    queued ? `, ${grouped(queued)} waiting` : "",
    dropped ? h("b", { class: "bad" }, `, ${grouped(dropped)} lost`) : "",
    error ? h("p", { class: "bad" }, error) : null,
  );
  return h("tr", { "data-sink": name }, h("th", { scope: "row" }, name), cell);
}
