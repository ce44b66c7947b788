// Draws the parts of a report.

import { bands, bar, stack } from "./chart.js";
import { byId, estimate, h, number, put } from "./dom.js";
import { ordering, show } from "./lists.js";
import { facts, isMeasured } from "./trust.js";
import { bytes, clock, count, duration, grouped, mebibytes, percent, rated, scaled } from "./units.js";

const sum = (all, of) => all.reduce((total, one) => total + of(one), 0);

// The words of the line of trust. What is good or bad has a mark, which is not a colour alone.
export function trust(report, second) {
  const mark = { good: h("i", { "aria-hidden": "true" }, "✓"), bad: h("i", { "aria-hidden": "true" }, "!") };
  const words = facts(report.interfaces, second).map(({ text, verdict }) => h("span", { class: `word ${verdict}`, "data-fact": verdict }, mark[verdict]?.cloneNode(true), text));
  if (report.addresses) words.push(h("span", { class: "word" }, report.addresses === "none" ? "addresses are hidden" : "addresses are masked to networks"));
  return words;
}

export function troubles(report, second) {
  const of = (all) => all.filter((one) => one.trouble).map((one) => `${one.name}${one.direction ? ` ${one.direction}` : ""}: ${one.trouble}`);
  const now = [...(second?.troubles ?? []), ...of(second?.interfaces ?? [])];
  return [...new Set(now.length > 0 ? now : of(report?.interfaces ?? []))];
}

// The alerts of a report; or, of a span, which rules fired in which of its windows.
export function alerts(report, windows) {
  const all = report.alerts ?? [];
  if (windows) {
    const rules = [...new Set(windows.flatMap((one) => one.alerts ?? []))].sort();
    if (rules.length === 0) return h("p", { class: "hint" }, "No rule fired in this time.");
    return rules.map((rule) => {
      const fired = windows.filter((one) => one.alerts?.includes(rule));
      return h("article", { class: "alert bad", "data-rule": rule }, h("h3", null, rule, " ", h("span", { class: "state" }, "fired"), h("small", null, ` ${clock(fired[0].start)} – ${clock(fired.at(-1).end)} UTC`)),
        h("p", null, `in ${grouped(sum(fired, (one) => one.windows ?? 1))} of ${grouped(sum(windows, (one) => one.windows ?? 1))} windows`));
    });
  }
  if (all.length === 0) return h("p", { class: "hint" }, "No rule has anything to say about this window. Rules are set under ", h("code", null, "alerts:"), " in weir.yaml.");
  return all.map((alert) => {
    const isOn = alert.state === "firing" || alert.state === "clearing";
    const evidence = alert.evidence.map((one) => {
      const { value, lower, upper, ...key } = one;
      const unit = alert.unit ? ` ${alert.unit}` : "";
      const range = upper === undefined ? ` (at least ${amount(lower)})` : lower === upper ? "" : ` (${amount(lower)} to ${amount(upper)})`;
      const holder = Object.entries(key).map(([name, of]) => (name.endsWith("ip") ? of : `${name} ${of}`)).join(", ");
      return h("li", null, holder ? `${holder}: ` : "", number(value, `${amount(value)}${range}${unit}`));
    });
    if (alert.more) evidence.push(h("li", null, `and ${grouped(alert.more)} more`));
    return h("article", { class: isOn ? "alert bad" : "alert", "data-rule": alert.rule, "data-state": alert.state },
      h("h3", null, alert.rule, " ", h("span", { class: "state" }, alert.state), h("small", null, ` since ${clock(alert.since)}`)),
      h("p", { class: "mono" }, alert.when), h("ul", null, evidence));
  });
}

const amount = (value) => (Number.isInteger(value) ? grouped(value) : String(Math.round(value * 1000) / 1000));

// A distinct count in short. If the truth may be far from the number, as that of several windows, it is only a range.
function counted(of) {
  const less = of.value - of.lower;
  const most = Math.max(less, of.upper - of.value);
  if (most > of.value) return [estimate(of, `${count(of.lower)} to ${count(of.upper)}`)];
  return [estimate(of, count(of.value)), " ", h("small", null, most === 0 ? "exact" : `${less === 0 ? "+" : "±"}${percent(most / of.value)}`)];
}

