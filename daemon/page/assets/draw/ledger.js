// The section "Where every packet went": the ledger of one interface, or of all together.

import { isMeasured } from "../report/trust.js";
import { bytes, grouped, percent, sum } from "../units.js";
import { stack } from "./chart/bars.js";
import { byId, h, hint, keep, number, swatch } from "./dom.js";

/** @typedef {{packets: number, bytes: number}} Tally */
/** @typedef {{name: string, text: string, class: string, tally: Tally}} Part */

const NOTHING = { packets: 0, bytes: 0 };

const nameOf = (one) => `${one.name}${one.direction ? ` ${one.direction}` : ""}`;

// Draws the choice of an interface, and returns the ledger.
export function drawLedger(interfaces, wanted) {
  const names = interfaces.map(nameOf);
  const select = /** @type {HTMLSelectElement} */ (byId("ledger-of"));
  const option = (value, text) => h("option", { value }, text);
  keep(select, names.join(), () => [option("", "all interfaces"), names.map((name) => option(name, name))]);
  select.value = names.includes(wanted) ? wanted : "";
  return ledger(interfaces.filter((one) => !select.value || nameOf(one) === select.value));
}

function ledger(chosen) {
  const seen = add(chosen, (one) => one.ledger.seen);
  const repeated = add(chosen, (one) => one.repeated);
  const parts = partsOf(chosen);
  const lost = parts.filter((part) => part.class === "lost");
  const shown = parts.filter((part) => part.tally.packets > 0 || part.name === "attributed");
  const share = (tally) => percent(seen.packets === 0 ? 0 : tally.packets / seen.packets);
  const head = (text) => h("th", { scope: "col" }, text);
  const row = (name, text, tally, kind) => {
    const who = h("th", { scope: "row" }, kind ? swatch(kind) : null, text);
    const packets = h("td", null, number(tally.packets, grouped(tally.packets)));
    const size = h("td", null, number(tally.bytes, bytes(tally.bytes)));
    return h("tr", { "data-part": name }, who, packets, size, h("td", null, seen.packets === 0 ? "" : share(tally)));
  };
  const rows = [
    row("seen", "seen", seen),
    repeated.packets > 0 ? row("repeated", "of these, in totals by another interface", repeated) : null,
    shown.map((part) => row(part.name, part.text, part.tally, part.class)),
    lost.every((part) => part.tally.packets === 0)
      ? row("lost", `lost (${lost.length} reasons)`, NOTHING, "lost")
      : null,
  ];
  const heads = [h("span", { class: "quiet" }, "part"), "packets", "bytes", "of packets"].map(head);
  return [
    bar(shown, seen, share),
    h("table", { class: "ledger" }, h("thead", null, h("tr", null, heads)), h("tbody", null, rows)),
    added(chosen, repeated),
  ];
}

/** @returns {Tally} */
const add = (chosen, get) => ({
  packets: sum(chosen, (one) => get(one)?.packets ?? 0),
  bytes: sum(chosen, (one) => get(one)?.bytes ?? 0),
});

/** @returns {Part[]} */
function partsOf(chosen) {
  const reasons = (kind) => {
    const names = new Set(chosen.flatMap((one) => Object.keys(one.ledger[kind])));
    return [...names].sort().map((reason) => ({
      name: `${kind}.${reason}`,
      text: `${kind}: ${reason}`,
      class: kind,
      tally: add(chosen, (one) => one.ledger[kind][reason]),
    }));
  };
  const part = (name, text, kind) => ({ name, text, class: kind, tally: add(chosen, (one) => one.ledger[name]) });
  return [
    part("attributed", "attributed", "attributed"),
    part("sampled_out", "left out by sampling", "sampled"),
    ...reasons("skipped"),
    ...reasons("lost"),
  ];
}

function bar(shown, seen, share) {
  const parts = shown.map((part) => {
    const value = part.tally.packets;
    return { ...part, value, title: `${part.text}: ${grouped(value)} packets` };
  });
  const label = shown.map((part) => `${part.text} ${share(part.tally)}`).join(", ");
  return stack(parts, seen.packets, `Of ${grouped(seen.packets)} packets: ${label}`);
}

// Explains a ledger that adds up several interfaces.
function added(chosen, repeated) {
  const missing = chosen.filter((one) => !isMeasured(one.mode)).map((one) => `${nameOf(one)} (${one.mode})`);
  const unknown = missing.length > 0 ? ` What ${missing.join(", ")} carried is unknown.` : "";
  if (chosen.length < 2) return unknown ? hint(unknown.trim()) : null;
  const twice =
    ` ${grouped(repeated.packets)} packets passed two of them: here they count on both, and once in the line above ` +
    "and in the lists.";
  const text = `The sum of ${chosen.length} ledgers.${repeated.packets > 0 ? twice : ""}${unknown}`;
  return h("p", { class: "hint", "data-added": chosen.length }, text);
}
