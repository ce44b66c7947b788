// Everything about one row: its rate over time, what all views say of it, the lists that have it, and how to ask weir
// for more.

import { askKey } from "../fetch/key.js";
import { nameOf, question, readQuestion, related, show } from "../report/key.js";
import { lists, ofRow, ordering } from "../report/lists.js";
import { viewAbout } from "../report/view.js";
import { windowText } from "../report/window.js";
import { link, OF_REPORTS } from "../state/address.js";
import { subject } from "../state/known.js";
import { iso } from "../times.js";
import { bar } from "./chart/bars.js";
import { byId, estimate, find, h, hint, holder, nothing, put } from "./dom.js";
import { Measure } from "./measure.js";
import { drawOverTime } from "./over-time.js";

/** @import { Choice } from "../state/address.js" */
/** @import { Key } from "../report/key.js" */

// How many rows of a list are shown at most.
const ROWS = 8;

const dialog = /** @type {HTMLDialogElement} */ (byId("detail"));
/**
 * The subject of the dialog. An answer about another subject comes too late.
 * @type {string | null}
 */
let about = null;

/** @param {Choice} choice */
export function drawDetail(choice) {
  const name = choice.key ? `${choice.key} ${choice.from} ${choice.to} ${choice.by}` : null;
  if (choice.key && name === about) drawTitle(readQuestion(choice.key));
  // The lists come first: it tells what of them belongs to the key.
  if (name === about || (name && !subject(choice).report)) return;
  about = name;
  if (choice.key) open(choice, readQuestion(choice.key));
  else dialog.close();
}

/**
 * The key, with its name as soon as that is known.
 * @param {Key} key
 */
function drawTitle(key) {
  const named = nameOf(key);
  const title = show(key).join(" ");
  put(byId("detail-title"), named ? `${named.name} (${named.source}) ${title}` : title);
}

/**
 * @param {Choice} choice
 * @param {Key} key
 */
function open(choice, key) {
  const name = about;
  const isWanted = () => about === name;
  const hadFocus = dialog.contains(holder());
  const over = h("div", null);
  const time = h("small", { class: "time" });
  // Only the router itself knows more than its reports, and only of the last window.
  const isAsked = !OF_REPORTS && !choice.isSpan;
  const known = h("div", null, hint("Asking weir."));
  const listed = h("small", { class: "time" }, windowText(choice, subject(choice).report));
  drawTitle(key);
  put(
    byId("detail-body"),
    h("section", { class: "over-time" }, h("h3", null, "Over time"), over),
    isAsked ? h("section", null, h("h3", null, "In all views, listed or not ", time), known) : null,
    h("section", null, h("h3", null, "In the lists ", listed), inLists(key, choice)),
    asView(viewAbout(key, choice.list, choice.by)),
    inTerminal(choice),
  );
  if (!dialog.open) dialog.showModal();
  // A link to another row within the details goes away with them.
  else if (hadFocus && !dialog.contains(holder())) find(dialog, "[data-close]")?.focus();
  drawOverTime(key, choice, over, isWanted);
  if (isAsked) drawAnswers(choice, time, known, isWanted);
}

function asView(yaml) {
  const how = hint(
    "Add it to ",
    h("code", null, "views:"),
    " in weir.yaml",
    OF_REPORTS ? " of the router" : "",
    ", then ",
    h("code", null, "systemctl reload weir"),
    ".",
  );
  return h("section", { class: "yaml" }, h("h3", null, "Make this a view"), how, ...copied(yaml));
}

function inTerminal({ isSpan, from, to, key }) {
  const command = isSpan ? `weir report --from ${iso(from)} --to ${iso(to)}` : `weir ask '${key}'`;
  const here = isSpan ? "The lists of this time in a terminal" : "The same in a terminal";
  const title = OF_REPORTS ? "More, in a terminal of the router" : here;
  return h("section", { class: "yaml" }, h("h3", null, title), ...copied(command));
}

// A text, and a button that copies it.
const copied = (text) => [
  h("pre", { tabindex: "0" }, text),
  h("button", { type: "button", class: "copy", onclick: (event) => copy(event.target, text) }, "Copy"),
];

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    put(button, "Copied");
  } catch {
    getSelection()?.selectAllChildren(button.parentElement.querySelector("pre"));
    put(button, "Selected: press Ctrl-C");
  }
}

async function drawAnswers({ key, by }, time, place, isWanted) {
  try {
    const asked = await askKey(key);
    if (!isWanted()) return;
    put(time, windowText({}, asked));
    put(place, answers(asked, by));
  } catch (error) {
    if (isWanted()) put(place, nothing(error.message));
  }
}

function answers({ answers: rows, window: { seconds } }, by) {
  if (rows.length === 0) return nothing("No view knows such a key.");
  const all = rows.map((row) => answer(row.view, ofRow(row), seconds, by));
  return h("table", { class: "plain answers" }, h("tbody", null, all));
}

function answer(view, { key, amount }, seconds, by) {
  const counted = amount.count ? view.replaceAll("_", " ") : null;
  const measure = new Measure({ counted }, by, seconds);
  const of = ordering(amount, by);
  return h(
    "tr",
    { "data-view": view },
    h("th", { scope: "row" }, view, h("small", null, ` ${show(key).join(" ")}`)),
    h("td", { class: "scale" }, bar(of, of.upper, measure.range(of))),
    h("td", null, estimate(of, measure.text(of.value)), h("small", null, ` ${measure.note(of)}`)),
  );
}

// The rows of all lists that have to do with the key.
function inLists(key, choice) {
  const { report } = subject(choice);
  if (!report) return nothing("There are no lists yet.");
  const rows = lists(report, choice.by).flatMap((list) => {
    const measure = new Measure(list, choice.by, report.window.seconds, choice.isSpan);
    const mine = list.rows.filter((row) => related(key, row.key)).slice(0, ROWS);
    return mine.map((row) => listed(list, row, measure, choice));
  });
  if (rows.length === 0) return nothing("No list of this window has it.");
  return h("table", { class: "plain related" }, h("tbody", null, rows));
}

function listed(list, { key, amount }, measure, { by, isSpan }) {
  const of = ordering(amount, by);
  const href = link({ key: question(key), list: list.name });
  const ofView = list.isOfView ? h("small", null, " of view") : null;
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, list.name),
    h("td", { class: "who" }, h("a", { href }, show(key).join(" "))),
    h("td", { class: "n" }, estimate(of, measure.text(of.value))),
    h("td", { class: "n", title: measure.range(of) }, measure.error(of)),
    h("td", { class: "n", title: measure.sharesOf }, measure.share(amount), ofView),
    isSpan ? h("td", { class: "n" }, measure.other(amount)) : null,
  );
}