export function distinct(report, earlier) {
  const items = [
    ["sources", report.unique?.src_ip, (of) => of.unique?.src_ip],
    ["destinations", report.unique?.dst_ip, (of) => of.unique?.dst_ip],
    ["flows", report.unique?.flows, (of) => of.unique?.flows],
    ["new flows", report.new_flows, (of) => of.new_flows],
  ];
  return h("div", { class: "counts" }, items.filter(([, of]) => of).map(([name, of, get]) => {
    const range = of.lower === of.upper ? "" : `${grouped(of.lower)} – ${grouped(of.upper)} at ${percent(of.confidence)}`;
    const known = earlier.map((one) => (one ? get(one) : null));
    return h("div", { class: "count", "data-count": name },
      h("h3", null, name), h("p", { class: "big" }, counted(of)),
      known.filter(Boolean).length > 0 ? bands(known, { label: `${name} in the last ${known.length} windows` }) : null,
      h("p", { class: "hint" }, range || "counted exactly"));
  }));
}

// The ledger of one interface, or of all together.
export function ledger(report, of) {
  const chosen = report.interfaces.filter((one) => !of || ledgerName(one) === of);
  const add = (get) => ({ packets: sum(chosen, (one) => get(one)?.packets ?? 0), bytes: sum(chosen, (one) => get(one)?.bytes ?? 0) });
  const reasons = (kind) => [...new Set(chosen.flatMap((one) => Object.keys(one.ledger[kind])))].sort();
  const seen = add((one) => one.ledger.seen);
  const parts = [
    { name: "attributed", text: "attributed", class: "attributed", tally: add((one) => one.ledger.attributed) },
    { name: "sampled_out", text: "left out by sampling", class: "sampled", tally: add((one) => one.ledger.sampled_out) },
    ...reasons("skipped").map((reason) => ({ name: `skipped.${reason}`, text: `skipped: ${reason}`, class: "skipped", tally: add((one) => one.ledger.skipped[reason]) })),
    ...reasons("lost").map((reason) => ({ name: `lost.${reason}`, text: `lost: ${reason}`, class: "lost", tally: add((one) => one.ledger.lost[reason]) })),
  ];
  const lost = parts.filter((part) => part.class === "lost");
  const isNothingLost = lost.every((part) => part.tally.packets === 0);
  const shown = parts.filter((part) => part.tally.packets > 0 || part.name === "attributed");
  const share = (tally) => (seen.packets === 0 ? 0 : tally.packets / seen.packets);
  const label = shown.map((part) => `${part.text} ${percent(share(part.tally))}`).join(", ");
  const repeated = add((one) => one.repeated);
  const row = (name, text, tally, kind) => h("tr", { "data-part": name },
    h("th", { scope: "row" }, kind ? h("i", { class: `key ${kind}`, "aria-hidden": "true" }) : null, text),
    h("td", null, number(tally.packets, grouped(tally.packets))), h("td", null, number(tally.bytes, bytes(tally.bytes))),
    h("td", null, seen.packets === 0 ? "" : percent(share(tally))));
  return [
    stack(shown.map((part) => ({ ...part, value: part.tally.packets, title: `${part.text}: ${grouped(part.tally.packets)} packets` })), seen.packets, `Of ${grouped(seen.packets)} packets: ${label}`),
    h("table", { class: "ledger" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, h("span", { class: "quiet" }, "part")), ["packets", "bytes", "of packets"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, row("seen", "seen", seen), repeated.packets > 0 ? row("repeated", "of these, in totals by another interface", repeated) : null, shown.map((part) => row(part.name, part.text, part.tally, part.class)),
        isNothingLost ? row("lost", `lost (${lost.length} reasons)`, { packets: 0, bytes: 0 }, "lost") : null)),
    added(chosen, repeated),
  ];
}

// What a ledger of several interfaces adds up.
function added(chosen, repeated) {
  const missing = chosen.filter((one) => !isMeasured(one.mode)).map((one) => `${ledgerName(one)} (${one.mode})`);
  const unknown = missing.length > 0 ? ` What ${missing.join(", ")} carried is unknown.` : "";
  if (chosen.length < 2) return unknown ? h("p", { class: "hint" }, unknown.trim()) : null;
  const twice = repeated.packets > 0 ? ` ${grouped(repeated.packets)} packets passed two of them: here they count on both, and once in the line above and in the lists.` : "";
  return h("p", { class: "hint", "data-added": chosen.length }, `The sum of ${chosen.length} ledgers.${twice}${unknown}`);
}

