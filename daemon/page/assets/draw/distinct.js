// The section "Distinct": how many sources, destinations and flows there were, and which hosts are new.

import { count, grouped, percent } from "../units.js";
import { bands } from "./chart/bands.js";
import { estimate, h, hint } from "./dom.js";

// The counts, each with its place in a report.
/** @type {[string, (report: any) => any][]} */
const COUNTS = [
  ["sources", (report) => report.unique?.src_ip],
  ["destinations", (report) => report.unique?.dst_ip],
  ["flows", (report) => report.unique?.flows],
  ["new flows", (report) => report.new_flows],
  ["new hosts", (report) => newHosts(report)],
];

// The hosts that were not seen for a long time. While weir still learns which hosts there are, nobody can tell.
const newHosts = (report) => (report.new_hosts?.learning ? null : report.new_hosts);

// `earlier` are the windows before, or those of a span.
export function distinct(report, earlier) {
  const counts = COUNTS.filter(([, get]) => get(report));
  const hosts = newHosts(report)?.hosts ?? [];
  return [
    h(
      "div",
      { class: "counts" },
      counts.map(([name, get]) => item(name, get(report), earlier.map(get))),
    ),
    hosts.length > 0
      ? h("p", { "data-new-hosts": hosts.length }, `New: ${hosts.map((host) => host.src_ip).join(", ")}`)
      : null,
  ];
}

function item(name, of, windows) {
  const values = windows.map((one) => one ?? null);
  const known = values.filter((one) => one !== null);
  return h(
    "div",
    { class: "count", "data-count": name },
    h("h3", null, name),
    h("p", { class: "big" }, short(of)),
    known.length > 0 ? bands(values, `${name} in the last ${known.length} windows`) : null,
    hint(range(of)),
  );
}

function range({ lower, upper, confidence }) {
  if (lower === upper) return "counted exactly";
  return `${grouped(lower)} – ${grouped(upper)} at ${percent(confidence)}`;
}

// The number in short. If the truth may be far from it, as that of several windows, it is only a range.
function short(of) {
  const less = of.value - of.lower;
  const most = Math.max(less, of.upper - of.value);
  if (most > of.value) return [estimate(of, `${count(of.lower)} to ${count(of.upper)}`)];
  const error = most === 0 ? "exact" : `${less === 0 ? "+" : "±"}${percent(most / of.value)}`;
  return [estimate(of, count(of.value)), " ", h("small", null, error)];
}
