// The page of all routers: what the collector has of each, and what is missing.

import { byId, h, number, put } from "./dom.js";
import { ask } from "./source.js";
import { clock, count, day, duration, grouped, percent, rated, scaled } from "./units.js";

// How often the collector is asked, in milliseconds. Reports come every few seconds at most.
const EVERY = 5000;

const nothing = (text) => h("p", { class: "empty" }, text);
const of = (row) => `observers/${encodeURIComponent(row.observer)}/`;
const name = (row) => row.name ?? row.observer;

// A word of the line of trust: a mark, which is not a colour alone, and a text.
const judged = (isGood, ...text) => h("span", { class: isGood ? "word good" : "word bad" }, h("i", { "aria-hidden": "true" }, isGood ? "✓" : "!"), text);
const several = (value, one, more) => (value === 1 ? one : more);
const counted = (what, value) => number(value, grouped(value), { "data-total": what });

function trust({ totals, late, duplicates }) {
  return [
    judged(late.length === 0, counted("late", late.length), ` of ${grouped(totals.observers)} late`),
    judged(totals.unexplained === 0, counted("unexplained", totals.unexplained), several(totals.unexplained, " report is missing", " reports are missing"), " without an explanation"),
    judged(totals.dropped === 0, counted("dropped", totals.dropped), " dropped by senders"),
    h("span", { class: "word" }, counted("reports", totals.reports), several(totals.reports, " report, ", " reports, "), counted("tombstones", totals.tombstones), several(totals.tombstones, " tombstone", " tombstones")),
    h("span", { class: "word" }, counted("again", duplicates.again), " came twice, and stored once"),
    totals.contested > 0 ? judged(false, counted("contested", totals.contested), several(totals.contested, " report", " reports"), " came with two contents: two senders have one identity, or one is forged") : null,
    duplicates.refused > 0 ? judged(false, counted("refused", duplicates.refused), several(duplicates.refused, " line", " lines"), " refused: see the log") : null,
  ];
}

// A time of today without its day.
const when = (time) => h("time", { datetime: time, title: `${day(time)} ${clock(time)} UTC` }, day(time) === day(Date.now()) ? clock(time) : `${day(time)} ${clock(time)}`);

// How long ago something was, in words.
const ago = (time, now) => { const seconds = (now - Date.parse(time)) / 1000; return seconds < 1 ? "now" : `${duration(seconds)} ago`; };

const COLUMNS = [["router", ""], ["site", ""], ["last report", ""], ["bit rate", "n"], ["packet rate", "n"], ["lost", "n"], ["coverage", "n"], ["alerts", ""], ["reports", "n"], ["missing", "n"]];

function row(one, isLate, now) {
  const { last } = one;
  const cell = (kind, label, ...children) => h("td", { class: kind, "data-label": label, role: "cell" }, children);
  const state = isLate ? h("b", { class: "bad" }, "! late: ") : null;
  const wrong = [...(last?.troubles ?? []), ...(last?.left_out ?? [])];
  const trouble = wrong.length > 0 ? h("span", { class: "bad" }, ` ! ${wrong.join("; ")}`) : null;
  const isKnown = last && last.is_measured !== false;
  const alerts = last?.alerts ?? [];
  return h("tr", { "data-observer": one.observer, "data-late": isLate ? "true" : null, role: "row" },
    h("th", { scope: "row", class: "who", role: "rowheader" }, h("a", { href: of(one) }, name(one)), " ", h("small", null, one.observer), trouble),
    cell("", "site", one.site ?? ""),
    cell("", "last report", state, last ? [when(last.window_end), " ", h("small", { "data-ago": last.window_end }, ago(last.window_end, now))] : "none"),
    cell("n strong", "bit rate", last && !isKnown ? h("b", { class: "bad" }, "not measured") : last ? number(last.bytes, rated(last.bytes, "bytes", last.seconds), { "data-of": "bytes" }) : ""),
    cell("n", "packet rate", isKnown ? number(last.packets, rated(last.packets, "packets", last.seconds), { "data-of": "packets" }) : ""),
    cell("n", "lost", last ? number(last.lost, last.lost > 0 ? h("b", { class: "bad" }, count(last.lost)) : "0", { "data-of": "lost" }) : ""),
    cell("n", "coverage", last?.coverage == null ? "" : number(last.coverage, percent(last.coverage), { "data-of": "coverage" })),
    cell("", "alerts", alerts.length > 0 ? h("b", { class: "bad" }, `! ${alerts.join(", ")}`) : ""),
    cell("n", "reports", number(one.reports, grouped(one.reports), { "data-of": "reports" })),
    cell("n", "missing", number(one.unexplained, one.unexplained > 0 ? h("b", { class: "bad" }, grouped(one.unexplained)) : "0", { "data-of": "unexplained" }),
      one.dropped > 0 ? [" + ", number(one.dropped, grouped(one.dropped), { "data-of": "dropped" }), " dropped"] : null,
      one.contested > 0 ? h("b", { class: "bad" }, " ! ", number(one.contested, grouped(one.contested), { "data-of": "contested" }), " with two contents") : null));
}

function table(label, columns, rows, kind) {
  return h("table", { class: `fleet ${kind}`, role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([text, side]) => h("th", { scope: "col", class: side, role: "columnheader" }, text)))),
    h("tbody", { role: "rowgroup" }, rows));
}

