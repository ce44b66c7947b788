// The page: its state is in the address bar, its numbers come from weir, and this draws one of the other.

import { RateChart, bar, steps as stepsOf } from "./chart.js";
import { byId, estimate, h, number, put } from "./dom.js";
import { answered, isStandard, lists, nameServices, ordering, question, readQuestion, related, sameKey, show, view } from "./lists.js";
import { Measure, Table, alerts, cost, distinct, footer, ledger, ledgerName, mix, troubles, trust } from "./sections.js";
import { Delay, Rates, Seconds, ask } from "./source.js";
import { NOT_MEASURED, isMeasured, isNothing, isWhole } from "./trust.js";
import { clock, day, duration, grouped, plural, rated, scaled } from "./units.js";

// How many seconds the charts of now show.
const NOW = 300;
// How many reports are kept, to draw what came before.
const EARLIER = 60;
// Whether the numbers are of the reports that a collector has, and not of a running weir. How often it is asked, in
// milliseconds.
const OF_REPORTS = document.documentElement.dataset.from === "reports";
const EVERY = 5000;
// How many points a chart of a span has at most.
const POINTS = 600;
const PRESETS = [["5 min", 300], ["20 min", 1200], ["1 h", 3600], ["24 h", 86400]];

const data = {
  second: null, report: null, next: null, why: "waiting for the first answer", earlier: [], isLive: false, broken: null,
  router: null, unknown: null, live: null, liveWhy: null, span: null, spanWhy: null, spanOf: null, past: null, pastWhy: null, isOff: null, services: false,
};
const rates = new Rates();
let delay = new Delay();
const charts = new Map();

// The state.

function state() {
  const all = new URLSearchParams(location.hash.slice(1));
  const time = (name) => (Number.isNaN(Date.parse(all.get(name))) ? null : Date.parse(all.get(name)));
  const [from, to] = [time("from"), time("to")];
  const isSpan = from !== null && to !== null && to > from;
  return {
    list: all.get("list") ?? "sources", by: all.get("by") === "packets" ? "packets" : "bytes",
    filter: all.get("filter") ?? "", key: all.get("key"), of: all.get("of") ?? "",
    from: isSpan ? from : null, to: isSpan ? to : null, isSpan, isWrong: !isSpan && (all.has("from") || all.has("to")), isOpen: all.get("window") === "open" && !isSpan && !OF_REPORTS,
  };
}

// The address with these changes to the state; a change to null removes it.
function link(changes) {
  const all = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") all.delete(name);
    else all.set(name, value);
  }
  return `#${all}`;
}

const go = (changes) => { location.hash = link(changes); };
const iso = (time) => new Date(time).toISOString().replace(".000Z", "Z");
// When the last window ended: times that end now end with it.
const lastEnd = () => (data.next ? Date.parse(data.next.window.end) : Date.now());
const spanLink = (from, to) => ({ from: iso(Math.floor(from / 1000) * 1000), to: iso(Math.ceil(to / 1000) * 1000), key: null });

// What the lists are about now: {report, why}. `why` says why there is none.
function shown(of = state()) {
  if (of.isSpan) return { report: data.span, why: data.spanWhy ? plain(data.spanWhy) : "asking weir for these windows" };
  if (of.isOpen) return { report: data.live, why: data.liveWhy ?? "asking weir for the open window" };
  return { report: data.report, why: data.why };
}

// The numbers.

async function loadReport() {
  try {
    // The first time with those before it.
    const reports = data.next ? [await ask("api/report")] : await ask("api/report", { last: 5 });
    for (const report of reports.filter((one) => !data.earlier.some((known) => known.id === one.id))) data.earlier.push(report);
    data.earlier.splice(0, data.earlier.length - EARLIER);
    const before = data.next && Date.parse(data.next.window.end);
    data.next = data.earlier.at(-1);
    // A time that had no window may have one now.
    if (data.spanWhy && state().to > before) {
      data.spanOf = null;
      loadSpan();
    }
  } catch (error) {
    const why = error.status ? error.message : "weir does not answer";
    if (!data.next) data.why = why;
  }
  render();
}

let asking = false;
async function loadLive() {
  if (asking || !state().isOpen || document.hidden) return;
  asking = true;
  try {
    data.live = await ask("api/live");
    data.liveWhy = null;
  } catch (error) {
    data.liveWhy = error.message;
  }
  asking = false;
  renderLists();
  renderSide();
}

async function loadSpan() {
  const { from, to, isSpan } = state();
  const name = isSpan ? `${from} ${to}` : null;
  if (data.spanOf === name) return;
  Object.assign(data, { spanOf: name, span: null, spanWhy: null, past: null, pastWhy: null });
  if (!isSpan) return;
  let times = { from: iso(from), to: iso(to) };
  try {
    if (data.next && from >= lastEnd()) throw new Error("no window of this time has ended yet");
    const span = await ask("api/span", times);
    if (data.spanOf !== name) return;
    times = whole(from, to, span);
    // The address has the time of the whole windows, so that it shows the same again, and the chart is of that time.
    history.replaceState(null, "", link(times));
    const snapped = state();
    Object.assign(data, { spanOf: `${snapped.from} ${snapped.to}`, span });
  } catch (error) {
    if (data.spanOf !== name) return;
    data.spanWhy = error.message;
  }
  render();
  const asked = data.spanOf;
  const [past, pastWhy] = await ask("api/history", { ...times, points: POINTS }).then((past) => [past, null], (error) => [null, error.message]);
  if (data.spanOf !== asked) return;
  Object.assign(data, { past, pastWhy });
  render();
}

