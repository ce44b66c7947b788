// The page of all routers: what the collector has of each, and what is missing. The files that it imports are those of
// the page of one router.

import { byId, find, h, hint, holder, nothing, number, put, targetOf, word } from "./draw/dom.js";
import { ask, EVERY } from "./fetch/source.js";
import { clock, day, duration, moment } from "./times.js";
import { count, grouped, percent, rated, scaled, sum } from "./units.js";

const pageOf = (one) => `observers/${encodeURIComponent(one.observer)}/`;
const nameOf = (one) => one.name ?? one.observer;
const bad = (...text) => h("b", { class: "bad" }, text);

const several = (value, one, more) => (value === 1 ? one : more);
const counted = (what, value) => number(value, grouped(value), { "data-total": what });
const judged = (isGood, ...text) => word(isGood ? "good" : "bad", text);

function trust({ totals, late, duplicates }) {
  const { observers, unexplained, dropped, reports, tombstones, contested, cloned } = totals;
  const { again, refused } = duplicates;
  const missing = several(unexplained, " report is missing", " reports are missing");
  const beside = " beside others of the same identity: two senders have one, or one went on from an older state";
  const twice = " came with two contents: two senders have one identity, or one is forged";
  return [
    judged(late.length === 0, counted("late", late.length), ` of ${grouped(observers)} late`),
    judged(unexplained === 0, counted("unexplained", unexplained), missing, " without an explanation"),
    judged(dropped === 0, counted("dropped", dropped), " dropped by senders"),
    word(null, [
      counted("reports", reports),
      several(reports, " report, ", " reports, "),
      counted("tombstones", tombstones),
      several(tombstones, " tombstone", " tombstones"),
    ]),
    word(null, [counted("again", again), " came twice, and stored once"]),
    contested > 0
      ? judged(false, counted("contested", contested), several(contested, " report", " reports"), twice)
      : null,
    cloned > 0 ? judged(false, counted("cloned", cloned), several(cloned, " run", " runs"), beside) : null,
    refused > 0
      ? judged(false, counted("refused", refused), several(refused, " line", " lines"), " refused: see the log")
      : null,
  ];
}

const when = (time) => h("time", { datetime: time, title: `${day(time)} ${clock(time)} UTC` }, moment(time));

// How long ago something was, in words.
function ago(time, now) {
  const seconds = (now - Date.parse(time)) / 1000;
  return seconds < 1 ? "now" : `${duration(seconds)} ago`;
}

// The columns of a table: their names, and `n` for numbers.
const ROUTERS = [
  ["router", ""],
  ["site", ""],
  ["last report", ""],
  ["bit rate", "n"],
  ["packet rate", "n"],
  ["lost", "n"],
  ["coverage", "n"],
  ["alerts", ""],
  ["reports", "n"],
  ["missing", "n"],
];
const MISSING = [
  ["router", ""],
  ["numbers", ""],
  ["reports", "n"],
  ["explained by", ""],
];
const DROPPED = [
  ["router", ""],
  ["told at", ""],
  ["reports", "n"],
  ["reason", ""],
];

const cell = (kind, label, ...children) => h("td", { class: kind, "data-label": label, role: "cell" }, children);
// A number that should be 0.
const zero = (value, text, of) => number(value, value > 0 ? bad(text) : "0", { "data-of": of });

function row(one, isLate, now) {
  const { last } = one;
  const isKnown = last && last.is_measured !== false;
  return h(
    "tr",
    { "data-observer": one.observer, "data-late": isLate ? "true" : null, role: "row" },
    h("th", { scope: "row", class: "who", role: "rowheader" }, who(one)),
    cell("", "site", one.site ?? ""),
    cell("", "last report", isLate ? bad("! late: ") : null, last ? lastReport(last, now) : "none"),
    cell("n strong", "bit rate", last && !isKnown ? bad("not measured") : rate(last, "bytes")),
    cell("n", "packet rate", isKnown ? rate(last, "packets") : ""),
    cell("n", "lost", last ? zero(last.lost, count(last.lost), "lost") : ""),
    cell("n", "coverage", coverage(last)),
    cell("", "alerts", last?.alerts?.length > 0 ? bad(`! ${last.alerts.join(", ")}`) : ""),
    cell("n", "reports", number(one.reports, grouped(one.reports), { "data-of": "reports" })),
    cell("n", "missing", missing(one)),
  );
}

function who(one) {
  const wrong = [...(one.last?.troubles ?? []), ...(one.last?.left_out ?? [])];
  const trouble = wrong.length > 0 ? h("span", { class: "bad" }, ` ! ${wrong.join("; ")}`) : null;
  return [h("a", { href: pageOf(one) }, nameOf(one)), " ", h("small", null, one.observer), trouble];
}

const lastReport = ({ window_end: end }, now) => [when(end), " ", h("small", { "data-ago": end }, ago(end, now))];

const rate = (last, by) => (last ? number(last[by], rated(last[by], by, last.seconds), { "data-of": by }) : "");

const coverage = (last) =>
  last?.coverage === null || last?.coverage === undefined
    ? ""
    : number(last.coverage, percent(last.coverage), { "data-of": "coverage" });

function missing({ unexplained, dropped, contested, cloned }) {
  const twice = number(contested, grouped(contested), { "data-of": "contested" });
  const runs = number(cloned, grouped(cloned), { "data-of": "cloned" });
  return [
    zero(unexplained, grouped(unexplained), "unexplained"),
    ...(dropped > 0 ? [" + ", number(dropped, grouped(dropped), { "data-of": "dropped" }), " dropped"] : []),
    contested > 0 ? bad(" ! ", twice, " with two contents") : null,
    cloned > 0 ? bad(" ! ", runs, several(cloned, " run", " runs"), " of another sender") : null,
  ];
}

