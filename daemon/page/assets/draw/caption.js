// The line above a chart: the interface, how it is measured, and its rates.

import { isMeasured, NOT_MEASURED } from "../report/trust.js";
import { OF_REPORTS } from "../state/address.js";
import { now, rates, span } from "../state/known.js";
import { unitOf } from "../state/series.js";
import { mean, rated, scaled } from "../units.js";
import { h, number, swatch } from "./dom.js";

export function caption(name, series, choice) {
  const report = choice.isSpan ? span.report : now.drawn;
  const mine = (report?.interfaces ?? []).filter((one) => one.name === name);
  const last = rates.all.get(name)?.last ?? {};
  const isBad = [...mine, ...Object.values(last)].some((one) => one.trouble || !isMeasured(one.mode));
  const alias = mine.find((one) => one.alias)?.alias;
  const rate = (values, word, kind) =>
    values &&
    h("span", { class: `way ${kind}` }, swatch(kind), word, ofWay(values, kind, { report, mine, last }, choice));
  const word = series.isOut ? "out " : series.down || last.ingress ? "in " : "";
  return [
    h("h3", { class: isBad ? "bad" : null }, isBad ? "! " : "", name, " ", h("small", null, alias ?? how(mine, last))),
    h("p", { class: "ways" }, rate(series.up, word, series.isOut ? "down" : "up"), rate(series.down, "out ", "down")),
  ];
}

// How it is measured.
function how(mine, last) {
  const mode = mine[0]?.mode ?? Object.values(last)[0]?.mode ?? "";
  const sampled = mine.map((one) => one.sampling).filter((of) => of > 1);
  const vrf = mine.find((one) => one.vrf)?.vrf;
  return [mode, vrf && `VRF ${vrf}`, ...new Set(sampled.map((of) => `1 in ${of}`))].filter(Boolean).join(", ");
}

// The rate of a direction. A collector has reports and no seconds, so the last report has the last rate; and a span has
// the mean of its windows.
function ofWay(values, kind, { report, mine, last }, choice) {
  const told =
    OF_REPORTS || choice.isSpan ? mine.find((one) => (one.direction === "egress") === (kind === "down")) : null;
  if (told) return ofReport(told, kind, report.window.seconds, choice);
  return choice.isSpan ? meanOf(values, choice) : ofSecond(values.at(-1), kind, last, choice);
}

function ofReport(told, kind, seconds, { by, isSpan }) {
  if (!isMeasured(told.mode) || told.unmeasured_seconds !== undefined) {
    return told.ledger.seen.packets > 0 ? "measured in part" : NOT_MEASURED;
  }
  const raw = told.ledger.seen[by];
  const rate = h("b", null, number(raw, rated(raw, by, seconds), { "data-rate": kind }));
  return [rate, isSpan ? h("small", null, " mean") : null];
}

function meanOf(values, { by }) {
  const known = values.filter((value) => value !== null);
  const text = known.length ? scaled(mean(known), unitOf(by)) : null;
  return [text === null ? "unknown" : h("b", null, text), h("small", null, " mean")];
}

function ofSecond(value, kind, last, { by }) {
  const way = kind === "down" ? last.egress : (last.ingress ?? last.both);
  if (way && !isMeasured(way.mode)) return NOT_MEASURED;
  if (value === null) return "unknown";
  return h("b", null, number(way?.counted?.[by], scaled(value, unitOf(by)), { "data-rate": kind }));
}