// The time of the windows that touch a time, in milliseconds that touch no others. A start of which nothing is known stays.
function whole(from, to, { window: { start, end }, missing }) {
  const isMissing = (missing ?? []).some((gap) => Date.parse(gap.start) >= Date.parse(end));
  return { from: iso(Math.min(from, ceilMs(start))), to: isMissing ? iso(to) : iso(Date.parse(end)) };
}

// The first millisecond that is not before a time.
const ceilMs = (text) => Date.parse(text) + (/\.\d{3}0*[1-9]/.test(text) ? 1 : 0);

// What came before the page was opened.
async function loadPast() {
  const to = Math.floor(Date.now() / 1000) * 1000;
  try {
    const past = await ask("api/history", { from: iso(to - NOW * 1000), to: iso(to), points: NOW });
    rates.fill(past);
    data.isOff = null;
  } catch (error) {
    data.isOff = error.message;
  }
  renderCharts();
}

// Drawing.

const nav = (text, href, isCurrent, attributes) => h("a", { href, "aria-current": isCurrent ? "true" : null, ...attributes }, text);

let waiting = false;
function render() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    // All parts begin with a report at once.
    data.report = data.next;
    renderHead();
    renderCharts();
    renderLists();
    renderSide();
    renderDetail();
  });
}

function renderHead() {
  const of = state();
  const { report } = shown(of);
  const about = report?.observer ? report : data.report;
  if (about) {
    put(byId("observer"), about.observer.name);
    put(byId("site"), about.observer.site ?? "");
    document.title = `${about.observer.name} – weir`;
    footer(about);
  }
  const now = lastEnd();
  // Older windows are known five minutes at a time.
  const near = (seconds) => of.isSpan && Math.abs((of.to - of.from) / 1000 - seconds) < (seconds < 3600 ? 2 : 300);
  const pick = (name, value) => h("label", null, `${name} `, h("input", { type: "datetime-local", step: 1, name, value: new Date(value).toISOString().slice(0, 19) }));
  const spans = byId("spans");
  const key = `${location.hash} ${now}`;
  if (spans.dataset.key !== key && !spans.contains(document.activeElement?.closest?.("form"))) {
    spans.dataset.key = key;
    const focused = document.activeElement?.dataset?.span;
    const form = h("form", { class: "pick", onsubmit: choose }, pick("From", of.from ?? now - 1_200_000), pick("To", of.to ?? now), h("button", null, "Show"), h("span", { class: "hint", role: "status" }, "UTC"));
    put(spans, nav("Now", link({ from: null, to: null }), !of.isSpan, { "data-span": "now", "aria-keyshortcuts": "l" }),
      PRESETS.map(([name, seconds]) => nav(name, link(spanLink(now - seconds * 1000, now)), near(seconds), { "data-span": name })),
      h("details", { class: "more", open: spans.querySelector("details")?.open, onkeydown: (event) => { if (event.key !== "Escape") return; event.stopPropagation(); closeChoice(true); } }, h("summary", { "data-span": "more" }, "Choose…"), form));
    if (focused) spans.querySelector(`[data-span="${focused}"]`)?.focus();
  }
  renderTrust(of);
  renderLink();
}

function choose(event) {
  event.preventDefault();
  const [from, to] = ["From", "To"].map((name) => Date.parse(`${event.target.elements[name].value}Z`));
  if (!(to > from)) return put(event.target.querySelector(".hint"), "UTC. From must be before To.");
  closeChoice(true);
  return go(spanLink(from, to));
}

// Closes the choice of a time. The focus of its fields goes to its button.
function closeChoice(isLeft) {
  const choice = byId("spans").querySelector("details");
  if (!choice?.open) return;
  choice.open = false;
  if (isLeft) choice.firstElementChild.focus();
}

function help() {
  closeChoice(false);
  byId("help").showModal();
}

function windowText(of, report) {
  const { start, end, seconds } = report.window;
  if (of.isOpen) return `Open window since ${clock(start)} UTC, ${duration(seconds)} so far`;
  const times = `${between(start, end)} UTC`;
  if (!of.isSpan) return `Window ${times}`;
  const windows = report.windows ?? report.reports?.length;
  return `${times}, ${duration((Date.parse(end) - Date.parse(start)) / 1000)}${windows ? `, ${plural(windows, "window")}${windows > 1 ? " together" : ""}` : ""}`;
}

