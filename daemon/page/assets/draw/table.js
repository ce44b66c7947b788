// A list as a table.

import { nameOf, show } from "../report/key.js";
import { ordering } from "../report/lists.js";
import { count } from "../units.js";
import { bar } from "./chart/bars.js";
import { estimate, find, h, holder, nothing, put } from "./dom.js";

/** @import { List, Row } from "../report/lists.js" */
/** @import { Measure } from "./measure.js" */

// How many rows are made between two frames at most, and for how many milliseconds; and how many there are before the
// reader comes near their end.
const CHUNK = 40;
const BUDGET = 8;
const SCREENFUL = 40;
// The classes of columns of another width.
const COLUMNS = {
  total: "other total",
  rate: "strong",
  error: "error",
  "of all": "share",
  "of view": "share",
  packets: "other",
  bytes: "other",
  down: "direction",
  up: "direction",
  peers: "peers",
};

function columnsOf(list, measure) {
  if (list.counted) return [list.view ? "count" : list.counted, "error"];
  if (list.rows.some(({ amount }) => amount.peers)) {
    return ["rate", "error", "down", "up", "peers", measure.sharesOf];
  }
  return ["rate", "error", measure.sharesOf, measure.besides];
}

// The cells of a host's directions and peers.
function ofHost({ down, up, peers }, measure, cell) {
  // Narrow screens have no heads, so each cell has its name.
  const number = (name, of, text, title) => {
    const kind = `n ${COLUMNS[name]}`;
    return of
      ? h("td", { class: kind, role: "cell", title, "data-label": name }, estimate(of, text(of.value)))
      : cell(kind);
  };
  const direction = (name, sums) => {
    const of = sums?.[measure.by];
    return number(name, of, (value) => measure.text(value), of && measure.range(of));
  };
  const isExact = peers && peers.lower === peers.upper;
  const about = isExact ? "exact" : `between ${count(peers?.lower ?? 0)} and ${count(peers?.upper ?? 0)}`;
  return [direction("down", down), direction("up", up), number("peers", peers, count, about)];
}

// Rows are made by parts, and only as far as the reader has come, so that a long list does not hold up the page.
export class Table {
  /**
   * @param {HTMLElement} place
   * @param {(key: string) => void} open opens the details of a row
   */
  constructor(place, open) {
    this.place = place;
    this.open = open;
    this.turn = 0;
    this.wanted = SCREENFUL;
    // The rows, none where a text says why, and the number at the end of the scale.
    /** @type {HTMLTableSectionElement | null} */
    this.body = null;
    this.full = h("span", null);
    this.isFilling = false;
    this.more = h("button", { type: "button", class: "more", onclick: () => this.extend(Infinity) });
    // Near the end of the rows that are there, the next ones are made.
    this.near = new IntersectionObserver(
      (all) => {
        if (all[all.length - 1].isIntersecting) this.extend(SCREENFUL);
      },
      { rootMargin: "400px" },
    );
    place.addEventListener("keydown", (event) => this.press(event));
    place.addEventListener("click", (event) => this.click(event));
  }

  // Says why there are no rows.
  showNothing(why) {
    this.turn += 1;
    this.body = null;
    this.isFilling = false;
    put(this.place, nothing(why));
  }

  /**
   * @param {List} list
   * @param {Measure} measure
   * @param {(question: string) => string} link the address of a row's details
   * @param {(Row & {question: string})[]} rows at least one
   */
  show(list, measure, link, rows) {
    const focused = this.focused();
    this.turn += 1;
    const columns = columnsOf(list, measure);
    const isLong = show(rows[0].key).length > 1;
    const shape = `${list.name} ${columns} ${isLong}`;
    if (!this.body || this.shape !== shape) {
      this.shape = shape;
      this.wanted = SCREENFUL;
      this.begin(list, columns, isLong);
    }
    const full = Math.max(...rows.map((row) => ordering(row.amount, measure.by).upper));
    put(this.full, measure.text(full));
    this.drawing = { rows, how: { measure, full, link, columns }, turn: this.turn, focused };
    this.fill(0);
  }

  // The row that has the focus.
  focused() {
    const row = /** @type {HTMLTableRowElement | null} */ (holder().closest("tr[data-key]"));
    if (row && this.place.contains(row)) return { key: row.dataset.key, at: row.sectionRowIndex };
    // A drawing that is interrupted may have replaced the row with the focus already.
    return this.isFilling && holder() === document.body ? this.drawing.focused : null;
  }

