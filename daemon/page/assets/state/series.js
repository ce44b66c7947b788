// The rates of an interface as a chart shows them.

import { isMeasured, NOT_MEASURED } from "../report/trust.js";
import { now, rates, span } from "./known.js";

/** @import { Choice } from "./address.js" */

/**
 * @typedef {object} Series
 * @property {number} start in milliseconds, as `step`
 * @property {number} step
 * @property {(number | null)[]} up what it receives, or sends if nothing else is known (`isOut`)
 * @property {(number | null)[] | null} down what it sends
 * @property {boolean} isOut
 * @property {string} unit
 * @property {number[]} bad the points at which packets were lost
 * @property {string} note what is said if no rate is known
 */

// How many seconds the charts of now show.
export const NOW = 300;

export const unitOf = (by) => (by === "packets" ? "pkt/s" : "bit/s");

// The interfaces that have a chart.
export function charted(choice) {
  if (!choice.isSpan) return [...rates.all.keys()];
  return [...new Set((span.past?.interfaces ?? []).map((one) => one.name))];
}

/** @type {(name: string, choice: Choice) => Series} */
export const seriesOf = (name, choice) => (choice.isSpan ? ofSpan(span.past, name, choice.by) : ofNow(name, choice.by));

function ofNow(name, by) {
  const until = rates.latest;
  const way = (direction) => rates.series(name, direction, NOW, until, by);
  const up = way("ingress") ?? way("both");
  const down = way("egress");
  const known = rates.all.get(name);
  return {
    start: (until - NOW + 1) * 1000,
    step: 1000,
    unit: unitOf(by),
    isOut: Boolean(!up && down),
    up: up ?? down ?? new Array(NOW).fill(null),
    down: up && down ? down : null,
    bad: rates.lost(name, NOW, until),
    note: noteOf(Object.values(known.last)),
  };
}

// Why there is no rate now.
function noteOf(last) {
  const missing = last.find((one) => !isMeasured(one.mode));
  if (missing) return `${NOT_MEASURED}: ${missing.mode}`;
  return last.some((one) => !one.counted) ? "counted in the report only" : "no second yet";
}

function ofSpan(past, name, by) {
  const ways = past.interfaces.filter((one) => one.name === name);
  const factor = by === "packets" ? 1 : 8;
  // Some seconds of a step may be unknown.
  const seconds = (one, nth) => one.seconds?.[nth] || past.step_seconds;
  const series = (one) => one?.[by].map((value, nth) => (value === null ? null : (value * factor) / seconds(one, nth)));
  const down = series(ways.find((one) => one.direction === "egress"));
  const up = series(ways.find((one) => one.direction !== "egress"));
  const bad = (up ?? down).map((_, nth) => nth).filter((nth) => ways.some((one) => one.lost?.[nth] > 0));
  return {
    start: Date.parse(past.from),
    step: past.step_seconds * 1000,
    unit: unitOf(by),
    isOut: !up,
    up: up ?? down,
    down: up && down ? down : null,
    bad,
    note: "no data for this time",
  };
}

// The estimates that the parts beside the lists draw over time: of the last windows, or of those of the span.
export function windowsBefore(choice) {
  // The windows of a span in weir's history, in the shape of reports.
  if (choice.isSpan) return (span.past?.windows ?? []).map((one) => ({ unique: { src_ip: one.src_ip } }));
  return choice.isOpen ? [] : now.earlier;
}