function renderTrust(of) {
  const { report, why } = shown(of);
  document.body.classList.toggle("unknown", Boolean(data.unknown));
  const notices = troubles(of.isSpan ? null : data.report, of.isSpan ? null : data.second).map((text) => h("p", { class: "notice bad" }, h("b", null, "weir does not see all packets: "), text));
  if (data.unknown) notices.unshift(h("p", { class: "notice bad" }, h("b", null, "Unknown router: "), `${data.unknown}.`));
  else if (isLate()) notices.unshift(h("p", { class: "notice bad" }, h("b", null, "This router is late: "), `its last window ended ${moment(data.router.last.window_end)} UTC, and nothing came for three windows and 30 seconds. The numbers below are those of its last report.`));
  if (data.broken) notices.unshift(h("p", { class: "notice bad" }, h("b", null, `Connection lost at ${clock(data.broken.at)} UTC: `), `${data.broken.why}. Trying again; the numbers below are those of before.`));
  else if (delay.seconds(Date.now()) > 0) notices.unshift(h("p", { class: "notice bad" }, h("b", null, "Messages come late: "), `up to ${Math.round(delay.seconds(Date.now()))} seconds after weir sent them. Does a proxy in between hold them back? The rates below are of that time.`));
  if (of.isWrong) notices.push(h("p", { class: "notice" }, "The address has from= and to= that are no time in UTC, such as 2026-11-20T08:00:00Z, or end before they begin: this is now."));
  for (const text of missing(report)) notices.push(h("p", { class: "notice" }, text));
  const texts = notices.map((notice) => notice.textContent).join();
  const place = byId("notices");
  if (place.dataset.key !== texts) { place.dataset.key = texts; put(place, notices); }
  const full = report?.interfaces ? report : of.isSpan ? null : data.report;
  if (!full) return put(byId("trust"), h("span", { class: "word" }, why));
  const words = trust(full, of.isSpan ? null : data.second);
  const sum = (by) => number(full.totals[by], rated(full.totals[by], by, full.window.seconds), { "data-total": by });
  const all = [sum("bytes"), ", ", sum("packets")];
  const total = isNothing(full.interfaces) ? h("b", { class: "bad" }, NOT_MEASURED) : [isWhole(full.interfaces) ? "" : "at least ", all];
  return put(byId("trust"), h("span", { class: "word window" }, windowText({ ...of, isOpen: false }, full), ": ", total), words);
}

// Whether no report came for too long, as the collector says.
const isLate = () => Boolean(data.router?.is_late && data.router.last);

// A message with its times as they are written here.
const plain = (text) => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (time) => `${moment(Date.parse(time))} UTC`);

// A time with its day, unless that is today.
const moment = (time) => (day(time) === day(Date.now()) ? clock(time) : `${day(time)} ${clock(time)}`);

// A start and an end, both with their days unless they are of today.
const between = (from, to) => (day(from) === day(to) ? `${moment(from)} – ${clock(to)}` : `${day(from)} ${clock(from)} – ${day(to)} ${clock(to)}`);

// What of a span nobody knows.
function missing(report) {
  const of = report?.missing;
  if (!of) return [];
  return (Array.isArray(of) ? of : [of]).map((one) => (typeof one === "string" ? one : `not known: ${between(one.from ?? one.start, one.to ?? one.end)} UTC${one.why ? `: ${one.why}` : ""}`));
}

function renderLink() {
  const place = byId("link");
  const isBad = data.broken || data.unknown || isLate();
  const kind = isBad ? "bad" : data.isLive ? "good" : "";
  place.className = `link ${kind}`;
  // The time moves each second, which nobody wants to hear.
  const live = OF_REPORTS ? "from reports" : state().isSpan ? "connected" : "live";
  put(byId("link-text"), data.broken ? "not connected" : data.unknown ? "unknown router" : isLate() ? "late" : data.isLive ? live : "connecting");
  place.title = data.second ? `last second: ${clock(data.second.time)} UTC` : "";
}

function renderCharts() {
  const of = state();
  const past = of.isSpan ? data.past : null;
  const names = of.isSpan ? [...new Set((past?.interfaces ?? []).map((one) => one.name))] : [...rates.all.keys()];
  const unit = of.by === "packets" ? "pkt/s" : "bit/s";
  const place = byId("charts");
  for (const [name, chart] of charts) {
    if (!names.includes(name)) { chart.card.remove(); charts.delete(name); }
  }
  // The chart may have no earlier reports, or have left them out because there are too many.
  const reach = Date.parse(past?.reaches_back_to?.seconds ?? "");
  const begin = reach > of.from + 1000 ? ` It begins ${moment(reach)} UTC: nothing earlier can be drawn.` : "";
  const hint = of.isSpan ? (data.pastWhy ?? `Drag over a chart to look closer, at whole windows.${begin}`)
    : data.isOff ? `Drag over a chart for the lists of that time. Nothing from before this page was opened: ${data.isOff}` : `The last five minutes, ${OF_REPORTS ? "from reports" : "second by second"}. Drag over a chart for the lists of that time.`;
  put(byId("rates-hint"), names.length === 0 ? "" : hint);
  if (names.length === 0) {
    const why = of.isSpan ? (data.pastWhy ? plain(data.pastWhy) : (past ? "Nothing is known of this time." : "Asking weir for this time.")) : data.broken ? data.broken.why : !OF_REPORTS ? "The first second is being counted." : data.next ? "No report has come in the last five minutes." : data.why;
    if (charts.size === 0) put(place, h("p", { class: "empty" }, why));
    return;
  }
  place.querySelector(".empty")?.remove();
  for (const name of names) {
    const chart = chartOf(name, place);
    const drawn = of.isSpan ? pastOf(past, name, of.by, unit) : nowOf(name, of.by, unit);
    caption(chart, name, drawn, of, unit);
    chart.plot.show(drawn);
  }
}

