// The section "Alerts".

import { clock } from "../times.js";
import { grouped, sum } from "../units.js";
import { h, hint, number } from "./dom.js";

// Which rules fired in which windows of a span, and what decided. Of some, only the windows are known.
export function fired(windows, known) {
  const rules = [...new Set(windows.flatMap((one) => one.alerts ?? []))].sort();
  if (rules.length === 0) return hint("No rule fired in this time.");
  return rules.map((rule) => firedRule(rule, windows, known));
}

function firedRule(rule, windows, known) {
  const mine = windows.filter((one) => one.alerts?.includes(rule));
  const count = (all) => grouped(sum(all, (one) => one.windows ?? 1));
  const times = `${clock(mine[0].start)} – ${clock(mine.at(-1).end)}`;
  return h(
    "article",
    { class: "alert bad", "data-rule": rule },
    title(rule, "fired", ` ${times} UTC`),
    h("p", null, `in ${count(mine)} of ${count(windows)} windows`),
    known
      .filter((alert) => alert.rule === rule)
      .flatMap((alert) => [h("p", { class: "mono" }, alert.when), evidenceOf(alert)]),
  );
}

const title = (rule, state, when) =>
  h("h3", null, rule, " ", h("span", { class: "state" }, state), h("small", null, when));

// The alerts of a report.
export function alerts(all) {
  if (all.length > 0) return all.map(article);
  const where = [h("code", null, "alerts:"), " in weir.yaml."];
  return hint("No rule has anything to say about this window. Rules are set under ", ...where);
}

function article(alert) {
  const isOn = alert.state === "firing" || alert.state === "clearing";
  return h(
    "article",
    { class: isOn ? "alert bad" : "alert", "data-rule": alert.rule, "data-state": alert.state },
    title(alert.rule, alert.state, ` since ${clock(alert.since)}`),
    h("p", { class: "mono" }, alert.when),
    evidenceOf(alert),
  );
}

// The numbers that decided.
function evidenceOf(alert) {
  const evidence = alert.evidence.map((one) => item(one, alert.unit));
  if (alert.more) evidence.push(h("li", null, `and ${grouped(alert.more)} more`));
  return h("ul", null, evidence);
}

// An item with the owner of a number, and the number.
function item({ value, lower, upper, ...key }, unit) {
  const fields = Object.entries(key).map(([name, of]) => (name.endsWith("ip") ? of : `${name} ${of}`));
  const text = `${amount(value)}${range(lower, upper)}${unit ? ` ${unit}` : ""}`;
  return h("li", null, fields.length > 0 ? `${fields.join(", ")}: ` : "", number(value, text));
}

function range(lower, upper) {
  if (upper === undefined) return ` (at least ${amount(lower)})`;
  return lower === upper ? "" : ` (${amount(lower)} to ${amount(upper)})`;
}

const amount = (value) => (Number.isInteger(value) ? grouped(value) : String(Math.round(value * 1000) / 1000));
