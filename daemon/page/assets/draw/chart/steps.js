// Draws one key over time, each window as a step of the window's length.

import { h, s } from "../dom.js";
import { ticks } from "./axis.js";

/** @import { Bounded } from "../../report/lists.js" */
/** @typedef {{start: number, end: number, of: Bounded | null}} Step its times in milliseconds */

// The picture is stretched to the width of its place.
const WIDE = 1000;
const HEIGHT = 90;
// About how wide it is, in pixels.
const WIDTH = 300;
// How near to the ends no label has room.
const EDGE = 0.06;

/**
 * Each step has its bounds as a band. A window that does not have the key leaves a gap. The scale begins at 0.
 * @param {Step[]} windows
 * @param {{from: number, to: number, label: string, text: (value: number) => string}} how
 */
export function steps(windows, { from, to, label, text }) {
  const span = to - from || 1;
  const most = windows.reduce((max, { of }) => Math.max(max, of?.upper ?? 0), 0) || 1;
  const x = (time) => (((time - from) / span) * WIDE).toFixed(1);
  const y = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 6)).toFixed(1);
  let line = "";
  let before = Number.NaN;
  const band = [];
  for (const { start, end, of } of windows) {
    if (!of) continue;
    // Neighbours are one line.
    line += `${before === start ? "V" : `M${x(start)} `}${y(of.value)}H${x(end)}`;
    before = end;
    if (of.upper === of.lower) continue;
    band.push(s("path", { class: "band", d: `M${x(start)} ${y(of.upper)}H${x(end)}V${y(of.lower)}H${x(start)}Z` }));
  }
  const viewBox = `0 0 ${WIDE} ${HEIGHT}`;
  const plot = s(
    "svg",
    { class: "bands", viewBox, width: "100%", height: HEIGHT, preserveAspectRatio: "none" },
    band,
    s("path", { class: "line", d: line }),
    s("line", { class: "axis", x1: 0, x2: WIDE, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
  );
  return h(
    "div",
    { class: "over" },
    s("svg", { class: "steps", role: "img", "aria-label": label }, plot, labels(from, to)),
    h("div", { class: "ends", "aria-hidden": "true" }, h("span", null, text(most)), h("span", null, text(0))),
  );
}

function labels(from, to) {
  const span = to - from;
  const share = (time) => (time - from) / (span || 1);
  const hasRoom = ({ time }) => share(time) > EDGE && share(time) < 1 - EDGE;
  return ticks(from, span, WIDTH)
    .filter(hasRoom)
    .map(({ time, text }) => {
      const x = `${(share(time) * 100).toFixed(2)}%`;
      return [
        s("line", { class: "tick", x1: x, x2: x, y1: HEIGHT, y2: HEIGHT + 3 }),
        s("text", { class: "label", x, y: HEIGHT + 14, "text-anchor": "middle" }, text),
      ];
    });
}