function chartOf(name, place) {
  if (!charts.has(name)) {
    const plot = new RateChart((from, to) => go(spanLink(from, to)), `Rate of ${name} over time`);
    const head = h("header", null);
    const card = h("article", { class: "card rate", "data-interface": name }, head, plot.element);
    charts.set(name, { plot, head, card });
    place.append(card);
  }
  return charts.get(name);
}

function nowOf(name, by, unit) {
  const until = rates.latest;
  const way = (direction) => rates.series(name, direction, NOW, until, by);
  const up = way("ingress") ?? way("both");
  const down = way("egress");
  const known = rates.all.get(name);
  const isOut = !up && down;
  return {
    start: (until - NOW + 1) * 1000, step: 1000, unit, isOut, up: up ?? down ?? new Array(NOW).fill(null), down: up && down ? down : null,
    bad: rates.lost(name, NOW, until), note: noteOf(Object.values(known.last)),
  };
}

// Why there is no rate now.
function noteOf(last) {
  const missing = last.find((one) => !isMeasured(one.mode));
  if (missing) return `${NOT_MEASURED}: ${missing.mode}`;
  return last.some((one) => !one.counted) ? "counted in the report only" : "no second yet";
}
// How many seconds of a step its numbers are of: some may be unknown.
const knownSeconds = (past, one, nth) => one.seconds?.[nth] || past.step_seconds;

function pastOf(past, name, by, unit) {
  const ways = past.interfaces.filter((one) => one.name === name);
  const series = (one) => one && (by === "packets" ? one.packets : one.bytes).map((value, nth) => (value === null ? null : (value * (by === "packets" ? 1 : 8)) / knownSeconds(past, one, nth)));
  const down = series(ways.find((one) => one.direction === "egress"));
  const up = series(ways.find((one) => one.direction !== "egress"));
  const bad = (up ?? down).map((_, nth) => nth).filter((nth) => ways.some((one) => one.lost?.[nth] > 0));
  return { start: Date.parse(past.from), step: past.step_seconds * 1000, unit, isOut: !up, up: up ?? down, down: up && down ? down : null, bad, note: "nothing is known of this time" };
}

function caption({ head }, name, drawn, of, unit) {
  const report = of.isSpan ? data.span : data.report;
  const mine = (report?.interfaces ?? []).filter((one) => one.name === name);
  const last = rates.all.get(name)?.last ?? {};
  const mode = mine[0]?.mode ?? Object.values(last)[0]?.mode ?? "";
  const rate = (values, word, kind) => {
    if (!values) return null;
    // The last report has the last rate, as a second has none; and windows have the mean.
    const told = OF_REPORTS || of.isSpan ? mine.find((one) => (one.direction === "egress") === (kind === "down")) : null;
    const labelled = (...text) => h("span", { class: `way ${kind}` }, h("i", { class: `key ${kind}`, "aria-hidden": "true" }), word, text);
    if (told && !(isMeasured(told.mode) && told.unmeasured_seconds === undefined)) return labelled(told.ledger.seen.packets > 0 ? "measured in part" : NOT_MEASURED);
    if (told) {
      const raw = told.ledger.seen[of.by];
      const text = rated(raw, of.by, report.window.seconds);
      return h("span", { class: `way ${kind}` }, h("i", { class: `key ${kind}`, "aria-hidden": "true" }), word, h("b", null, number(raw, text, { "data-rate": kind })), of.isSpan ? h("small", null, " mean") : null);
    }
    if (of.isSpan) {
      const known = values.filter((value) => value !== null);
      const mean = known.length ? known.reduce((all, value) => all + value, 0) / known.length : null;
      return h("span", { class: `way ${kind}` }, h("i", { class: `key ${kind}`, "aria-hidden": "true" }), word, mean === null ? "unknown" : h("b", null, scaled(mean, unit)), h("small", null, " mean"));
    }
    const way = kind === "down" ? last.egress : last.ingress ?? last.both;
    if (way && !isMeasured(way.mode)) return labelled(NOT_MEASURED);
    const now = values.at(-1);
    const raw = way?.counted && (of.by === "packets" ? way.counted.packets : way.counted.bytes);
    return h("span", { class: `way ${kind}` }, h("i", { class: `key ${kind}`, "aria-hidden": "true" }), word,
      now === null ? "unknown" : h("b", null, number(raw, scaled(now, unit), { "data-rate": kind })));
  };
  const isBad = [...mine, ...Object.values(last)].some((one) => one.trouble || !isMeasured(one.mode));
  const words = [mode, ...new Set(mine.map((one) => one.sampling).filter((of) => of > 1).map((of) => `1 in ${of}`))].filter(Boolean).join(", ");
  const upWord = drawn.isOut ? "out " : drawn.down || last.ingress ? "in " : "";
  put(head, h("h3", { class: isBad ? "bad" : null }, isBad ? "! " : "", name, " ", h("small", null, mine.find((one) => one.alias)?.alias ?? words)),
    h("p", { class: "ways" }, rate(drawn.up, upWord, drawn.isOut ? "down" : "up"), rate(drawn.down, "out ", "down")));
}

