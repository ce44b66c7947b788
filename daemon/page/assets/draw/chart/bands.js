// Estimates over time: a line in a band from the lower to the upper bound.

import { count } from "../../units.js";
import { h, s } from "../dom.js";

/** @import { Bounded } from "../../report/lists.js" */

const WIDTH = 300;
const HEIGHT = 56;
// How wide a window is that has no neighbour.
const ALONE = 6;

/**
 * A `null` leaves a gap. The scale is narrow enough to see the band, and its ends are written beside it.
 * @param {(Bounded | null)[]} values
 * @param {string} label
 */
export function bands(values, label) {
  const known = values.filter((value) => value !== null);
  const most = known.reduce((max, value) => Math.max(max, value.upper), 0);
  const least = known.reduce((min, value) => Math.min(min, value.lower), most);
  // Not so narrow that noise looks like news.
  const low = Math.max(0, Math.min(least, most * 0.8));
  const full = most > low ? most : low + 1;
  const room = values.length === 1 ? 1 : values.length - 1;
  const x = (nth) => (nth / room) * WIDTH;
  const y = (value) => HEIGHT - 3 - ((value - low) / (full - low)) * (HEIGHT - 6);
  // The only one of all has the whole width.
  const wide = values.length === 1 ? WIDTH : ALONE;
  const parts = runs(values).flatMap((run) => (run.length === 1 ? single(run[0], wide, x, y) : band(run, x, y)));
  const attributes = { class: "bands", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" };
  const axis = s("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 });
  return h(
    "div",
    { class: "over" },
    s("svg", { ...attributes, role: "img", "aria-label": label }, axis, parts),
    h("div", { class: "ends", "aria-hidden": "true" }, h("span", null, count(full)), h("span", null, count(low))),
  );
}

/**
 * The values that have no gap between them, each with its place.
 * @param {(Bounded | null)[]} values
 */
function runs(values) {
  /** @type {{nth: number, of: Bounded}[][]} */
  const all = [[]];
  values.forEach((of, nth) => {
    if (of) all[all.length - 1].push({ nth, of });
    else all.push([]);
  });
  return all.filter((run) => run.length > 0);
}

function single({ nth, of }, width, x, y) {
  const left = Math.min(WIDTH - width, Math.max(0, x(nth) - ALONE / 2));
  const height = Math.max(1, y(of.lower) - y(of.upper));
  return [
    s("rect", { class: "band", x: left, width, y: y(of.upper), height }),
    s("line", { class: "line", x1: left, x2: left + width, y1: y(of.value), y2: y(of.value) }),
  ];
}

function band(run, x, y) {
  const points = (bound) => run.map(({ nth, of }) => `${x(nth).toFixed(1)} ${y(of[bound]).toFixed(1)}`);
  const around = [...points("upper"), ...points("lower").reverse()];
  return [
    s("path", { class: "band", d: `M${around.join("L")}Z` }),
    s("path", { class: "line", d: `M${points("value").join("L")}` }),
  ];
}
