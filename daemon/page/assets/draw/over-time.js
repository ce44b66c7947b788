// The rate of a key in each window of the time, with its bounds.

import { windowsOfKey } from "../fetch/key.js";
import { unitOf } from "../state/series.js";
import { between } from "../times.js";
import { grouped, plural, scaled, sum } from "../units.js";
import { steps } from "./chart/steps.js";
import { h, nothing, put } from "./dom.js";

export async function drawOverTime(key, choice, place, isWanted) {
  try {
    const { windows, leftOut } = await windowsOfKey(key, choice);
    if (isWanted()) draw(windows, leftOut, choice, place);
  } catch (error) {
    if (isWanted()) put(place, nothing(error.message));
  }
}

function draw(windows, leftOut, choice, place) {
  // A window without a length has no rate.
  if (!windows.some((window) => window.amount && window.seconds)) {
    put(place, nothing("No window of this time has it in a list of packets and bytes."));
    return;
  }
  const unit = unitOf(choice.by);
  const all = windows.map((window) => step(window, choice.by));
  const [from, to] = choice.isSpan ? [choice.from, choice.to] : [all[0].start, all.at(-1).end];
  const most = all.flatMap(({ of }) => of ?? []).reduce((max, of) => (of.value > max.value ? of : max));
  const [count, listed] = [sum(windows, (one) => one.windows), sum(windows, (one) => one.listed)];
  const largest = `${most.upper > most.value ? "at least " : ""}${scaled(most.value, unit)}`;
  const verb = listed === 1 ? "lists" : "list";
  const text = `${grouped(listed)} of ${plural(count, "window")} ${verb} it, the largest with ${largest}.`;
  const notes = [
    listed < count ? " A gap is a window that does not list it." : "",
    count > windows.length ? " Neighbouring windows are drawn together." : "",
    leftOut > 0 ? ` ${plural(leftOut, "window")} left out: the view asked another question then.` : "",
  ];
  put(place.previousElementSibling, "Over time ", h("small", { class: "time" }, `${between(from, to)} UTC`));
  put(
    place,
    steps(all, { from, to, label: `Rate over time: ${text}`, text: (value) => scaled(value, unit) }),
    h("p", { class: "hint", "data-windows": count, "data-listed": listed }, `${text}${notes.join("")}`),
  );
}

// A window with its rate.
function step({ start, end, seconds, amount }, by) {
  const factor = (by === "packets" ? 1 : 8) / seconds;
  const rate = ({ value, lower, upper }) => ({ value: value * factor, lower: lower * factor, upper: upper * factor });
  return { start: Date.parse(start), end: Date.parse(end), of: seconds && amount ? rate(amount) : null };
}