const table = new Table(byId("list"), (key) => go({ key }));

function renderLists() {
  const of = state();
  const { report, why: nothing } = shown(of);
  const button = (text, changes, isOn, shortcut) => nav(text, link(changes), isOn, { "aria-keyshortcuts": shortcut });
  keep(byId("choose-order"), `${location.hash}`, () => [button("bytes", { by: null }, of.by === "bytes", "b"), button("packets", { by: "packets" }, of.by === "packets", "p")]);
  keep(byId("choose-window"), `${location.hash}`, () => (of.isSpan || OF_REPORTS ? [] : [button("last window", { window: null }, !of.isOpen, "o"), button("open window", { window: "open" }, of.isOpen, "o")]));
  const filter = byId("filter");
  if (document.activeElement !== filter && filter.value !== of.filter) filter.value = of.filter;
  const all = report ? lists(report, of.by) : [];
  const list = all.find((one) => one.name === of.list) ?? all[0];
  renderTabs(all, list, of.by);
  if (!list) {
    put(byId("list-about"), "");
    put(byId("list-what"), "");
    table.drawn = null;
    table.show({}, null, null, [], nothing);
    return;
  }
  // Rows that are shown already stay.
  const drawn = `${report.id ?? report.time ?? data.spanOf} ${location.hash} ${list.name} ${data.services}`;
  if (table.drawn === drawn) return;
  table.drawn = drawn;
  const measure = new Measure(list, of.by, report.window.seconds, of.isSpan);
  put(byId("list-what"), list.about ? `${list.about}.` : "");
  put(byId("list-about"), `${[windowText(of, report), measure.about()].filter(Boolean).join(": ")}${of.isOpen ? ". The line above, the ledger and the protocols are of the last window." : ""}`);
  const wanted = of.filter.toLowerCase();
  const rows = list.rows.filter((row) => ordering(row.amount, of.by)).map((row) => ({ ...row, question: question(row.key) }))
    .filter((row) => !wanted || `${show(row.key).join(" ")} ${row.question}`.toLowerCase().includes(wanted));
  const empty = list.isLeftOut && of.isOpen ? [`${list.name} is known only when the window has ended: see `, nav("the last window", link({ window: null })), "."]
    : list.isChanged ? `${list.name} asked another question in a part of this time, and what it answered is not added up.`
    : list.isLeftOut ? [`${list.name} cannot be added up over several windows: see `, nav("the last one", link({ from: null, to: null })), "."]
    : list.rows.length === 0 ? "Nothing in this list: no packet of this window belongs here." : "No row passes the filter (Esc clears it).";
  table.show(list, measure, (key) => link({ key }), rows, empty);
}

// A tab for each list; a view with a table for each interface has one, and a choice of the table.
function renderTabs(all, list, by) {
  // A view begins with the interface and direction that has the most traffic.
  const most = (tab) => all.filter((one) => one.view === tab.view).reduce((most, one) => (one.whole[by] > most.whole[by] ? one : most));
  const first = all.filter((one, nth) => !one.place || all.findIndex((other) => other.view === one.view) === nth).map((one) => (one.place ? most(one) : one));
  const key = `${all.map((one) => one.name)} ${first.map((one) => one.name)} ${location.hash}`;
  const isIn = (tab) => tab === list || (tab.place && tab.view === list.view);
  const to = (one) => link({ list: one === all[0] ? null : one.name });
  keep(byId("tabs"), key, () => first.map((tab, nth) => nav([nth < 10 ? h("kbd", { "aria-hidden": "true" }, String((nth + 1) % 10)) : null, tab.place ? tab.view : tab.name], to(tab), isIn(tab), { "data-list": tab.name })));
  const current = byId("tabs").querySelector("[aria-current]");
  if (current) byId("tabs").scrollLeft = current.offsetLeft - 60;
  const places = list?.place ? all.filter((one) => one.view === list.view) : [];
  keep(byId("places"), key, () => places.map((one) => nav(one.place, to(one), one === list, { "data-list": one.name })));
}

