// The choice of a time: now, the last minutes or hours, or a form for any other.

import { go, link, TO_NOW, toSpan } from "../state/address.js";
import { lastEnd } from "../state/known.js";
import { byId, find, h, holder, nav, put } from "./dom.js";

/** @import { Choice } from "../state/address.js" */

/** @type {[string, number][]} */
const PRESETS = [
  ["5 min", 300],
  ["20 min", 1200],
  ["1 h", 3600],
  ["24 h", 86400],
];
// The length that the form proposes at first, in milliseconds.
const PROPOSED = 1_200_000;

const details = () => byId("spans").querySelector("details");

/** @param {Choice} choice */
export function drawTimes(choice) {
  const place = byId("spans");
  const now = lastEnd();
  const key = `${location.hash} ${now}`;
  // The reader may be filling in the form.
  if (place.dataset.key === key || place.contains(holder().closest("form"))) return;
  place.dataset.key = key;
  const focused = holder().dataset.span;
  const toNow = nav("Now", link(TO_NOW), !choice.isSpan, { "data-span": "now", "aria-keyshortcuts": "l" });
  const presets = PRESETS.map(([name, seconds]) =>
    nav(name, link(toSpan(now - seconds * 1000, now)), isNear(choice, seconds), { "data-span": name }),
  );
  put(place, toNow, presets, more(choice, now));
  if (focused) find(place, `[data-span="${focused}"]`)?.focus();
}

// Older windows are known five minutes at a time.
const isNear = ({ isSpan, from, to }, seconds) =>
  isSpan && Math.abs((to - from) / 1000 - seconds) < (seconds < 3600 ? 2 : 300);

function more({ isSpan, from, to }, now) {
  const pick = (name, time) => {
    const value = new Date(time).toISOString().slice(0, 19);
    return h("label", null, `${name} `, h("input", { type: "datetime-local", step: 1, name, value }));
  };
  const form = h(
    "form",
    { class: "pick", onsubmit: take },
    pick("From", isSpan ? from : now - PROPOSED),
    pick("To", isSpan ? to : now),
    h("button", null, "Show"),
    h("span", { class: "hint", role: "status" }, "UTC"),
  );
  const summary = h("summary", { "data-span": "more" }, "Choose…");
  return h("details", { class: "more", open: details()?.open, onkeydown: press }, summary, form);
}

function press(event) {
  if (event.key !== "Escape") return;
  event.stopPropagation();
  closeTimes(true);
}

function take(event) {
  event.preventDefault();
  const { elements } = event.target;
  const [from, to] = ["From", "To"].map((name) => Date.parse(`${elements[name].value}Z`));
  if (!(to > from)) {
    put(event.target.querySelector(".hint"), "UTC. From must be before To.");
    return;
  }
  closeTimes(true);
  go(toSpan(from, to));
}

/**
 * Closes the form. If the reader has left it, the focus of its fields goes to its button.
 * @param {boolean} isLeft
 */
export function closeTimes(isLeft) {
  const form = details();
  if (!form?.open) return;
  form.open = false;
  if (isLeft) /** @type {HTMLElement} */ (form.firstElementChild).focus();
}
