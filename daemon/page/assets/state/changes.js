// Tells what is drawn that something has changed, so that what fetches does not need to know what draws. `page.js`
// connects the two.

/** @typedef {"all" | "compared" | "open" | "past" | "second" | "time" | "usage"} Change */

/** @type {Map<Change, () => void>} */
const listeners = new Map();

/** @type {(what: Change, draw: () => void) => void} */
export const onChange = (what, draw) => {
  listeners.set(what, draw);
};

/** @type {(what: Change) => void} */
export const changed = (what) => listeners.get(what)?.();