export const ledgerName = (of) => `${of.name}${of.direction ? ` ${of.direction}` : ""}`;

export function mix(report) {
  const of = report.totals;
  const rows = [
    ["IP version", [["IPv4", "ipv4_packets"], ["IPv6", "ipv6_packets"]]],
    ["Protocol", [["TCP", "tcp_packets"], ["UDP", "udp_packets"], ["ICMP", "icmp_packets"], ["other IP", "other_packets"]]],
  ];
  const share = (value) => (of.packets ? value / of.packets : 0);
  return [h("p", { class: "hint" }, "Shares of all packets."), ...rows.map(([title, parts]) => [
    stack(parts.map(([name, field], nth) => ({ name, class: `mix${nth}`, value: of[field], title: `${name}: ${percent(share(of[field]))} of packets` })), of.packets,
      `${title}, of packets: ${parts.map(([name, field]) => `${name} ${percent(share(of[field]))}`).join(", ")}`),
    h("p", { class: "legend" }, parts.map(([name, field], nth) => h("span", { "data-field": field }, h("i", { class: `key mix${nth}`, "aria-hidden": "true" }), `${name} `, number(of[field], percent(share(of[field]))), of.bounds?.[field] && of.bounds[field].lower !== of.bounds[field].upper ? ` (${percent(share(of.bounds[field].lower))} – ${percent(share(of.bounds[field].upper))})` : ""))),
  ])];
}

export function cost(report) {
  const own = report.self;
  if (!own) return h("p", { class: "hint" }, "What weir cost is in each report: it is not added up for a span.");
  const seen = sum(report.interfaces, (of) => of.ledger.seen.packets);
  const rows = [];
  const row = (name, value, text, note) => rows.push(h("tr", { "data-cost": name }, h("th", { scope: "row" }, name), h("td", null, value === null ? text : number(value, text), note ? h("small", null, ` ${note}`) : null)));
  if (own.cpu_ns_per_packet !== undefined) {
    const { seconds } = report.window;
    const share = seconds ? `${percent((own.cpu_ns_per_packet * seen) / (seconds * 1e9))} of a core` : null;
    row("CPU", own.cpu_ns_per_packet, `${Math.round(own.cpu_ns_per_packet)} ns a packet`, share);
  }
  if (own.kernel_ns_per_packet !== undefined) row("in the kernel", own.kernel_ns_per_packet, `${Math.round(own.kernel_ns_per_packet)} ns a packet`);
  if (own.rss_bytes !== undefined) row("memory", own.rss_bytes, mebibytes(own.rss_bytes), `of ${mebibytes(own.memory_bytes)} planned`);
  if (own.cache_hit_rate !== undefined) row("flow cache", own.cache_hit_rate, `${percent(own.cache_hit_rate)} hits`);
  if (own.rings?.peak_fill !== undefined) row("fullest ring", own.rings.peak_fill, percent(own.rings.peak_fill));
  row("records", own.records, grouped(own.records));
  if (own.late_cpus?.length) row("late CPUs", null, own.late_cpus.join(", "));
  const sinks = (own.sinks ?? []).map((sink) => h("tr", { "data-sink": sink.name }, h("th", { scope: "row" }, sink.name),
    h("td", null, number(sink.delivered, `${grouped(sink.delivered)} delivered`), sink.queued ? `, ${grouped(sink.queued)} waiting` : "", sink.dropped ? h("b", { class: "bad" }, `, ${grouped(sink.dropped)} lost`) : "",
      sink.last_error ? h("p", { class: "bad" }, sink.last_error) : null)));
  return [h("table", { class: "plain" }, h("tbody", null, rows)), sinks.length > 0
    ? [h("h3", null, "Reports to sinks"), h("table", { class: "plain" }, h("tbody", null, sinks))]
    : h("p", { class: "hint" }, "No sink: reports stay here.")];
}

// How the numbers of a list are written.
export class Measure {
  constructor(list, by, seconds, isSpan = false) {
    this.list = list;
    this.by = by;
    this.isSpan = isSpan;
    this.seconds = seconds;
  }

  text(value) {
    if (this.list.counted) return count(value);
    return rated(value, this.by, this.seconds);
  }