const WHY = { unexplained: "nothing: on its way, or lost", dropped: "the sender", before_first: "before the first stored report" };

function gaps({ gaps: all, totals, observers }) {
  if (all.length === 0) return nothing("No report is missing between those that are stored.");
  const names = new Map(observers.map((one) => [one.observer, name(one)]));
  const rows = all.map((gap) => h("tr", { "data-gap": `${gap.observer}/${gap.boot_id}/${gap.first_seq}-${gap.last_seq}`, "data-status": gap.status, role: "row" },
    h("th", { scope: "row", role: "rowheader" }, names.get(gap.observer) ?? gap.observer),
    h("td", { role: "cell" }, gap.first_seq === gap.last_seq ? grouped(gap.first_seq) : `${grouped(gap.first_seq)} – ${grouped(gap.last_seq)}`),
    h("td", { class: "n", role: "cell" }, number(gap.reports, grouped(gap.reports))),
    h("td", { class: gap.status === "unexplained" ? "bad" : "", role: "cell" }, `${gap.status === "unexplained" ? "! " : ""}${WHY[gap.status] ?? gap.status}${gap.reason ? `: ${gap.reason}` : ""}`)));
  return [table("Missing reports", [["router", ""], ["numbers", ""], ["reports", "n"], ["explained by", ""]], rows, "short"),
    totals.gaps > all.length ? h("p", { class: "hint" }, `The largest ${all.length} of ${grouped(totals.gaps)}.`) : null];
}

function tombstones({ tombstones: all, totals, observers }) {
  if (all.length === 0) return nothing("No sender had to drop a report.");
  const names = new Map(observers.map((one) => [one.observer, name(one)]));
  const rows = [...all].reverse().map((one) => h("tr", { "data-tombstone": one.id, role: "row" },
    h("th", { scope: "row", role: "rowheader" }, names.get(one.observer) ?? one.observer), h("td", { role: "cell" }, when(one.received_at)),
    h("td", { class: "n", role: "cell" }, number(one.reports, grouped(one.reports))), h("td", { role: "cell" }, one.reason)));
  return [table("Dropped by senders", [["router", ""], ["told at", ""], ["reports", "n"], ["reason", ""]], rows, "short"),
    totals.tombstones > all.length ? h("p", { class: "hint" }, `The latest ${all.length} of ${grouped(totals.tombstones)}.`) : null];
}

let shown = null;
function draw(fleet) {
  const now = Date.parse(fleet.time);
  put(byId("trust"), trust(fleet));
  for (const one of document.querySelectorAll("[data-ago]")) put(one, ago(one.dataset.ago, now));
  const { time, ...rest } = fleet;
  const text = JSON.stringify(rest);
  if (text === shown) return;
  shown = text;
  const late = new Set(fleet.late);
  // What a late router carries now is unknown.
  const known = fleet.observers.filter((one) => one.last?.seconds && one.last.is_measured !== false && !late.has(one.observer));
  const rate = known.reduce((all, one) => all + (one.last.bytes * 8) / one.last.seconds, 0);
  put(byId("count"), grouped(fleet.totals.observers), ", ", number(Math.round(rate), scaled(rate, "bit/s"), { "data-sum": "rate" }),
    late.size > 0 ? ` without the ${late.size === 1 ? "late one" : `${grouped(late.size)} late ones`}` : "");
  put(byId("started"), `The collector was started ${day(fleet.started)} ${clock(fleet.started)}.`);
  // Those that need a look come first.
  const rank = (one) => (late.has(one.observer) ? 0 : one.last?.alerts?.length || one.last?.lost || one.last?.troubles?.length || one.last?.left_out?.length ? 1 : 2);
  const order = [...fleet.observers].sort((a, b) => rank(a) - rank(b) || name(a).localeCompare(name(b)));
  const focused = document.activeElement?.closest?.("tr[data-observer]")?.dataset.observer;
  put(byId("observers-body"), order.length > 0 ? table("Routers", COLUMNS, order.map((one) => row(one, late.has(one.observer), now)), "wide") : nothing("No report has arrived yet."));
  if (focused) document.querySelector(`tr[data-observer="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
  put(byId("gaps-body"), gaps(fleet));
  put(byId("tombstones-body"), tombstones(fleet));
}

async function poll() {
  if (document.hidden) return;
  try {
    draw(await ask("api/fleet"));
    byId("link").className = "link good";
    put(byId("link-text"), "up to date");
    put(byId("notices"));
  } catch (error) {
    byId("link").className = "link bad";
    put(byId("link-text"), "not connected");
    const why = error instanceof TypeError ? "the collector does not answer" : error.message;
    put(byId("notices"), h("p", { class: "notice bad" }, `${why}. Trying again; the numbers below are those of before.`));
  }
}

document.addEventListener("keydown", (event) => {
  const line = event.target.closest?.("tr[data-observer]");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  const next = line ? (step > 0 ? line.nextElementSibling : line.previousElementSibling) : document.querySelector("tr[data-observer]");
  if (!next || (!line && event.target !== document.body)) return;
  next.querySelector("a")?.focus();
  event.preventDefault();
});
document.addEventListener("visibilitychange", poll);
setInterval(poll, EVERY);
poll();
