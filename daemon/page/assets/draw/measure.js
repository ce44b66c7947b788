// How the numbers of a list are written, with their bounds.

import { ordering } from "../report/lists.js";
import { count, percent, rated, scaled } from "../units.js";
import { number } from "./dom.js";

/** @import { List } from "../report/lists.js" */

export class Measure {
  /**
   * @param {Pick<List, "counted"> & Partial<List>} list
   * @param {"bytes" | "packets"} by
   * @param {number} seconds
   */
  constructor(list, by, seconds, isSpan = false) {
    this.list = list;
    this.by = by;
    this.isSpan = isSpan;
    this.seconds = seconds;
  }

  text(value) {
    if (this.list.counted) return count(value);
    return rated(value, this.by, this.seconds);
  }

  // How far the truth may be from the number, in short. Most numbers are lower bounds: the truth is not below them.
  error(of) {
    const [less, more] = [of.value - of.lower, of.upper - of.value];
    if (less === 0 && more === 0) return "exact";
    if (less === 0) return `+${this.text(more)}`;
    if (more === 0) return `−${this.text(less)}`;
    // Bounds that are far away on one side are no ±.
    return more > of.value ? `≤ ${this.text(of.upper)}` : `±${this.text(Math.max(less, more))}`;
  }

  // The same in words, without the number and with it.
  note(of) {
    if (of.lower === of.upper) return "exact";
    if (of.value === of.lower) return `at least, up to ${this.text(of.upper - of.value)} more`;
    return `between ${this.text(of.lower)} and ${this.text(of.upper)}`;
  }

  range(of) {
    if (of.lower === of.upper) return `exactly ${this.text(of.value)}`;
    if (of.value !== of.lower) return this.note(of);
    return `at least ${this.text(of.value)}, up to ${this.text(of.upper - of.value)} more`;
  }

  share(amount) {
    if (this.list.counted) return "";
    const whole = this.list.whole?.[this.by];
    return whole ? percent(ordering(amount, this.by).value / whole) : "";
  }

  // Of what the shares are.
  get sharesOf() {
    return this.list.isOfView ? "of view" : "of all";
  }

  // Beside the rate: how much it was in a span, and else its rate in the other unit.
  get besides() {
    return this.isSpan ? "total" : this.by === "packets" ? "bytes" : "packets";
  }

  other(amount) {
    if (this.list.counted) return null;
    if (this.isSpan) {
      const of = ordering(amount, this.by);
      const text = (value) => scaled(value, this.by === "packets" ? "pkt" : "B");
      const isExact = of.lower === of.upper;
      const title = isExact ? "exact" : `at least ${text(of.lower)}, at most ${text(of.upper)}`;
      return number(of.value, text(of.value), { title, "data-amount": true });
    }
    const { value } = amount[this.besides];
    return number(value, rated(value, this.besides, this.seconds));
  }

  about() {
    const what = this.list.counted ?? this.by;
    if (!this.list.rows?.length) return "";
    const confidence = Math.round((this.list.confidence ?? 0) * 10_000) / 100;
    const isSure = confidence === 100;
    return `by ${what}; ${isSure ? "bounds always hold" : `all bounds of this list hold at ${confidence} %`}`;
  }
}
