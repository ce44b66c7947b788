// The section "Usage": what each interface has carried in this month and in the one before, and the same of own
// networks and hosts.

import { nameOf } from "../report/key.js";
import { usage } from "../state/known.js";
import { bytes, percent, plural, scaled } from "../units.js";
import { byId, h, number, put } from "./dom.js";

const MINUTE = 60;

export function drawUsage() {
  const { months, hosts, networks } = usage;
  byId("usage").hidden = !months?.rows.length;
  if (!months?.rows.length) return;
  const heads = ["Interface", "Bytes", "95th percentile", "Not seen"];
  const starts = [...new Set(months.rows.map((row) => row.start))];
  // The newest month first.
  const rows = starts
    .toSorted()
    .toReversed()
    .flatMap((start) => [
      monthRow(start, months.day, heads.length),
      ...months.rows.filter((row) => row.start === start).map(line),
    ]);
  const all = [table(heads, rows)];
  if (has(networks)) all.push(ofHosts("Network", networks));
  if (has(hosts)) all.push(ofHosts("Host", hosts));
  put(byId("usage-body"), all);
}

function table(heads, rows) {
  const head = h(
    "tr",
    null,
    heads.map((name) => h("th", { scope: "col" }, name)),
  );
  return h("table", { class: "plain" }, h("thead", null, head), h("tbody", null, rows));
}

const has = (answer) => answer?.periods.some((period) => period.rows.length > 0) ?? false;

// The table of hosts or networks. What no row has is bounded in the last line of a month.
function ofHosts(whose, { periods, day }) {
  const heads = [whose, "Down", "Up", "Total"];
  const rows = periods.toReversed().flatMap((period) => {
    // Packets were sampled.
    const held = period.confidence < 1 ? `: sampled, all bounds hold at ${percent(period.confidence)}` : "";
    const lines = period.rows.map(({ host, network, down, up, bytes: both }) =>
      h(
        "tr",
        { "data-usage-of": `${host ?? network} ${period.start}` },
        h("th", { scope: "row" }, network ?? hostName(host)),
        h("td", null, amount(down, bytes)),
        h("td", null, amount(up, bytes)),
        h("td", null, amount(both, bytes)),
      ),
    );
    if (period.unlisted > 0) {
      const others = h("td", { colspan: 3 }, `at most ${bytes(period.unlisted)} each`);
      lines.push(h("tr", null, h("th", { scope: "row" }, "others"), others));
    }
    return [monthRow(period.start, day, heads.length, held), ...lines];
  });
  return table(heads, rows);
}

// A line above the rows of a month. One that begins on the first is shown without a day.
function monthRow(start, day, columns, more = "") {
  const name = start.slice(0, day === 1 ? 7 : 10);
  return h("tr", { class: "month" }, h("th", { scope: "colgroup", colspan: columns }, `${name}${more}`));
}

// The name of a host, or its address.
function hostName(host) {
  const named = nameOf({ host });
  return named ? h("span", { title: `${host}, name: ${named.source}` }, named.name) : host;
}

// A row. Less than a minute that weir did not see is left out.
function line({ interface: name, direction, start, bytes: carried, p95, unseen_seconds: unseen }) {
  const rate = (bits) => scaled(bits, "bit/s");
  return h(
    "tr",
    { "data-usage": `${name} ${direction ?? ""} ${start}` },
    h("th", { scope: "row" }, direction ? `${name} ${direction}` : name),
    h("td", null, amount(carried, bytes)),
    h("td", null, p95 ? amount(p95, rate) : ""),
    h("td", null, unseen < MINUTE ? "" : h("span", { class: "bad" }, length(unseen))),
  );
}

// A number, and its bounds if they differ from it. There is no upper bound if weir did not see all of the month.
function amount({ value, lower, upper }, text) {
  const shown = number(value, text(value), { "data-lower": lower, "data-upper": upper });
  if (upper === undefined) return [shown, h("small", null, ` at least ${text(lower)}`)];
  return text(lower) === text(upper) ? shown : [shown, h("small", null, ` ${text(lower)} – ${text(upper)}`)];
}

// A length of time in its largest unit.
function length(seconds) {
  const hours = Math.floor(seconds / 3600);
  if (hours >= 48) return plural(Math.floor(hours / 24), "day");
  return hours > 0 ? plural(hours, "hour") : plural(Math.floor(seconds / MINUTE), "minute");
}