  // How far the truth may be from the number, in short. Most numbers are lower bounds: the truth is not below them.
  error(of) {
    const [less, more] = [of.value - of.lower, of.upper - of.value];
    if (less === 0 && more === 0) return "exact";
    if (less === 0) return `+${this.text(more)}`;
    if (more === 0) return `−${this.text(less)}`;
    // Bounds that are far away on one side are no ±.
    return more > of.value ? `≤ ${this.text(of.upper)}` : `±${this.text(Math.max(less, more))}`;
  }

  // The same in words, without the number and with it.
  note(of) {
    if (of.lower === of.upper) return "exact";
    return of.value === of.lower ? `at least, up to ${this.text(of.upper - of.value)} more` : `between ${this.text(of.lower)} and ${this.text(of.upper)}`;
  }

  range(of) {
    if (of.lower === of.upper) return `exactly ${this.text(of.value)}`;
    return of.value === of.lower ? `at least ${this.text(of.value)}, up to ${this.text(of.upper - of.value)} more` : this.note(of);
  }

  share(amount) {
    if (this.list.counted) return "";
    const whole = this.list.whole[this.by];
    return whole ? percent(ordering(amount, this.by).value / whole) : "";
  }

  // Of what the shares are.
  get sharesOf() { return this.list.isOfView ? "of view" : "of all"; }

  // Beside the rate: how much it was in a span, and else its rate in the other unit.
  get besides() { return this.isSpan ? "total" : this.by === "packets" ? "bytes" : "packets"; }

  other(amount) {
    if (this.list.counted) return null;
    if (this.isSpan) {
      const of = ordering(amount, this.by);
      const text = (value) => scaled(value, this.by === "packets" ? "pkt" : "B");
      return number(of.value, text(of.value), { title: of.lower === of.upper ? "exact" : `at least ${text(of.lower)}, at most ${text(of.upper)}`, "data-amount": true });
    }
    const packets = this.by !== "packets";
    const of = packets ? amount.packets : amount.bytes;
    return number(of.value, rated(of.value, packets ? "packets" : "bytes", this.seconds));
  }

  about() {
    const what = this.list.counted ?? this.by;
    if (this.list.rows.length === 0) return "";
    const confidence = Math.round((this.list.confidence ?? 0) * 10_000) / 100;
    return confidence === 100 ? `by ${what}; bounds always hold` : `by ${what}; all bounds of this list hold at ${confidence} %`;
  }
}

// How many rows are made between two frames at most, and for how many milliseconds; and how many there are before the
// reader comes near their end.
const CHUNK = 40;
const BUDGET = 8;
const SCREENFUL = 40;
// The classes of columns of another width.
const COLUMNS = { total: "other total", rate: "strong", error: "error", "of all": "share", "of view": "share", packets: "other", bytes: "other" };

