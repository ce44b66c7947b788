// Bars: of a row with its bounds, and of the parts of a whole.

import { s } from "../dom.js";

/** @import { Bounded } from "../../report/lists.js" */

/**
 * The bar of a row: as far as it is certain, the band of what it may be, and a mark at the estimate.
 * @type {(of: Bounded, full: number, label: string) => SVGSVGElement}
 */
export function bar(of, full, label) {
  const percent = (value) => `${Math.max(0, Math.min(100, (100 * value) / (full || 1))).toFixed(2)}%`;
  const rect = (kind, from, to) =>
    s("rect", { class: kind, x: percent(from), y: 3, height: 10, width: percent(to - from) });
  const line = (kind, value, y1, y2) => s("line", { class: kind, x1: percent(value), x2: percent(value), y1, y2 });
  const isExact = of.lower === of.upper;
  const bounds = [
    rect("band", of.lower, of.upper),
    line("end", of.lower, 4, 12),
    line("end", of.upper, 1, 15),
    line("value", of.value, 1, 15),
  ];
  return s(
    "svg",
    { class: isExact ? "bar exact" : "bar", role: "img", "aria-label": label },
    s("title", null, label),
    rect("sure", 0, of.lower),
    isExact ? [] : bounds,
  );
}

// The smallest width of a part that is not empty, in percent: a line.
const LINE = 0.6;

/**
 * One bar of parts.
 * @param {{name: string, value: number, class: string, title?: string}[]} parts
 * @param {number} whole
 * @param {string} label
 */
export function stack(parts, whole, label) {
  let at = 0;
  const drawn = [];
  for (const part of parts.filter(({ value }) => value > 0)) {
    const share = (100 * part.value) / (whole || 1);
    const x = `${Math.min(at, 100 - LINE).toFixed(3)}%`;
    const width = `${Math.max(share, LINE).toFixed(3)}%`;
    const title = s("title", null, part.title ?? part.name);
    drawn.push(s("rect", { class: part.class, x, width, y: 0, height: "100%" }, title));
    at += share;
  }
  return s("svg", { class: "stack", role: "img", "aria-label": label }, drawn);
}