// Makes what a place has, if something else was said before.
function keep(place, key, make) {
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const focused = place.contains(document.activeElement) ? [...place.children].indexOf(document.activeElement) : -1;
  put(place, make());
  if (focused >= 0) place.children[focused]?.focus();
}

function renderSide() {
  const of = state();
  const { report, why } = shown(of);
  const full = report?.interfaces ? report : of.isSpan ? null : data.report;
  // The line above all says why.
  const nothing = () => h("p", { class: "hint" }, of.isSpan && data.spanWhy ? "Nothing of this time." : why);
  document.body.classList.toggle("alarm", (full?.alerts ?? []).some((alert) => alert.state === "firing"));
  put(byId("alerts-body"), full ? alerts(full, of.isSpan ? data.past?.windows ?? [] : null) : nothing());
  put(byId("distinct-body"), report?.unique ? distinct(report, of.isSpan ? windowsOfPast() : of.isOpen ? [] : data.earlier) : nothing());
  put(byId("mix-body"), full ? mix(full) : nothing());
  put(byId("cost-body"), full ? cost(full) : nothing());
  if (!full) return put(byId("ledger-body"), nothing());
  const names = full.interfaces.map(ledgerName);
  const select = byId("ledger-of");
  keep(select, names.join(), () => [h("option", { value: "" }, "all interfaces"), names.map((name) => h("option", { value: name }, name))]);
  select.value = names.includes(of.of) ? of.of : "";
  return put(byId("ledger-body"), ledger(full, select.value));
}

// What weir remembers of each window of a span, in the shape of reports.
const windowsOfPast = () => (data.past?.windows ?? []).map((one) => ({ unique: { src_ip: one.src_ip } }));

// A row in detail.

const detail = byId("detail");
let detailOf = null;

async function renderDetail() {
  const of = state();
  const name = of.key ? `${of.key} ${of.from} ${of.to} ${of.by}` : null;
  // The lists come first: it tells what of them belongs to the key.
  if (name === detailOf || (name && !shown(of).report)) return;
  detailOf = name;
  if (!name) {
    detail.close();
    return;
  }
  const key = readQuestion(of.key);
  put(byId("detail-title"), show(key).join(" "));
  const asOf = h("small", { class: "time" });
  const [known, over, yaml] = [h("div", null, h("p", { class: "hint" }, "Asking weir.")), h("div", null), view(key, of.list, of.by)];
  const isAsked = !OF_REPORTS && !of.isSpan;
  const command = of.isSpan ? `weir report --from ${iso(of.from)} --to ${iso(of.to)}` : `weir ask '${of.key}'`;
  const terminal = OF_REPORTS ? "More, in a terminal of the router" : of.isSpan ? "The lists of this time in a terminal" : "The same in a terminal";
  const copy = (text) => h("button", { type: "button", class: "copy", onclick: async (event) => {
    try {
      await navigator.clipboard.writeText(text);
      put(event.target, "Copied");
    } catch {
      getSelection().selectAllChildren(event.target.parentElement.querySelector("pre"));
      put(event.target, "Selected: press Ctrl-C");
    }
  } }, "Copy");
  const hadFocus = detail.contains(document.activeElement);
  put(byId("detail-body"),
    h("section", { class: "over-time" }, h("h3", null, "Over time"), over),
    // Only the router itself knows more than its reports, and only of the last window.
    isAsked ? h("section", null, h("h3", null, "In all views, listed or not ", asOf), known) : null,
    h("section", null, h("h3", null, "In the lists ", h("small", { class: "time" }, windowText(of, shown(of).report))), inLists(key, of)),
    h("section", { class: "yaml" }, h("h3", null, "Make this a view"), h("p", { class: "hint" }, "Add it to ", h("code", null, "views:"), " in weir.yaml", OF_REPORTS ? " of the router" : "", ", then ", h("code", null, "systemctl reload weir"), "."), h("pre", { tabindex: "0" }, yaml), copy(yaml)),
    h("section", { class: "yaml" }, h("h3", null, terminal), h("pre", { tabindex: "0" }, command), copy(command)));
  if (!detail.open) detail.showModal();
  // A link to another row within the details goes away with them.
  else if (hadFocus && !detail.contains(document.activeElement)) detail.querySelector("[data-close]").focus();
  overTime(key, of, over);
  if (!isAsked) return;
  try {
    const asked = await ask("api/ask", { key: of.key });
    if (detailOf !== name) return;
    put(asOf, windowText({}, asked));
    put(known, answers(asked, of.by));
  } catch (error) {
    if (detailOf === name) put(known, h("p", { class: "empty" }, error.message));
  }
}

function answers(asked, by) {
  const rows = asked.answers.map((row) => ({ view: row.view, ...answered(row) }));
  if (rows.length === 0) return h("p", { class: "empty" }, "No view knows such a key.");
  const seconds = asked.window.seconds;
  return h("table", { class: "plain answers" }, h("tbody", null, rows.map(({ view: name, key, amount }) => {
    const counted = amount.count ? name.replaceAll("_", " ") : null;
    const measure = new Measure({ counted, whole: {} }, by, seconds);
    const of = ordering(amount, by);
    return h("tr", { "data-view": name }, h("th", { scope: "row" }, name, h("small", null, ` ${show(key).join(" ")}`)),
      h("td", { class: "scale" }, bar(of, of.upper, measure.range(of))),
      h("td", null, estimate(of, measure.text(of.value)), h("small", null, ` ${measure.note(of)}`)));
  })));
}

