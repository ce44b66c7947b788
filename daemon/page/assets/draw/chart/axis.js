// Times below a chart.

import { clock, minute } from "../../times.js";

// How far apart labels are at least, in pixels.
const LABEL = 72;
// Distances between labels that a reader expects, in seconds.
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600];

/**
 * Round times of a span, so far apart that their labels have room. All in milliseconds.
 * @param {number} start
 * @param {number} span
 * @param {number} width
 */
export function ticks(start, span, width) {
  const seconds = STEPS.find((one) => (one * 1000 * width) / span >= LABEL) ?? STEPS[STEPS.length - 1];
  const step = 1000 * seconds;
  const all = [];
  for (let time = Math.ceil(start / step) * step; time <= start + span; time += step) {
    all.push({ time, text: seconds < 60 ? clock(time) : minute(time) });
  }
  return all;
}
