// The data that weir or the collector has sent so far. `fetch/` fills this in, and `draw/` shows it.

import { plain } from "../times.js";
import { Delay } from "./delay.js";
import { Rates } from "./rates.js";

/** @import { Choice } from "./address.js" */
/**
 * A report, or another answer of weir, as docs/REPORT.md has it.
 * @typedef {any} Report
 */

// How many reports are kept, to draw what came before.
const EARLIER = 60;

// The last hour of each interface.
export const rates = new Rates();

export const now = {
  /**
   * The last message of the stream.
   * @type {Report | null}
   */
  second: null,
  /**
   * The last report.
   * @type {Report | null}
   */
  last: null,
  /**
   * The last report when the page was drawn: all parts change to a new report at once.
   * @type {Report | null}
   */
  drawn: null,
  /** @type {Report[]} */
  earlier: [],
  // Why there is no report.
  why: "waiting for the first answer",
  /**
   * Why the charts know nothing from before the page was opened.
   * @type {string | null}
   */
  pastWhy: null,

  /**
   * Adds reports, the oldest first.
   * @param {Report[]} reports
   */
  take(reports) {
    for (const report of reports.filter((one) => !this.earlier.some((known) => known.id === one.id))) {
      this.earlier.push(report);
    }
    this.earlier.splice(0, this.earlier.length - EARLIER);
    this.last = this.earlier.at(-1);
  },
};

// The lists of the open window, or why there are none.
export const open = {
  /** @type {Report | null} */
  report: null,
  /** @type {string | null} */
  why: null,
};

// The span of time that is chosen.
export const span = {
  /**
   * Which one was asked for.
   * @type {string | null}
   */
  name: null,
  /** @type {Report | null} */
  report: null,
  /**
   * Why there is no report.
   * @type {string | null}
   */
  why: null,
  /**
   * The report that its charts show.
   * @type {Report | null}
   */
  past: null,
  /**
   * Why they show nothing.
   * @type {string | null}
   */
  pastWhy: null,

  /** @param {string | null} name */
  begin(name) {
    this.name = name;
    this.report = null;
    this.why = null;
    this.past = null;
    this.pastWhy = null;
  },
};

// What has changed since an earlier time.
export const comparison = {
  /**
   * Which one was asked for.
   * @type {string | null}
   */
  name: null,
  /** @type {Report | null} */
  answer: null,
  /**
   * Why there is no answer.
   * @type {string | null}
   */
  why: null,

  /** @param {string | null} name */
  begin(name) {
    this.name = name;
    this.answer = null;
    this.why = null;
  },
};

// What each interface, own network and own host has carried in this month and in the last one, if weir counts that.
export const usage = {
  /** @type {Report | null} */
  months: null,
  /** @type {Report | null} */
  networks: null,
  /** @type {Report | null} */
  hosts: null,
};

// The state of the connection: if answers arrive, and why not.
export const connection = {
  isLive: false,
  /**
   * Since when there is none, and why.
   * @type {{at: number, why: string} | null}
   */
  broken: null,
  /**
   * The collector's answer if it does not know the router.
   * @type {string | null}
   */
  unknown: null,
  /**
   * The collector's facts about the router.
   * @type {Report | null}
   */
  router: null,
  delay: new Delay(),

  made() {
    this.isLive = true;
    this.broken = null;
  },

  /** @param {string} why */
  lost(why) {
    this.broken = { at: this.broken?.at ?? Date.now(), why };
  },

  // True if the collector considers the router late.
  get isLate() {
    return Boolean(this.router?.is_late && this.router.last);
  },
};

// When the last window ended: times that end now end with it.
export const lastEnd = () => (now.last ? Date.parse(now.last.window.end) : Date.now());

/**
 * Returns the report that the lists show, or the reason why there is none.
 * @param {Choice} choice
 * @returns {{report: Report | null, why: string}}
 */
export function subject(choice) {
  if (choice.isSpan) {
    return { report: span.report, why: span.why ? plain(span.why) : "asking weir for these windows" };
  }
  if (choice.isOpen) return { report: open.report, why: open.why ?? "asking weir for the open window" };
  return { report: now.drawn, why: now.why };
}

/**
 * A report with all its parts: of the open window only the lists are known, so the rest is of the last one.
 * @param {Choice} choice
 * @returns {Report | null}
 */
export function complete(choice) {
  const { report } = subject(choice);
  if (report?.interfaces) return report;
  return choice.isSpan ? null : now.drawn;
}
