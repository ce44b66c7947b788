// Charts: rates over time, of which a span can be chosen, and counts of windows with their bounds as a band.

import { h, s, put } from "./dom.js";
import { ceiling, clock, count, minute, scaled } from "./units.js";

const LEFT = 0;
const BOTTOM = 16;
// Room above the largest rate.
const HEAD = 12;
// How far apart labels of time are at least, in pixels.
const LABEL = 72;
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600];

// Round times of a span, so far apart that their labels have room. All in milliseconds.
function ticks(start, span, width) {
  const step = 1000 * (STEPS.find((seconds) => (seconds * 1000 * width) / span >= LABEL) ?? STEPS.at(-1));
  const all = [];
  for (let time = Math.ceil(start / step) * step; time <= start + span; time += step) all.push({ time, text: step < 60000 ? clock(time) : minute(time) });
  return all;
}

// The paths of a line and of the area below it. A value that is not known leaves a gap.
function paths(points, x, y, base) {
  let line = "";
  let area = "";
  let begun = null;
  const close = (last) => { area += `L${x(last).toFixed(1)} ${base}Z`; };
  points.forEach((value, nth) => {
    if (value === null || value === undefined) {
      if (begun !== null) close(nth - 1);
      begun = null;
      return;
    }
    const at = `${x(nth).toFixed(1)} ${y(value).toFixed(1)}`;
    line += begun === null ? `M${at}` : `L${at}`;
    area += begun === null ? `M${x(nth).toFixed(1)} ${base}L${at}` : `L${at}`;
    if (begun === null) begun = nth;
  });
  if (begun !== null) close(points.length - 1);
  return { line, area };
}

