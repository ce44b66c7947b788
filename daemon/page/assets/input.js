// Handles the input of the reader: keys, clicks, and changes of the address.

import { drawChosen } from "./draw/all.js";
import { closeEarlier } from "./draw/compare.js";
import { byId, find, targetOf } from "./draw/dom.js";
import { drawLists } from "./draw/lists.js";
import { closeTimes } from "./draw/times.js";
import { loadComparison } from "./fetch/compare.js";
import { loadOpen } from "./fetch/open.js";
import { loadSpan } from "./fetch/span.js";
import { chosen, go, OF_REPORTS, replace, TO_NOW } from "./state/address.js";

const [list, filter, tabs] = ["list", "filter", "tabs"].map(byId);
const detail = /** @type {HTMLDialogElement} */ (byId("detail"));
const firstRow = () => find(list, "tbody a");
const isDialogOpen = () => document.querySelector("dialog[open]") !== null;

export function listen() {
  document.addEventListener("keydown", press);
  addEventListener("hashchange", () => {
    closeTimes(false);
    loadSpan().then(loadComparison);
    loadOpen();
    drawChosen();
  });
  filter.addEventListener("input", () => {
    replace({ filter: /** @type {HTMLInputElement} */ (filter).value });
    drawLists(chosen());
  });
  const ledger = /** @type {HTMLSelectElement} */ (byId("ledger-of"));
  ledger.addEventListener("change", () => go({ of: ledger.value }));
  byId("help-button").addEventListener("click", help);
  // A click elsewhere closes the choice of a time.
  document.addEventListener("pointerdown", (event) => {
    if (!targetOf(event).closest("#spans details")) closeTimes(false);
    if (!targetOf(event).closest("#compare details")) closeEarlier(false);
  });
  find(document, "[data-skip]")?.addEventListener("click", (event) => {
    event.preventDefault();
    byId("lists").focus();
  });
  document.querySelectorAll("dialog").forEach(listenToDialog);
  detail.addEventListener("close", leaveDetail);
}

/** @param {HTMLDialogElement} dialog */
function listenToDialog(dialog) {
  find(dialog, "[data-close]")?.addEventListener("click", () => dialog.close());
  // A click beside it closes it, too.
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}

function leaveDetail() {
  const { key } = chosen();
  if (!key) return;
  // The way back does not open them again.
  replace({ key: null });
  drawChosen();
  // A link in the details may have led to a key that this list does not have.
  const row = find(list, `tr[data-key="${CSS.escape(key)}"] a`) ?? firstRow();
  (row ?? byId("lists")).focus();
}

function help() {
  closeTimes(false);
  /** @type {HTMLDialogElement} */ (byId("help")).showModal();
}

/** @param {KeyboardEvent} event */
function press(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const target = targetOf(event);
  if (event.key === "Escape") {
    leaveFilter(target);
    return;
  }
  if (target === filter && (event.key === "Enter" || event.key === "ArrowDown")) {
    firstRow()?.focus();
    event.preventDefault();
    return;
  }
  if (target.matches("input, select, textarea") || isDialogOpen()) return;
  const act = actionOf(event.key, target);
  if (!act) return;
  act();
  event.preventDefault();
}

function leaveFilter(target) {
  if (target === filter) filter.blur();
  else if (isDialogOpen()) return;
  if (chosen().filter) go({ filter: null });
}

// Returns the action of a key; undefined if it does nothing here.
function actionOf(key, target) {
  if (/^[0-9]$/.test(key)) return () => chooseTab((Number(key) + 9) % 10);
  if (key === "ArrowDown") return target.closest("tr[data-key], .chart") ? undefined : () => firstRow()?.focus();
  if (key === "o" && OF_REPORTS) return undefined;
  return ACTIONS[key];
}

/** @type {Record<string, () => void>} */
const ACTIONS = {
  b: () => go({ by: null }),
  p: () => go({ by: "packets" }),
  l: () => go(TO_NOW),
  o: () => go({ window: chosen().isOpen ? null : "open" }),
  "/": () => filter.focus(),
  "?": help,
};

function chooseTab(nth) {
  const name = /** @type {HTMLElement | undefined} */ (tabs.children[nth])?.dataset.list;
  if (name) go({ list: nth === 0 ? null : name });
}