function table(label, columns, rows, kind) {
  const heads = columns.map(([text, side]) => h("th", { scope: "col", class: side, role: "columnheader" }, text));
  return h(
    "table",
    { class: `fleet ${kind}`, role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)),
    h("tbody", { role: "rowgroup" }, rows),
  );
}

const rowheader = (text) => h("th", { scope: "row", role: "rowheader" }, text);
const td = (kind, ...children) => h("td", { class: kind, role: "cell" }, children);

const WHY = {
  unexplained: "nothing: on its way, or lost",
  dropped: "the sender",
  before_first: "before the first stored report",
};

const namesOf = (observers) => new Map(observers.map((one) => [one.observer, nameOf(one)]));

function gaps({ gaps: all, totals, observers }) {
  if (all.length === 0) return nothing("No report is missing between those that are stored.");
  const names = namesOf(observers);
  const rows = all.map((gap) => gapRow(gap, names.get(gap.observer) ?? gap.observer));
  return [
    table("Missing reports", MISSING, rows, "short"),
    totals.gaps > all.length ? hint(`The largest ${all.length} of ${grouped(totals.gaps)}.`) : null,
  ];
}

function gapRow({ observer, boot_id: boot, first_seq: first, last_seq: last, status, reason, reports }, name) {
  const isBad = status === "unexplained";
  const why = `${isBad ? "! " : ""}${WHY[status] ?? status}${reason ? `: ${reason}` : ""}`;
  return h(
    "tr",
    { "data-gap": `${observer}/${boot}/${first}-${last}`, "data-status": status, role: "row" },
    rowheader(name),
    td(null, first === last ? grouped(first) : `${grouped(first)} – ${grouped(last)}`),
    td("n", number(reports, grouped(reports))),
    td(isBad ? "bad" : "", why),
  );
}

function tombstones({ tombstones: all, totals, observers }) {
  if (all.length === 0) return nothing("No sender had to drop a report.");
  const names = namesOf(observers);
  const rows = [...all].reverse().map((one) => tombstoneRow(one, names.get(one.observer) ?? one.observer));
  return [
    table("Dropped by senders", DROPPED, rows, "short"),
    totals.tombstones > all.length ? hint(`The latest ${all.length} of ${grouped(totals.tombstones)}.`) : null,
  ];
}

const tombstoneRow = ({ id, received_at: at, reports, reason }, name) =>
  h(
    "tr",
    { "data-tombstone": id, role: "row" },
    rowheader(name),
    td(null, when(at)),
    td("n", number(reports, grouped(reports))),
    td(null, reason),
  );

let shown = "";
function draw(fleet) {
  const { time, ...rest } = fleet;
  const now = Date.parse(time);
  put(byId("trust"), trust(fleet));
  for (const one of document.querySelectorAll("[data-ago]")) put(one, ago(one.getAttribute("data-ago"), now));
  const text = JSON.stringify(rest);
  if (text === shown) return;
  shown = text;
  const late = new Set(fleet.late);
  put(byId("count"), total(fleet, late));
  put(byId("started"), `The collector was started ${day(fleet.started)} ${clock(fleet.started)}.`);
  drawObservers(fleet, late, now);
  put(byId("gaps-body"), gaps(fleet));
  put(byId("tombstones-body"), tombstones(fleet));
}

function total({ observers, totals }, late) {
  // What a late router carries now is unknown.
  const known = observers.filter(
    ({ observer, last }) => last?.seconds && last.is_measured !== false && !late.has(observer),
  );
  const bits = sum(known, ({ last }) => (last.bytes * 8) / last.seconds);
  const without = ` without the ${late.size === 1 ? "late one" : `${grouped(late.size)} late ones`}`;
  const all = number(Math.round(bits), scaled(bits, "bit/s"), { "data-sum": "rate" });
  return [grouped(totals.observers), ", ", all, late.size > 0 ? without : ""];
}

function drawObservers({ observers }, late, now) {
  const focused = holder().closest("tr[data-observer]")?.getAttribute("data-observer");
  const rows = inOrder(observers, late).map((one) => row(one, late.has(one.observer), now));
  put(
    byId("observers-body"),
    rows.length > 0 ? table("Routers", ROUTERS, rows, "wide") : nothing("No report has arrived yet."),
  );
  if (focused) find(document, `tr[data-observer="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
}

// Those that need a look come first.
function inOrder(observers, late) {
  const rank = ({ observer, last }) => {
    if (late.has(observer)) return 0;
    return last?.alerts?.length || last?.lost || last?.troubles?.length || last?.left_out?.length ? 1 : 2;
  };
  return [...observers].sort((a, b) => rank(a) - rank(b) || nameOf(a).localeCompare(nameOf(b)));
}

function drawLink(isGood, text, ...notices) {
  byId("link").className = `link ${isGood ? "good" : "bad"}`;
  put(byId("link-text"), text);
  put(byId("notices"), ...notices);
}

async function poll() {
  if (document.hidden) return;
  try {
    draw(await ask("api/fleet"));
    drawLink(true, "up to date");
  } catch (error) {
    const why = error instanceof TypeError ? "the collector does not answer" : error.message;
    const text = `${why}. Trying again; the numbers below are those of before.`;
    drawLink(false, "not connected", h("p", { class: "notice bad" }, text));
  }
}

document.addEventListener("keydown", (event) => {
  const line = targetOf(event).closest("tr[data-observer]");
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  const next = line ? line[step] : find(document, "tr[data-observer]");
  if (!next || (!line && event.target !== document.body)) return;
  find(next, "a")?.focus();
  event.preventDefault();
});
document.addEventListener("visibilitychange", poll);
setInterval(poll, EVERY);
poll();
