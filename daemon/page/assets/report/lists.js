// The lists of a report, or of a union of several, all in one shape. Each of them has a tab. The server says which
// standard lists there are: they are those of `weir top`.

import { STANDARD } from "./standard.js";

/** @import { Key } from "./key.js" */

/** @typedef {{value: number, lower: number, upper: number}} Bounded an estimate with its bounds */
/** @typedef {{packets?: Bounded, bytes?: Bounded, count?: Bounded}} Amount a count, or packets and bytes */
/** @typedef {{rank?: number, key: Key, amount: Amount}} Row */
/**
 * @typedef {object} List
 * @property {string} name
 * @property {string} [about] what it has, in a sentence
 * @property {Record<string, number>} whole the packets and bytes that shares are of
 * @property {boolean} [isOfView] whether these are of its view alone
 * @property {string | null} counted what it counts, if not packets and bytes
 * @property {number} [confidence] with which all its bounds hold together
 * @property {Row[]} rows
 * @property {boolean} [isLeftOut] whether it cannot be added up, or is not known yet
 * @property {boolean} [isChanged] whether its view asked another question in a part of the time
 * @property {string} [view] the view it is of
 * @property {string} [question] what that asked
 * @property {string} [place] the interface and direction, if the view has a table for each
 */

/**
 * The list that is shown until the reader chooses one: hosts, if there are any.
 * @param {List[]} all
 */
export const initial = (all) => all.find(({ name, rows }) => name !== "hosts" || rows.length > 0) ?? all[0];

const FIELDS = new Set(STANDARD.map(({ field }) => field));
// The fields of a row that are not part of its key.
const NOT_KEY = new Set("rank view packets bytes flows new_flows distinct beyond members down up peers".split(" "));

// The lists of one time that weir compares with those of another.
const COMPARABLE = new Set(["sources", "destinations", "pairs", "flows", "services"]);

/** The list that is compared where this one is chosen. */
export const comparable = (/** @type {string} */ name) => (COMPARABLE.has(name) ? name : "sources");

/**
 * @param {any} report
 * @param {"bytes" | "packets"} by
 * @returns {List[]}
 */
export function lists(report, by) {
  const whole = { packets: report.totals?.packets, bytes: report.totals?.bytes };
  // A union leaves some lists out, and the open window does not know all of them yet.
  const leftOut = [...(report.left_out ?? []), ...(report.not_yet ?? [])];
  return [
    ...standard(report, by, whole, new Set(leftOut)),
    ...spread(report, whole),
    ...(report.views ?? []).flatMap((view) => ofView(view, whole)),
    ...leftOut.filter((name) => !FIELDS.has(name)).map((name) => viewWithout(name, report, whole)),
  ];
}

function standard(report, by, whole, leftOut) {
  const top = (by === "packets" ? report.top_by_packets : report.top) ?? {};
  return STANDARD.filter(({ counted }) => !counted).map(({ name, field, key, about }) => ({
    name,
    about,
    whole,
    confidence: top.confidence,
    counted: null,
    isLeftOut: leftOut.has(field),
    rows: (top[field] ?? []).map((row) => ({
      rank: row.rank,
      key: pick(row, key),
      amount: row.beyond ? sums(row.beyond) : amountOf(row),
    })),
  }));
}

// Every busy host is in these lists: only a number that is unusual for it is news.
const spread = (report, whole) =>
  STANDARD.filter(({ counted }) => counted).map(({ name, field, counted, about }) => ({
    name,
    about,
    whole,
    counted,
    confidence: report.spread?.confidence,
    isLeftOut: !report.spread,
    rows: (report.spread?.[field] ?? []).map(ofRow),
  }));

// A view has one table, or one for each interface and direction.
function ofView(view, whole) {
  const tables = view.tables ?? [{ total: view.total, rows: view.rows ?? [] }];
  const by = view.by?.length ? `by ${view.by.join(", ")}` : "all together";
  return tables.map(({ interface: name, direction, total, rows }) => {
    const place = name ? `${name} ${direction ?? ""}`.trim() : "";
    return {
      name: `${view.name} ${place}`.trimEnd(),
      view: view.name,
      question: view.question,
      place,
      about: `The view ${view.name}: ${by}${place ? `, ${place} alone` : ""}`,
      confidence: view.confidence,
      whole: total ? { packets: total.packets.value, bytes: total.bytes.value } : whole,
      isOfView: Boolean(total),
      counted: countedBy(view.measure),
      rows: (rows ?? []).map(ofRow),
    };
  });
}

// The tab of a view whose rows are not in this report.
const viewWithout = (name, { changed }, whole) => ({
  name,
  view: name,
  whole,
  counted: null,
  rows: [],
  isLeftOut: true,
  isChanged: (changed ?? []).includes(name),
});

const pick = (row, fields) => Object.fromEntries(fields.map((field) => [field, String(row[field])]));
const sums = (row) => ({ packets: row.packets, bytes: row.bytes });
// A host has more numbers.
const amountOf = (row) =>
  row.peers ? { ...sums(row), down: row.down, up: row.up, flows: row.flows, peers: row.peers } : sums(row);

/**
 * A row of a view or of a list that counts, and of an answer to a question.
 * @param {any} row
 * @returns {Row}
 */
export function ofRow(row) {
  const fields = Object.entries(row).filter(([name]) => !NOT_KEY.has(name));
  const key = Object.fromEntries(fields.map(([name, value]) => [name, String(value)]));
  const counted = row.distinct ?? row.flows ?? row.new_flows;
  return { rank: row.rank, key, amount: row.bytes ? amountOf(row) : { count: counted } };
}

// Names the unit that a view counts; null for packets and bytes.
function countedBy(measure) {
  if (["bytes", "packets", "hosts"].includes(measure)) return null;
  if (typeof measure === "string") return measure.replaceAll("_", " ");
  return `different ${(measure?.distinct ?? []).join(", ")}`;
}

/**
 * Returns the number that orders a list.
 * @param {Amount} amount
 * @param {"bytes" | "packets"} by
 */
export const ordering = (amount, by) => /** @type {Bounded} */ (amount.count ?? amount[by]);

/**
 * Returns true if a standard list of addresses, flows or services has such keys.
 * @param {Key} key
 */
export function isStandard(key) {
  const isOf = (fields) => fields.length === Object.keys(key).length && fields.every((name) => key[name] !== undefined);
  return STANDARD.some((list) => list.addsUp && isOf(list.key));
}

/** The view whose list is chosen, if it is one of a view. */
export const viewOf = (report, { list: name, by }) => lists(report, by).find((list) => list.name === name)?.view;