  begin(list, columns, isLong) {
    this.full = h("span", null);
    this.body = h("tbody", { role: "rowgroup" });
    const head = (name, kind) => h("th", { scope: "col", class: kind, role: "columnheader" }, name);
    const heads = [
      head("#", "rank"),
      head("who", "who"),
      head([h("span", { class: "zero" }, "0"), this.full], "scale"),
      columns.map((name) => head(name, `n ${COLUMNS[name] ?? ""}`)),
    ];
    const ofHosts = columns.includes("peers") ? " hosts" : "";
    const kind = `rows${list.counted ? " counted" : ""}${isLong ? " long" : ""}${ofHosts}`;
    const top = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads));
    put(this.place, h("table", { class: kind, role: "table", "aria-label": list.name }, top, this.body), this.more);
  }

  // Makes so many more rows.
  extend(count) {
    if (!this.body || this.body.rows.length >= this.drawing.rows.length) return;
    this.wanted = this.body.rows.length + count;
    if (!this.isFilling) this.fill(this.body.rows.length);
  }

  fill(from, of = this.drawing) {
    const { rows, how, turn, focused } = of;
    const { body } = this;
    if (turn !== this.turn || !body) return;
    const end = Math.min(rows.length, this.wanted);
    const began = performance.now();
    let nth = from;
    for (; nth < Math.min(end, from + CHUNK) && performance.now() - began < BUDGET; nth++) {
      const made = this.row(rows[nth], how);
      const old = body.rows[nth];
      if (old) old.replaceWith(made);
      else body.append(made);
      if (focused?.key === made.dataset.key) this.refocus(made);
    }
    this.isFilling = nth < end;
    this.place.ariaBusy = String(this.isFilling);
    if (this.isFilling) {
      requestAnimationFrame(() => this.fill(nth, of));
      return;
    }
    while (body.rows.length > end) body.deleteRow(-1);
    this.more.hidden = end === rows.length;
    put(this.more, `Show all ${rows.length} rows`);
    // Observed anew, it says whether it is still near.
    this.near.unobserve(this.more);
    if (!this.more.hidden) this.near.observe(this.more);
    if (!focused) return;
    // The row with the focus may have moved up; if it is gone, the one in its place gets the focus.
    const row = find(body, `tr[data-key="${CSS.escape(focused.key)}"]`);
    this.refocus(row ?? body.rows[Math.min(focused.at, body.rows.length - 1)]);
  }

  // A row that was replaced has lost the focus. It does not take it from where the reader has gone meanwhile.
  refocus(row) {
    if (holder() === document.body) row?.querySelector("a").focus({ preventScroll: true });
  }

  row({ rank, key, amount, question }, { measure, full, link, columns }) {
    const of = ordering(amount, measure.by);
    const cell = (name, ...children) => h("td", { class: name, role: "cell" }, children);
    const [first, ...more] = show(key);
    const named = nameOf(key);
    const who = named ? [named.name, " ", h("span", { class: "to", title: `name: ${named.source}` }, first)] : first;
    const to = more.map((text) => [" ", h("span", { class: "to" }, text)]);
    return h(
      "tr",
      { "data-key": question, role: "row" },
      cell("rank", String(rank ?? "")),
      h("th", { scope: "row", class: "who", role: "rowheader" }, h("a", { href: link(question) }, who, to)),
      cell("scale", bar(of, full, measure.range(of))),
      cell("n strong", estimate(of, measure.text(of.value))),
      h("td", { class: "n error", role: "cell", title: measure.range(of) }, measure.error(of)),
      columns.includes("peers") ? ofHost(amount, measure, cell) : null,
      columns.includes(measure.sharesOf) ? cell("n share", measure.share(amount)) : null,
      columns.includes(measure.besides) ? cell(`n ${COLUMNS[measure.besides]}`, measure.other(amount)) : null,
    );
  }

  click(event) {
    const row = event.target.closest("tr[data-key]");
    // A click that selects text does not open the row.
    if (row && !event.target.closest("a") && String(getSelection()) === "") this.open(row.dataset.key);
  }

  press(event) {
    const row = event.target.closest("tr[data-key]");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!row || !step) return;
    if (step > 0 && !row.nextElementSibling) this.extend(SCREENFUL);
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    next?.querySelector("a")?.focus();
    event.preventDefault();
  }
}