// All rows of all lists that have to do with the key.
function inLists(key, of) {
  const { report } = shown(of);
  if (!report) return h("p", { class: "empty" }, "There are no lists yet.");
  const rows = lists(report, of.by).flatMap((list) => {
    const measure = new Measure(list, of.by, report.window.seconds, of.isSpan);
    return list.rows.filter((row) => related(key, row.key)).slice(0, 8).map((row) => {
      const amount = ordering(row.amount, of.by);
      return h("tr", null, h("th", { scope: "row" }, list.name), h("td", { class: "who" }, h("a", { href: link({ key: question(row.key), list: list.name }) }, show(row.key).join(" "))),
        h("td", { class: "n" }, estimate(amount, measure.text(amount.value))), h("td", { class: "n", title: measure.range(amount) }, measure.error(amount)), h("td", { class: "n", title: measure.sharesOf }, measure.share(row.amount), list.isOfView ? h("small", null, " of view") : null),
        of.isSpan ? h("td", { class: "n" }, measure.other(row.amount)) : null);
    });
  });
  if (rows.length === 0) return h("p", { class: "empty" }, "No list of this window has it.");
  return h("table", { class: "plain related" }, h("tbody", null, rows));
}

// The rate of a key in each window of the time, with its bounds.
async function overTime(key, of, place) {
  const is = detailOf;
  const nothing = (why) => put(place, h("p", { class: "empty" }, why));
  let windows;
  try {
    windows = of.isSpan ? await windowsOfKey(key, of) : windowsOfReports(key, of);
  } catch (error) {
    if (detailOf === is) nothing(error.message);
    return;
  }
  if (detailOf !== is) return;
  // A window without a length has no rate.
  const known = windows.filter((window) => window.amount && window.seconds);
  if (known.length === 0) return nothing("No window of this time has it in a list of packets and bytes.");
  const unit = of.by === "packets" ? "pkt/s" : "bit/s";
  const steps = windows.map(({ start, end, seconds, amount }) => {
    const factor = (of.by === "packets" ? 1 : 8) / seconds;
    return { start: Date.parse(start), end: Date.parse(end), of: seconds && amount && { value: amount.value * factor, lower: amount.lower * factor, upper: amount.upper * factor } };
  });
  const sum = (name) => windows.reduce((all, window) => all + window[name], 0);
  const [all, listed] = [sum("windows"), sum("listed")];
  const [most] = steps.map((step) => step.of).filter(Boolean).sort((one, other) => other.value - one.value);
  const text = `${grouped(listed)} of ${plural(all, "window")} ${listed === 1 ? "lists" : "list"} it, the largest with ${most.upper > most.value ? "at least " : ""}${scaled(most.value, unit)}.`;
  const together = all > windows.length ? " Neighbouring windows are drawn together." : "";
  const leftOut = of.leftOut > 0 ? ` ${plural(of.leftOut, "window")} left out: the view asked another question then.` : "";
  const [from, to] = of.isSpan ? [of.from, of.to] : [steps[0].start, steps.at(-1).end];
  put(place.previousElementSibling, "Over time ", h("small", { class: "time" }, `${between(from, to)} UTC`));
  put(place, stepsOf(steps, { from, to, label: `Rate over time: ${text}`, text: (value) => scaled(value, unit) }),
    h("p", { class: "hint", "data-windows": all, "data-listed": listed }, `${text}${listed < all ? " A gap is a window that does not list it." : ""}${together}${leftOut}`));
}

// Its windows as weir remembers them, in at most so many steps of whole windows.
const KEY_POINTS = 360;
async function windowsOfKey(key, of) {
  const view = isStandard(key) ? undefined : lists(data.span, of.by).find((list) => list.name === of.list)?.view;
  if (!isStandard(key) && !view) return [];
  const told = await ask("api/history", { key: of.key, view, from: iso(of.from), to: iso(of.to), points: KEY_POINTS });
  of.leftOut = told.left_out ?? 0;
  return told.windows.map((window) => ({ ...window, amount: window[of.by] }));
}

// The last reports that this page knows, in the same shape.
function windowsOfReports(key, of) {
  const own = (list) => !list.counted && list.rows.some((row) => sameKey(row.key, key));
  const asked = data.earlier.map((report) => lists(report, of.by).find(own)).findLast(Boolean);
  const same = (report) => lists(report, of.by).find((list) => list.name === asked?.name);
  // A view that keeps its name may have asked something else.
  const known = data.earlier.filter((report) => same(report) && same(report).question === asked.question);
  of.leftOut = data.earlier.filter((report) => same(report)).length - known.length;
  return known.map((report) => {
    const row = same(report).rows.find((one) => sameKey(one.key, key));
    return { ...report.window, windows: 1, listed: row ? 1 : 0, amount: row && ordering(row.amount, of.by) };
  });
}

