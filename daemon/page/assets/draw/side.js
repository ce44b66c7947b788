// The sections beside the lists. Each has a file of its own.

import { complete, span, subject } from "../state/known.js";
import { windowsBefore } from "../state/series.js";
import { alerts, fired } from "./alerts.js";
import { cost } from "./cost.js";
import { distinct } from "./distinct.js";
import { byId, hint, put } from "./dom.js";
import { drawLedger } from "./ledger.js";
import { mix } from "./mix.js";

export function drawSide(choice) {
  const { report, why } = subject(choice);
  const whole = complete(choice);
  // The line above all says why.
  const without = () => hint(choice.isSpan && span.why ? "Nothing of this time." : why);
  const isFiring = (whole?.alerts ?? []).some((alert) => alert.state === "firing");
  document.body.classList.toggle("alarm", isFiring);
  const draw = (id, isKnown, make) => put(byId(id), isKnown ? make() : without());
  const known = whole?.alerts ?? [];
  draw("alerts-body", whole, () => (choice.isSpan ? fired(span.past?.windows ?? [], known) : alerts(known)));
  draw("distinct-body", report?.unique, () => distinct(report, windowsBefore(choice)));
  draw("mix-body", whole, () => mix(whole.totals));
  draw("cost-body", whole, () => cost(whole));
  draw("ledger-body", whole, () => drawLedger(whole.interfaces, choice.of));
}