// A list as a table. Its rows are made by parts, and only as far as the reader has come, so that a long list does not hold
// up the page.
export class Table {
  constructor(place, open) {
    this.place = place;
    this.open = open;
    this.turn = 0;
    this.wanted = SCREENFUL;
    this.more = h("button", { type: "button", class: "more", onclick: () => this.extend(Infinity) });
    // Near the end of the rows that are there, the next ones are made.
    this.near = new IntersectionObserver((all) => { if (all.at(-1).isIntersecting) this.extend(SCREENFUL); }, { rootMargin: "400px" });
    place.addEventListener("keydown", (event) => this.press(event));
    place.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-key]");
      if (row && !event.target.closest("a") && String(getSelection()) === "") open(row.dataset.key);
    });
  }

  // `link(question)` is the address of a row's details.
  show(list, measure, link, rows, empty) {
    this.turn += 1;
    const holder = document.activeElement?.closest?.("tr[data-key]");
    // A drawing that is interrupted may have replaced the row with the focus already.
    const before = this.isFilling && document.activeElement === document.body ? this.drawing.focused : null;
    const focused = holder && this.place.contains(holder) ? { key: holder.dataset.key, at: holder.sectionRowIndex } : before;
    if (rows.length === 0) {
      this.body = null;
      this.isFilling = false;
      put(this.place, h("p", { class: "empty" }, empty));
      return;
    }
    const columns = list.counted ? [list.view ? "count" : list.counted, "error"] : ["rate", "error", measure.sharesOf, measure.besides];
    const shape = `${list.name} ${columns} ${show(rows[0].key).length}`;
    if (!this.body || this.shape !== shape) {
      this.shape = shape;
      this.wanted = SCREENFUL;
      this.full = h("span", null);
      this.body = h("tbody", { role: "rowgroup" });
      const head = (name, kind) => h("th", { scope: "col", class: kind, role: "columnheader" }, name);
      put(this.place, h("table", { class: `rows${list.counted ? " counted" : ""}${show(rows[0].key).length > 1 ? " long" : ""}`, role: "table", "aria-label": list.name },
        h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head("#", "rank"), head("who", "who"), head([h("span", { class: "zero" }, "0"), this.full], "scale"), columns.map((name) => head(name, `n ${COLUMNS[name] ?? ""}`)))), this.body), this.more);
    }
    const full = Math.max(...rows.map((row) => ordering(row.amount, measure.by).upper));
    put(this.full, measure.text(full));
    this.drawing = { rows, how: { measure, full, link, columns }, turn: this.turn, focused };
    this.fill(0);
  }

  // Makes so many more rows.
  extend(count) {
    if (!this.body || this.body.rows.length >= this.drawing.rows.length) return;
    this.wanted = this.body.rows.length + count;
    if (!this.isFilling) this.fill(this.body.rows.length);
  }

  fill(from, of = this.drawing) {
    const { rows, how, turn, focused } = of;
    if (turn !== this.turn || !this.body) return;
    const end = Math.min(rows.length, this.wanted);
    const began = performance.now();
    let nth = from;
    for (; nth < Math.min(end, from + CHUNK) && performance.now() - began < BUDGET; nth++) {
      const made = this.row(rows[nth], how);
      const old = this.body.rows[nth];
      if (old) old.replaceWith(made);
      else this.body.append(made);
      if (focused?.key === made.dataset.key) this.refocus(made);
    }
    this.isFilling = nth < end;
    this.place.ariaBusy = String(this.isFilling);
    if (this.isFilling) {
      requestAnimationFrame(() => this.fill(nth, of));
      return;
    }
    while (this.body.rows.length > end) this.body.lastElementChild.remove();
    this.more.hidden = end === rows.length;
    put(this.more, `Show all ${rows.length} rows`);
    // Observed anew, it says whether it is still near.
    this.near.unobserve(this.more);
    if (!this.more.hidden) this.near.observe(this.more);
    // The row with the focus may have moved up; if it is gone, the one in its place gets the focus.
    if (focused) this.refocus(this.body.querySelector(`tr[data-key="${CSS.escape(focused.key)}"]`) ?? this.body.rows[Math.min(focused.at, this.body.rows.length - 1)]);
  }

  // A row that was replaced has lost the focus. It does not take it from where the reader has gone meanwhile.
  refocus(row) {
    if (document.activeElement === document.body) row?.querySelector("a").focus({ preventScroll: true });
  }

  row({ rank, key, amount, question: asked }, { measure, full, link, columns }) {
    const of = ordering(amount, measure.by);
    const cell = (name, ...children) => h("td", { class: name, role: "cell" }, children);
    const [first, ...more] = show(key);
    return h("tr", { "data-key": asked, role: "row" },
      cell("rank", String(rank ?? "")),
      h("th", { scope: "row", class: "who", role: "rowheader" }, h("a", { href: link(asked) }, first, more.map((text) => [" ", h("span", { class: "to" }, text)]))),
      cell("scale", bar(of, full, measure.range(of))),
      cell("n strong", estimate(of, measure.text(of.value))),
      h("td", { class: "n error", role: "cell", title: measure.range(of) }, measure.error(of)),
      columns.includes(measure.sharesOf) ? cell("n share", measure.share(amount)) : null,
      columns.length > 3 ? cell(`n ${COLUMNS[measure.besides]}`, measure.other(amount)) : null);
  }

  press(event) {
    const row = event.target.closest("tr[data-key]");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!row || !step) return;
    if (step > 0 && !row.nextElementSibling) this.extend(SCREENFUL);
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    next?.querySelector("a")?.focus();
    event.preventDefault();
  }
}

export function footer(report) {
  const of = report.observer;
  put(byId("version"), `weir ${of.version}, report ${report.id ?? report.reports?.at(-1) ?? ""}`);
}

export { duration };