// Rates of one interface: what it receives above the line, what it sends below.
//
// `choose(from, to)` is called with milliseconds when a span was chosen, by dragging or by keys.
export class RateChart {
  constructor(choose, label) {
    this.choose = choose;
    this.plot = s("svg", { class: "plot", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.element = h("div", {
      class: "chart", tabindex: "0", role: "slider", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 0,
      "aria-valuenow": 0, "aria-valuetext": "no data yet", "aria-keyshortcuts": "ArrowLeft ArrowRight Enter",
    }, this.plot, this.tip);
    this.data = null;
    this.cursor = null;
    this.anchor = null;
    this.width = 0;
    this.listen();
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width !== this.width) { this.width = width; this.draw(); }
    }).observe(this.element);
  }

  // `data`: {start, step (ms), up: [values], down: [values] or null, unit, bad: [indexes], note}
  show(data) {
    this.data = data;
    this.draw();
  }

  get height() { return this.data?.down ? 132 : 100; }

  draw() {
    const { data, width, height } = this;
    if (!data || width < 40) return;
    const count = Math.max(data.up.length, 2);
    const most = (values) => values.reduce((max, value) => (value > max ? value : max), 0);
    const [up, down] = [most(data.up), data.down ? most(data.down) : 0];
    const room = height - BOTTOM;
    // Both directions have one scale, and each has the room that its largest needs.
    const unit = (room - HEAD) / (up + down || 1);
    const base = Math.round(HEAD + up * unit);
    const x = (nth) => LEFT + (nth / (count - 1)) * (width - LEFT);
    this.x = x;
    this.base = base;
    const yUp = (value) => base - value * unit;
    const yDown = (value) => base + value * unit;
    const top = paths(data.up, x, yUp, base);
    const parts = [];
    const [largest, at] = up >= down ? [up, yUp] : [down, yDown];
    const line = ceiling(largest * 0.5);
    const y = at(line);
    const isMarked = largest > 0 && line <= largest;
    if (isMarked) parts.push(s("line", { class: "grid", x1: 0, x2: width, y1: y, y2: y }));
    parts.push(s("path", { class: "area up", d: top.area }), s("path", { class: "line up", d: top.line }));
    if (data.down) {
      const bottom = paths(data.down, x, yDown, base);
      parts.push(s("path", { class: "area down", d: bottom.area }), s("path", { class: "line down", d: bottom.line }));
    }
    parts.push(s("line", { class: "axis", x1: 0, x2: width, y1: base + 0.5, y2: base + 0.5 }));
    for (const nth of data.bad ?? []) parts.push(s("rect", { class: "bad", x: x(nth) - 1.5, y: base - 4, width: 3, height: 8 }));
    parts.push(...this.times(data, count, x, width, height));
    if (data.note && !data.up.some((value) => value !== null && value !== undefined)) {
      parts.push(s("text", { class: "note", x: width / 2, y: base / 2 + 10, "text-anchor": "middle" }, data.note));
    }
    if (isMarked) parts.push(s("text", { class: "label", x: 2, y: up >= down ? y - 3 : y + 11 }, scaled(line, data.unit)));
    this.mark = s("g", { class: "mark" });
    parts.push(this.mark);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.plot.setAttribute("height", height);
    put(this.plot, parts);
    this.element.setAttribute("aria-valuemax", count - 1);
    this.drawMark();
  }

  times(data, count, x, width, height) {
    const parts = [];
    for (const { time, text } of ticks(data.start, (count - 1) * data.step, width)) {
      const at = x((time - data.start) / data.step);
      const half = text.length * 3.2;
      if (at < half || at > width - half) continue;
      parts.push(s("line", { class: "tick", x1: at, x2: at, y1: height - BOTTOM, y2: height - BOTTOM + 3 }),
        s("text", { class: "label", x: at, y: height - 3, "text-anchor": "middle" }, text));
    }
    return parts;
  }

  time(nth) { return this.data.start + nth * this.data.step; }

  drawMark() {
    const { data, mark, cursor, anchor } = this;
    if (!mark) return;
    put(mark);
    this.tip.hidden = cursor === null;
    if (cursor === null || !data) return;
    const room = this.height - BOTTOM;
    const at = this.x(cursor);
    if (anchor !== null && anchor !== cursor) {
      const from = this.x(Math.min(anchor, cursor));
      mark.append(s("rect", { class: "chosen", x: from, y: 0, width: Math.abs(this.x(anchor) - at), height: room }));
    }
    mark.append(s("line", { class: "cursor", x1: at, x2: at, y1: 0, y2: room }));
    const text = this.text(cursor);
    put(this.tip, text);
    this.tip.classList.toggle("left", at > this.width / 2);
    this.element.setAttribute("aria-valuenow", cursor);
    this.element.setAttribute("aria-valuetext", text);
  }

  text(nth) {
    const { data } = this;
    const anchor = this.anchor ?? nth;
    const [first, last] = [Math.min(anchor, nth), Math.max(anchor, nth)];
    const isSpan = first < last;
    // Of a span the mean of what is known.
    const rate = (values, word) => {
      const known = values.slice(first, last + 1).filter((value) => value !== null && value !== undefined);
      return `${word}${known.length ? scaled(known.reduce((sum, value) => sum + value, 0) / known.length, data.unit) : "unknown"}`;
    };
    const rates = data.down ? `${rate(data.up, "in ")}, ${rate(data.down, "out ")}` : rate(data.up, "");
    return `${isSpan ? `${clock(this.time(first))} – ` : ""}${clock(this.time(last))} UTC: ${rates}${isSpan ? " mean" : ""}`;
  }

  listen() {
    const { element } = this;
    const nth = (event) => {
      const box = element.getBoundingClientRect();
      const count = (this.data?.up.length ?? 1) - 1;
      return Math.min(count, Math.max(0, Math.round(((event.clientX - box.left) / box.width) * count)));
    };
    element.addEventListener("pointerdown", (event) => {
      if (!this.data || event.button !== 0) return;
      this.anchor = this.cursor = nth(event);
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      if (!this.data) return;
      this.cursor = nth(event);
      this.drawMark();
    });
    element.addEventListener("pointerup", () => this.take());
    element.addEventListener("pointercancel", () => this.forget());
    element.addEventListener("pointerleave", () => { if (this.anchor === null) this.forget(); });
    element.addEventListener("blur", () => this.forget());
    element.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    if (!this.data || event.altKey || event.ctrlKey || event.metaKey) return;
    const last = this.data.up.length - 1;
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30, Home: -last, End: last }[event.key];
    if (by !== undefined) {
      const from = this.cursor ?? last;
      if (event.shiftKey) this.anchor ??= from;
      else this.anchor = null;
      this.cursor = Math.min(last, Math.max(0, from + by));
      this.drawMark();
    } else if (event.key === "Enter" && this.anchor !== null) this.take();
    else if (event.key === "Escape" && this.cursor !== null) this.forget();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  take() {
    const { anchor, cursor } = this;
    const from = Math.min(anchor ?? 0, cursor ?? 0);
    const to = Math.max(anchor ?? 0, cursor ?? 0);
    this.anchor = null;
    this.drawMark();
    // A click chooses nothing.
    if (anchor !== null && to > from) this.choose(this.time(from), this.time(to));
  }

  forget() {
    this.cursor = this.anchor = null;
    this.drawMark();
  }
}

