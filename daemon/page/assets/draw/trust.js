// The line of trust: what the numbers are of, how much there was, and how far they can be trusted.

import { facts, isNothing, isWhole, NOT_MEASURED } from "../report/trust.js";
import { windowText } from "../report/window.js";
import { complete, now, subject } from "../state/known.js";
import { rated } from "../units.js";
import { byId, h, number, put, word } from "./dom.js";

export function drawTrust(choice) {
  const report = complete(choice);
  if (!report) {
    put(byId("trust"), word(null, subject(choice).why));
    return;
  }
  const text = windowText({ ...choice, isOpen: false }, report);
  const words = facts(report.interfaces, choice.isSpan ? null : now.second).map((fact) =>
    word(fact.verdict, fact.text, { "data-fact": fact.verdict }),
  );
  put(byId("trust"), h("span", { class: "word window" }, text, ": ", total(report)), words, masked(report));
}

function total({ interfaces, totals, window }) {
  if (isNothing(interfaces)) return h("b", { class: "bad" }, NOT_MEASURED);
  const sum = (by) => number(totals[by], rated(totals[by], by, window.seconds), { "data-total": by });
  return [isWhole(interfaces) ? "" : "at least ", [sum("bytes"), ", ", sum("packets")]];
}

function masked({ addresses }) {
  if (!addresses) return null;
  return word(null, addresses === "none" ? "addresses are hidden" : "addresses are masked to networks");
}
