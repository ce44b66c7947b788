// The reader's choices. They are in the address bar, so that a link shows the same.

import { iso } from "../times.js";

// True if the numbers come from the reports that a collector has, and not from a running weir.
export const OF_REPORTS = document.documentElement.dataset.from === "reports";

const parameters = () => new URLSearchParams(location.hash.slice(1));

/**
 * @typedef {object} Choice
 * @property {string} list the name of a list; empty for that which the page begins with
 * @property {"bytes" | "packets"} by
 * @property {string} filter
 * @property {string | null} key the row whose details are open, as a question
 * @property {string} of the interface of the ledger
 * @property {boolean} isOpen whether the lists are of the open window
 * @property {boolean} isSpan whether a span of time is chosen: `from` and `to`, in milliseconds
 * @property {boolean} isWrong whether the address has a span that is none
 * @property {number} from 0 without a span
 * @property {number} to 0 without a span
 * @property {string | null} against the earlier time beside which the span stands: `before`, a number of days such as
 *   `7d`, or its start
 */

/** @returns {Choice} */
export function chosen() {
  const all = parameters();
  const [from, to] = ["from", "to"].map((name) => Date.parse(all.get(name) ?? ""));
  const isSpan = to > from;
  return {
    list: all.get("list") ?? "",
    by: all.get("by") === "packets" ? "packets" : "bytes",
    filter: all.get("filter") ?? "",
    key: all.get("key"),
    of: all.get("of") ?? "",
    isOpen: all.get("window") === "open" && !isSpan && !OF_REPORTS,
    isSpan,
    isWrong: !isSpan && (all.has("from") || all.has("to")),
    from: isSpan ? from : 0,
    to: isSpan ? to : 0,
    against: isSpan && !OF_REPORTS ? all.get("against") : null,
  };
}

const DAY = 86_400_000;

/**
 * When the earlier time begins beside which the span stands, in milliseconds; not a number if there is none.
 * @param {Choice} choice
 */
export function earlierStart({ from, to, against }) {
  if (against === "before") return from - (to - from);
  const days = /^(\d{1,4})d$/.exec(against ?? "")?.[1];
  return days ? from - Number(days) * DAY : Date.parse(against ?? "");
}

/**
 * The address with these changes to the choice; a change to null removes it.
 * @param {Record<string, string | null>} changes
 */
export function link(changes) {
  const all = parameters();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") all.delete(name);
    else all.set(name, value);
  }
  return `#${all}`;
}

/** @param {Record<string, string | null>} changes */
export function go(changes) {
  location.hash = link(changes);
}

/**
 * Changes the address without a step back to what it was.
 * @param {Record<string, string | null>} changes
 */
export const replace = (changes) => history.replaceState(null, "", link(changes));

/** The changes that choose a span, in whole seconds. */
export const toSpan = (/** @type {number} */ from, /** @type {number} */ to) => ({
  from: iso(Math.floor(from / 1000) * 1000),
  to: iso(Math.ceil(to / 1000) * 1000),
  key: null,
});

/** The changes that lead back to now. */
export const TO_NOW = { from: null, to: null, against: null };