// Estimates over time: a line in a band from the lower to the upper bound. A `null` leaves a gap. The scale is
// narrow enough to see the band, and its ends are written beside it.
export function bands(values, { width = 300, height = 56, label }) {
  const known = values.filter((value) => value);
  const most = known.reduce((max, value) => Math.max(max, value.upper), 0);
  const least = known.reduce((min, value) => Math.min(min, value.lower), most);
  // Not so narrow that noise looks like news.
  const low = Math.max(0, Math.min(least, most * 0.8));
  const full = most > low ? most : low + 1;
  const room = values.length === 1 ? 1 : values.length - 1;
  const x = (nth) => (nth / room) * width;
  const y = (value) => height - 3 - ((value - low) / (full - low)) * (height - 6);
  const parts = [];
  let run = [];
  const finish = () => {
    if (run.length === 0) return;
    const at = (nth, value) => `${x(nth).toFixed(1)} ${y(value).toFixed(1)}`;
    if (run.length === 1) {
      const { lower, upper, value } = values[run[0]];
      // The only one of all has the whole width.
      const wide = values.length === 1 ? width : 6;
      const left = Math.min(width - wide, Math.max(0, x(run[0]) - 3));
      parts.push(s("rect", { class: "band", x: left, width: wide, y: y(upper), height: Math.max(1, y(lower) - y(upper)) }),
        s("line", { class: "line", x1: left, x2: left + wide, y1: y(value), y2: y(value) }));
    } else {
      const upper = run.map((nth) => at(nth, values[nth].upper));
      const lower = run.map((nth) => at(nth, values[nth].lower)).reverse();
      parts.push(s("path", { class: "band", d: `M${upper.join("L")}L${lower.join("L")}Z` }),
        s("path", { class: "line", d: `M${run.map((nth) => at(nth, values[nth].value)).join("L")}` }));
    }
    run = [];
  };
  values.forEach((value, nth) => { if (value) run.push(nth); else finish(); });
  finish();
  return h("div", { class: "over" },
    s("svg", { class: "bands", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      s("line", { class: "axis", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }), parts),
    h("div", { class: "ends", "aria-hidden": "true" }, h("span", null, count(full)), h("span", null, count(low))));
}

// What windows say of one key, each as a step as long as the window, with its bounds as a band: [{start, end, of}], in
// milliseconds. A window that does not have it (`of` is null) leaves a gap. The scale begins at 0.
export function steps(windows, { from, to, label, text }) {
  const [wide, height] = [1000, 90];
  const most = windows.reduce((max, { of }) => Math.max(max, of?.upper ?? 0), 0) || 1;
  const x = (time) => (((time - from) / (to - from || 1)) * wide).toFixed(1);
  const y = (value) => (height - 2 - (value / most) * (height - 6)).toFixed(1);
  let line = "";
  let before = null;
  const band = [];
  for (const { start, end, of } of windows.filter((window) => window.of)) {
    // Neighbours are one line.
    line += `${before === start ? "V" : `M${x(start)} `}${y(of.value)}H${x(end)}`;
    before = end;
    if (of.upper > of.lower) band.push(s("path", { class: "band", d: `M${x(start)} ${y(of.upper)}H${x(end)}V${y(of.lower)}H${x(start)}Z` }));
  }
  const percent = (time) => `${(((time - from) / (to - from || 1)) * 100).toFixed(2)}%`;
  const labels = ticks(from, to - from, 300).filter(({ time }) => time - from > (to - from) * 0.06 && to - time > (to - from) * 0.06);
  return h("div", { class: "over" },
    s("svg", { class: "steps", role: "img", "aria-label": label },
      s("svg", { class: "bands", viewBox: `0 0 ${wide} ${height}`, width: "100%", height, preserveAspectRatio: "none" }, band, s("path", { class: "line", d: line }),
        s("line", { class: "axis", x1: 0, x2: wide, y1: height - 0.5, y2: height - 0.5 })),
      labels.map(({ time, text: name }) => [s("line", { class: "tick", x1: percent(time), x2: percent(time), y1: height, y2: height + 3 }),
        s("text", { class: "label", x: percent(time), y: height + 14, "text-anchor": "middle" }, name)])),
    h("div", { class: "ends", "aria-hidden": "true" }, h("span", null, text(most)), h("span", null, text(0))));
}

// The bar of a row: as far as it is certain, the band of what it may be, and a mark at the estimate.
export function bar(of, full, label) {
  const at = (value) => `${Math.min(100, (100 * value) / (full || 1)).toFixed(2)}%`;
  const isExact = of.lower === of.upper;
  const width = (from, to) => `${Math.max(0, Math.min(100, (100 * (to - from)) / (full || 1))).toFixed(2)}%`;
  return s("svg", { class: isExact ? "bar exact" : "bar", role: "img", "aria-label": label }, s("title", null, label),
    s("rect", { class: "sure", x: 0, y: 3, height: 10, width: width(0, of.lower) }),
    isExact ? null : s("rect", { class: "band", x: at(of.lower), y: 3, height: 10, width: width(of.lower, of.upper) }),
    isExact ? null : s("line", { class: "end", x1: at(of.lower), x2: at(of.lower), y1: 4, y2: 12 }),
    isExact ? null : s("line", { class: "end", x1: at(of.upper), x2: at(of.upper), y1: 1, y2: 15 }),
    isExact ? null : s("line", { class: "value", x1: at(of.value), x2: at(of.value), y1: 1, y2: 15 }));
}

// One bar of parts: [{name, value, class}]. What is there has at least a line.
export function stack(parts, whole, label) {
  let at = 0;
  const drawn = [];
  for (const part of parts.filter(({ value }) => value > 0)) {
    const share = (100 * part.value) / (whole || 1);
    drawn.push(s("rect", { class: part.class, x: `${Math.min(at, 99.4).toFixed(3)}%`, width: `${Math.max(share, 0.6).toFixed(3)}%`, y: 0, height: "100%" }, s("title", null, part.title ?? part.name)));
    at += share;
  }
  return s("svg", { class: "stack", role: "img", "aria-label": label }, drawn);
}