// Keys.

function press(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (event.target.id === "filter") {
      event.target.blur();
      if (state().filter) go({ filter: null });
    } else if (!document.querySelector("dialog[open]") && state().filter) go({ filter: null });
    return;
  }
  if (event.target.id === "filter" && (event.key === "Enter" || event.key === "ArrowDown")) {
    byId("list").querySelector("tbody a")?.focus();
    event.preventDefault();
    return;
  }
  if (isTyping || document.querySelector("dialog[open]")) return;
  const of = state();
  if (/^[0-9]$/.test(event.key)) {
    const nth = (Number(event.key) + 9) % 10;
    const list = byId("tabs").children[nth]?.dataset.list;
    if (list) go({ list: nth === 0 ? null : list });
  } else if (event.key === "b") go({ by: null });
  else if (event.key === "p") go({ by: "packets" });
  else if (event.key === "l") go({ from: null, to: null });
  else if (event.key === "o" && !OF_REPORTS) go({ window: of.isOpen ? null : "open" });
  else if (event.key === "/") byId("filter").focus();
  else if (event.key === "?") help();
  else if (event.key === "ArrowDown" && !event.target.closest("tr[data-key], .chart")) byId("list").querySelector("tbody a")?.focus();
  else return;
  event.preventDefault();
}

function listen() {
  document.addEventListener("keydown", press);
  addEventListener("hashchange", () => {
    closeChoice(false);
    loadSpan();
    loadLive();
    renderDetail();
    // At once, so that no link has an earlier state.
    renderHead();
    renderLists();
    render();
  });
  byId("filter").addEventListener("input", (event) => {
    history.replaceState(null, "", link({ filter: event.target.value }));
    renderLists();
  });
  byId("ledger-of").addEventListener("change", (event) => go({ of: event.target.value }));
  byId("help-button").addEventListener("click", help);
  // A click elsewhere closes the choice of a time.
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest("#spans details")) closeChoice(false); });
  document.querySelector("[data-skip]").addEventListener("click", (event) => {
    event.preventDefault();
    byId("lists").focus();
  });
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
    // A click beside it closes it, too.
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
  detail.addEventListener("close", () => {
    const { key } = state();
    if (!key) return;
    // The way back does not open them again.
    history.replaceState(null, "", link({ key: null }));
    renderDetail();
    renderLists();
    render();
    byId("list").querySelector(`tr[data-key="${CSS.escape(key)}"] a`)?.focus();
  });
}

// Asks for the last report again and again, as a collector has no seconds.
// Only a new report is read.
async function poll() {
  if (document.hidden) return;
  try {
    data.router = await ask("api/observer");
    Object.assign(data, { isLive: true, broken: null, unknown: null });
    // The chart goes on, with a gap if nothing comes.
    rates.latest = Math.max(rates.latest, Math.floor(Date.parse(data.router.time) / 1000));
    if (!data.next || data.router.last?.id !== data.next.id) {
      await loadReport();
      if (!state().isSpan) await loadPast();
    }
  } catch (error) {
    if (error.status === 404) Object.assign(data, { unknown: error.message, why: error.message, broken: null });
    else data.broken = { at: data.broken?.at ?? Date.now(), why: error.status ? error.message : "the collector does not answer" };
  }
  render();
}

function follow() {
  byId("fleet").hidden = false;
  // Reports have no open window, and no seconds.
  byId("help").querySelector("[data-live]").remove();
  document.addEventListener("visibilitychange", poll);
  setInterval(poll, EVERY);
  poll();
}

function watch() {
  let isFirst = true;
  const seconds = new Seconds({
    opened: () => {
      isFirst = true;
      delay = new Delay();
      Object.assign(data, { isLive: true, broken: null });
      loadReport();
    },
    broken: (why) => {
      data.broken = { at: data.broken?.at ?? Date.now(), why };
      // Perhaps only the stream is missing: as many browsers as weir serves have one.
      loadReport();
      render();
    },
    take: (second) => {
      data.second = second;
      delay.take(Date.parse(second.time), Date.now());
      rates.take(second);
      // Now, so that no second is missing between what is remembered and what comes.
      if (isFirst) loadPast();
      isFirst = false;
      if (second.last_report && second.last_report.id !== data.next?.id) loadReport();
      loadLive();
      const of = state();
      if (!of.isSpan) renderCharts();
      renderTrust(of);
      renderLink();
    },
  });
  seconds.start();
  // While none comes, nothing else draws.
  setInterval(() => renderTrust(state()), EVERY);
  loadReport();
}

function start() {
  listen();
  if (OF_REPORTS) follow();
  else watch();
  ask("api/services").then((names) => { nameServices(names); data.services = true; render(); }, () => {});
  loadSpan();
  renderDetail();
  render();
}

start();
