// The window or span of a report in words, and what is missing in it.

import { between, clock, duration } from "../times.js";
import { plural } from "../units.js";

/** @type {(choice: {isOpen?: boolean, isSpan?: boolean}, report: any) => string} */
export function windowText({ isOpen, isSpan }, report) {
  const { start, end, seconds } = report.window;
  if (isOpen) return `Open window since ${clock(start)} UTC, ${duration(seconds)} so far`;
  const times = `${between(start, end)} UTC`;
  if (!isSpan) return `Window ${times}`;
  const length = duration((Date.parse(end) - Date.parse(start)) / 1000);
  const windows = report.windows ?? report.reports?.length;
  const together = windows ? `, ${plural(windows, "window")}${windows > 1 ? " together" : ""}` : "";
  return `${times}, ${length}${together}`;
}

// Gaps in the span that weir has no data for.
export function missingIn(report) {
  const of = report?.missing;
  if (!of) return [];
  return (Array.isArray(of) ? of : [of]).map((one) => {
    if (typeof one === "string") return one;
    const times = between(one.from ?? one.start, one.to ?? one.end);
    return `not known: ${times} UTC${one.why ? `: ${one.why}` : ""}`;
  });
}
