// A chart of rates over time, of which a span can be chosen.

import { clock } from "../../times.js";
import { ceiling, mean, scaled } from "../../units.js";
import { h, put, s } from "../dom.js";
import { ticks } from "./axis.js";

/** @import { Series } from "../../state/series.js" */

const BOTTOM = 16;
// Room above the largest rate.
const HEAD = 12;

// The paths of a line and of the area below it. A value that is not known leaves a gap.
function paths(points, x, y, base) {
  let line = "";
  let area = "";
  let begun = null;
  const close = (last) => {
    area += `L${x(last).toFixed(1)} ${base}Z`;
  };
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

const known = (values) => values.filter((value) => value !== null && value !== undefined);
const isKnown = (values) => known(values).length > 0;
const largest = (values) => values.reduce((max, value) => Math.max(max, value ?? 0), 0);

// Where points are drawn. Both directions have one scale, and each has the room that its largest needs.
function scaleOf(data, width, height) {
  const count = Math.max(data.up.length, 2);
  const [up, down] = [largest(data.up), data.down ? largest(data.down) : 0];
  const unit = (height - BOTTOM - HEAD) / (up + down || 1);
  const base = Math.round(HEAD + up * unit);
  return {
    count,
    up,
    down,
    base,
    x: (nth) => (nth / (count - 1)) * width,
    yUp: (value) => base - value * unit,
    yDown: (value) => base + value * unit,
  };
}

function lines(data, { x, yUp, yDown, base }, width) {
  const drawn = (kind, values, y) => {
    const { line, area } = paths(values, x, y, base);
    return [s("path", { class: `area ${kind}`, d: area }), s("path", { class: `line ${kind}`, d: line })];
  };
  return [
    ...drawn("up", data.up, yUp),
    ...(data.down ? drawn("down", data.down, yDown) : []),
    s("line", { class: "axis", x1: 0, x2: width, y1: base + 0.5, y2: base + 0.5 }),
  ];
}

// A line at a round rate of the larger direction, to be drawn below all else, and its label.
function grid(data, { up, down, yUp, yDown }, width) {
  const isUp = up >= down;
  const most = Math.max(up, down);
  const rate = ceiling(most * 0.5);
  if (most === 0 || rate > most) return [null, null];
  const y = (isUp ? yUp : yDown)(rate);
  return [
    s("line", { class: "grid", x1: 0, x2: width, y1: y, y2: y }),
    s("text", { class: "label", x: 2, y: isUp ? y - 3 : y + 11 }, scaled(rate, data.unit)),
  ];
}

// A second in which packets were lost.
const bad = (x, base) => s("rect", { class: "bad", x: x - 1.5, y: base - 4, width: 3, height: 8 });

const note = (text, width, base) =>
  text && s("text", { class: "note", x: width / 2, y: base / 2 + 10, "text-anchor": "middle" }, text);

function times(data, { count, x }, width, height) {
  const parts = [];
  for (const { time, text } of ticks(data.start, (count - 1) * data.step, width)) {
    const at = x((time - data.start) / data.step);
    // About half of its width.
    const half = text.length * 3.2;
    if (at < half || at > width - half) continue;
    parts.push(
      s("line", { class: "tick", x1: at, x2: at, y1: height - BOTTOM, y2: height - BOTTOM + 3 }),
      s("text", { class: "label", x: at, y: height - 3, "text-anchor": "middle" }, text),
    );
  }
  return parts;
}

// Rates of one interface: what it receives above the line, what it sends below.
export class RateChart {
  /**
   * @param {(from: number, to: number) => void} choose is called with milliseconds when a span was chosen
   * @param {string} label
   */
  constructor(choose, label) {
    this.choose = choose;
    this.plot = s("svg", { class: "plot", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    const value = { "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0, "aria-valuetext": "no data yet" };
    this.element = h(
      "div",
      {
        class: "chart",
        tabindex: "0",
        role: "slider",
        "aria-label": label,
        ...value,
        "aria-keyshortcuts": "ArrowLeft ArrowRight Enter",
      },
      this.plot,
      this.tip,
    );
    /** @type {Series | null} */
    this.data = null;
    /**
     * The point that is read, and where the choice of a span began.
     * @type {number | null}
     */
    this.cursor = null;
    /** @type {number | null} */
    this.anchor = null;
    this.mark = s("g", { class: "mark" });
    // Where a point is. There is none before the first drawing.
    this.x = (/** @type {number} */ _nth) => 0;
    this.width = 0;
    this.listen();
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width !== this.width) {
        this.width = width;
        this.draw();
      }
    }).observe(this.element);
  }

  /** @param {Series} data */
  show(data) {
    this.data = data;
    this.draw();
  }

  get height() {
    return this.data?.down ? 132 : 100;
  }

  draw() {
    const { data, width, height } = this;
    if (!data || width < 40) return;
    const scale = scaleOf(data, width, height);
    this.x = scale.x;
    this.mark = s("g", { class: "mark" });
    const [below, above] = grid(data, scale, width);
    const parts = [
      below,
      ...lines(data, scale, width),
      ...(data.bad ?? []).map((nth) => bad(scale.x(nth), scale.base)),
      ...times(data, scale, width, height),
      isKnown(data.up) ? null : note(data.note, width, scale.base),
      above,
      this.mark,
    ];
    this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.plot.setAttribute("height", String(height));
    put(this.plot, parts);
    this.element.setAttribute("aria-valuemax", String(scale.count - 1));
    this.drawMark();
  }

  time(nth) {
    return this.data ? this.data.start + nth * this.data.step : 0;
  }

  drawMark() {
    const { data, mark, cursor, anchor } = this;
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
    const text = this.text(data, cursor);
    put(this.tip, text);
    this.tip.classList.toggle("left", at > this.width / 2);
    this.element.setAttribute("aria-valuenow", String(cursor));
    this.element.setAttribute("aria-valuetext", text);
  }

  text(data, nth) {
    const anchor = this.anchor ?? nth;
    const [first, last] = [Math.min(anchor, nth), Math.max(anchor, nth)];
    const isSpan = first < last;
    // Of a span the mean of what is known.
    const rate = (values, word) => {
      const told = known(values.slice(first, last + 1));
      return `${word}${told.length ? scaled(mean(told), data.unit) : "unknown"}`;
    };
    const rates = data.down ? `${rate(data.up, "in ")}, ${rate(data.down, "out ")}` : rate(data.up, "");
    const times = `${isSpan ? `${clock(this.time(first))} – ` : ""}${clock(this.time(last))} UTC`;
    return `${times}: ${rates}${isSpan ? " mean" : ""}`;
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
      this.cursor = nth(event);
      this.anchor = this.cursor;
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      if (!this.data) return;
      this.cursor = nth(event);
      this.drawMark();
    });
    element.addEventListener("pointerup", () => this.take());
    element.addEventListener("pointercancel", () => this.forget());
    element.addEventListener("pointerleave", () => {
      if (this.anchor === null) this.forget();
    });
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
    this.cursor = null;
    this.anchor = null;
    this.drawMark();
  }
}
