// The section "Usage": what each interface has carried in this month and in the one before.

import { usage } from "../state/known.js";
import { bytes, plural, scaled } from "../units.js";
import { byId, h, number, put } from "./dom.js";

const MINUTE = 60;

export function drawUsage() {
  const { months } = usage;
  byId("usage").hidden = !months?.rows.length;
  if (months) put(byId("usage-body"), table(months));
}

function table({ rows, day }) {
  const heads = ["Interface", "Month", "Bytes", "95th percentile", "Not seen"];
  const head = h(
    "tr",
    null,
    heads.map((name) => h("th", { scope: "col" }, name)),
  );
  // The newest month first.
  const all = rows.toSorted((one, other) => other.start.localeCompare(one.start)).map((row) => line(row, day));
  return h("table", { class: "plain" }, h("thead", null, head), h("tbody", null, all));
}

// A row. A period that begins on the first of a month is shown as that month, without a day. Less than a minute that
// weir did not see is left out.
function line({ interface: name, direction, start, bytes: carried, p95, unseen_seconds: unseen }, day) {
  const rate = (bits) => scaled(bits, "bit/s");
  return h(
    "tr",
    { "data-usage": `${name} ${direction ?? ""} ${start}` },
    h("th", { scope: "row" }, direction ? `${name} ${direction}` : name),
    h("td", null, start.slice(0, day === 1 ? 7 : 10)),
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
