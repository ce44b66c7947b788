// A span beside an earlier time of the same length: what is new, gone, grown or shrunk.

import { question, show } from "../report/key.js";
import { comparable } from "../report/lists.js";
import { earlierStart, go, link, OF_REPORTS } from "../state/address.js";
import { comparison, span } from "../state/known.js";
import { between, duration, iso, plain } from "../times.js";
import { plural, rated } from "../units.js";
import { bar } from "./chart/bars.js";
import { byId, find, h, hint, holder, nav, nothing, number, put } from "./dom.js";

/** @import { Choice } from "../state/address.js" */
/** @typedef {{value: number | null, lower: number, upper: number}} Amount what a key had in one of the times */

/** @type {[string, string][]} */
const EARLIER = [
  ["the time before", "before"],
  ["a day before", "1d"],
  ["a week before", "7d"],
];
// A sign beside each word, so that it is not told by a colour alone.
const SIGNS = { new: "+", gone: "−", grown: "↑", shrunk: "↓" };
// How many rows are shown at most: the largest changes come first.
const ROWS = 50;
// Fields of a row that are not part of its key.
const NOT_KEY = new Set(["change", "before", "now"]);

const details = () => byId("compare-with").querySelector("details");

/** @param {Choice} choice */
export function drawComparison(choice) {
  const section = byId("compare");
  section.hidden = !choice.isSpan || OF_REPORTS || Boolean(span.why);
  if (section.hidden) return;
  drawEarlier(choice);
  const { answer, why } = comparison;
  put(byId("compare-about"), about(choice, answer));
  put(byId("compare-body"), body(choice, answer, why));
}

/** @param {Choice} choice */
function drawEarlier(choice) {
  const place = byId("compare-with");
  // The reader may be filling in the form.
  if (place.dataset.key === location.hash || place.contains(holder().closest("form"))) return;
  place.dataset.key = location.hash;
  const focused = holder().dataset.against;
  const known = EARLIER.map(([text, against]) =>
    nav(text, link({ against }), choice.against === against, { "data-against": against }),
  );
  const none = choice.against ? nav("none", link({ against: null }), false, { "data-against": "none" }) : null;
  put(place, known, other(choice), none);
  if (focused) find(place, `[data-against="${focused}"]`)?.focus();
}

/** @param {Choice} choice */
function other(choice) {
  const { from, to, against } = choice;
  const start = earlierStart(choice);
  const value = new Date(Number.isNaN(start) ? from - (to - from) : start).toISOString().slice(0, 19);
  const form = h(
    "form",
    { class: "pick", onsubmit: take },
    h("label", null, "From ", h("input", { type: "datetime-local", step: 1, name: "From", value })),
    h("button", null, "Compare"),
    h("span", { class: "hint", role: "status" }, "UTC"),
  );
  const isChosen = against !== null && !EARLIER.some(([, known]) => known === against);
  const summary = h("summary", { "data-against": "other", "aria-current": isChosen ? "true" : null }, "Choose…");
  return h("details", { class: "more", open: details()?.open, onkeydown: press }, summary, form);
}

function press(event) {
  if (event.key !== "Escape") return;
  event.stopPropagation();
  closeEarlier(true);
}

function take(event) {
  event.preventDefault();
  const start = Date.parse(`${event.target.elements.From.value}Z`);
  if (Number.isNaN(start)) return;
  closeEarlier(true);
  go({ against: iso(start) });
}

/**
 * Closes the form. If the reader has left it, the focus of its field goes to its button.
 * @param {boolean} isLeft
 */
export function closeEarlier(isLeft) {
  const form = details();
  if (!form?.open) return;
  form.open = false;
  if (isLeft) /** @type {HTMLElement} */ (form.firstElementChild).focus();
}

function about({ list, by }, answer) {
  if (!answer) return `Beside an earlier time of the same length, for ${comparable(list)}.`;
  const time = ({ window: { start, end, seconds }, windows, missing }) =>
    `${between(Date.parse(start), Date.parse(end))} (${plural(windows, "window")}, ${duration(seconds)}${
      missing?.length ? ", not all of it is known" : ""
    })`;
  const confidence = Math.round(answer.confidence * 10_000) / 100;
  const sure = confidence === 100 ? "bounds always hold" : `all bounds hold at ${confidence} %`;
  return `${answer.list}, by ${by}: ${time(answer.now)} beside ${time(answer.before)}; ${sure}.`;
}

function body(choice, answer, why) {
  if (!choice.against) return "";
  if (!answer) return why ? nothing(plain(why)) : hint("Asking weir for both times.");
  const { rows, uncertain, list } = answer;
  const named = rows.length + uncertain;
  const cut = rows.length > ROWS ? ` The ${ROWS} largest of ${rows.length} changes are shown.` : "";
  return [rows.length ? table(answer) : null, hint(`${rest(list, uncertain, named)}${cut}`)];
}

// How many keys are not among the changes.
function rest(list, uncertain, named) {
  if (named === 0) return `Neither time has any ${list}.`;
  if (uncertain === 0) return `All ${named} ${list} that the lists name have changed.`;
  return `${uncertain} of ${named} ${list} that the lists name may have stayed the same.`;
}

function table({ rows, now, before, by, list }) {
  const lengths = { now: now.window.seconds, before: before.window.seconds };
  const shown = rows.slice(0, ROWS);
  const full = Math.max(...shown.flatMap((row) => ["now", "before"].map((time) => row[time].upper / lengths[time])));
  const head = ["", "who", "now", "before"].map((name) => h("th", { scope: "col", class: name || "kind" }, name));
  const label = `Changes of ${list}`;
  return h(
    "table",
    { class: "changes", "aria-label": label },
    h("thead", null, h("tr", null, head)),
    h(
      "tbody",
      null,
      shown.map((row) => changeOf(row, { lengths, by, full, list })),
    ),
  );
}

function changeOf(row, { lengths, by, full, list }) {
  const fields = Object.entries(row).filter(([name]) => !NOT_KEY.has(name));
  const key = Object.fromEntries(fields.map(([name, value]) => [name, String(value)]));
  const [first, ...more] = show(key);
  const href = link({ key: question(key), list });
  const word = h("span", { class: row.change }, h("i", { "aria-hidden": "true" }, SIGNS[row.change]), row.change);
  return h(
    "tr",
    { "data-change": row.change, "data-key": question(key) },
    h("td", { class: "kind" }, word),
    h(
      "th",
      { scope: "row", class: "who" },
      h(
        "a",
        { href },
        first,
        more.map((text) => ` ${text}`),
      ),
    ),
    ["now", "before"].map((time) => side(time, row[time], { seconds: lengths[time], by, full })),
  );
}

/** @type {(time: string, of: Amount, how: {seconds: number, by: string, full: number}) => HTMLElement} */
function side(time, of, { seconds, by, full }) {
  const text = (/** @type {number} */ value) => rated(value, by, seconds);
  const told = words(of, text);
  const range = of.lower === of.upper ? told : `between ${text(of.lower)} and ${text(of.upper)}`;
  const rate = { value: (of.value ?? 0) / seconds, lower: of.lower / seconds, upper: of.upper / seconds };
  const attributes = { "data-lower": of.lower, "data-upper": of.upper, title: range };
  return h(
    "td",
    { class: time, "data-label": time },
    bar(rate, full, `${time}: ${range}`),
    number(of.value, told, attributes),
  );
}

function words({ value, lower, upper }, text) {
  if (value === null) return upper === 0 ? "nothing" : `≤ ${text(upper)}`;
  if (lower === upper) return text(value);
  return `${text(value)} (${text(lower)} to ${text(upper)})`;
}
