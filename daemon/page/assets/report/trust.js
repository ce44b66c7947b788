// Judges if a reader may rely on the numbers, with the rules and words of daemon/schema/src/trust.rs.
// A test compares both.

import { count, fixed, percent, sum } from "../units.js";

// In any other mode weir does not see the packets of an interface.
const MEASURED = new Set(["xdp-native", "xdp-generic", "tcx", "tc", "afpacket", "replay", "others"]);
// If the lists are about less than this share of the packets or bytes, that is a problem.
const LISTED_MIN = 0.99;
const NAMED_MAX = 3;

export const NOT_MEASURED = "not measured";
export const isMeasured = (mode) => MEASURED.has(mode);

const values = Object.values;
const share = (part, whole) => (whole === 0 ? 0 : part / whole);
/** @returns {{text: string, verdict: "good" | "bad" | "neutral"}} */
const judged = (isGood, text) => ({ text, verdict: isGood ? "good" : "bad" });
/** @returns {{text: string, verdict: "good" | "bad" | "neutral"}} */
const neutral = (text) => ({ text, verdict: "neutral" });

// Counts the directions of interfaces, and names those that are not measured, with the reason.
function attachment(all, reasonOf) {
  const known = all.map((one) => ({ ...one, reason: reasonOf(one) }));
  const missing = known.filter((one) => one.reason);
  const isWhole = (name) => known.every((one) => one.name !== name || one.reason);
  const label = (one) => `${one.name}${one.direction && !isWhole(one.name) ? ` ${one.direction}` : ""} (${one.reason})`;
  return {
    all: all.filter((one) => one.mode !== "replay").length,
    missing: missing.length,
    labels: [...new Set(missing.map(label))].sort(),
    isCapture: all.some((one) => one.mode === "replay"),
    hasTrouble: all.some((one) => one.trouble),
  };
}

const ofReport = (interfaces) =>
  attachment(interfaces, (one) => {
    if (!isMeasured(one.mode)) return one.mode;
    return one.unmeasured_seconds === undefined ? null : `for ${fixed(one.unmeasured_seconds, 0)} s`;
  });

function ofNow(second) {
  const now = attachment(second.interfaces, (one) => (isMeasured(one.mode) ? null : one.mode));
  return { ...now, hasTrouble: now.hasTrouble || (second.troubles ?? []).length > 0 };
}

// Returns true if nothing at all was measured in a window.
export function isNothing(interfaces) {
  const { all, missing } = ofReport(interfaces);
  return missing > 0 && missing === all && interfaces.every((one) => one.ledger.seen.packets === 0);
}

// Returns true if every interface was measured in a window.
export const isWhole = (interfaces) => ofReport(interfaces).missing === 0;

/**
 * All facts about these interfaces, the most important ones first. `second` is their last second if the numbers are
 * shown as those of now.
 * @returns {{text: string, verdict: "good" | "bad" | "neutral"}[]}
 */
export function facts(interfaces, second) {
  const then = ofReport(interfaces);
  const attached = second ? ofNow(second) : then;
  const isAll = then.missing === 0 && attached.missing === 0 && !then.hasTrouble && !attached.hasTrouble;
  const lost = sum(interfaces, (of) => sum(values(of.ledger.lost), (one) => one.packets));
  const all = [kept(interfaces, then, lost)];
  if (lost > 0) all.push(judged(false, `lost ${count(lost)}`));
  const losing = sum(second?.interfaces ?? [], (of) => of.lost?.packets ?? 0);
  if (losing > 0) all.push(judged(false, `now losing ${count(losing)}`));
  const blind = Math.max(0, ...interfaces.map((of) => of.blind_seconds ?? 0));
  if (blind > 0) all.push(judged(false, `BLIND ${fixed(blind, 1)} s`));
  if (attached.all > 0 || !attached.isCapture) {
    const now = attached.all - attached.missing;
    all.push(judged(now > 0 && attached.missing === 0, `attached ${now} of ${attached.all}`));
  }
  all.push(...notMeasured(attached));
  // It is measured again, but was not in the window.
  if (second && attached.missing === 0) all.push(...notMeasured(then));
  all.push(
    ...listed(interfaces),
    ...notCertain(interfaces),
    sampled(interfaces),
    ...covered(interfaces, then),
    balanced(interfaces),
  );
  return isAll ? all : all.map((fact) => (fact.verdict === "good" ? neutral(fact.text) : fact));
}

function kept(interfaces, { missing }, lost) {
  const seen = sum(interfaces, (of) => of.ledger.seen.packets);
  if (seen === 0) return neutral(missing > 0 ? "kept unknown" : "no packet seen");
  return judged(lost === 0, `kept ${percent(Math.max(0, 1 - lost / seen))}`);
}

function notMeasured({ labels }) {
  const more = labels.length - NAMED_MAX;
  const named = labels.slice(0, NAMED_MAX).join(", ");
  return labels.length === 0 ? [] : [judged(false, `${NOT_MEASURED}: ${named}${more > 0 ? ` and ${more} more` : ""}`)];
}

// How much of the packets and bytes the lists are about, and the largest reasons for the rest.
function listed(interfaces) {
  const { fed, left, reasons, isBound } = unlisted(interfaces);
  if (fed.packets === 0) return [];
  if (left.packets === 0) return [judged(true, "in lists 100.0 %")];
  const shares = (tally) => [share(tally.packets, fed.packets), share(tally.bytes, fed.bytes)];
  const [packets, bytes] = shares(left).map((one) => 1 - one);
  const isGood = Math.min(packets, bytes) >= LISTED_MIN;
  const text = `in lists ${isBound ? "at least " : ""}${percent(packets)} of packets, ${percent(bytes)} of bytes`;
  const byName = [...reasons].map(([reason, tally]) => ({ reason, shares: shares(tally) }));
  byName.sort((a, b) => (a.reason < b.reason ? -1 : 1));
  const why = largest(byName, isGood ? 1 : NAMED_MAX);
  return [judged(isGood, text), isGood ? neutral(why) : judged(false, why)];
}

// The packets and bytes that could be in lists (`fed`), those that are not (`left`), and why not. Packets that another
// interface has counted already may be the same that are not in lists: then what is left is an upper bound.
function unlisted(interfaces) {
  const fed = { ...NOTHING };
  const left = { ...NOTHING };
  const reasons = new Map();
  let isBound = false;
  for (const { ledger, repeated } of interfaces) {
    const again = repeated ?? NOTHING;
    const mine = { packets: ledger.seen.packets - again.packets, bytes: ledger.seen.bytes - again.bytes };
    const here = { ...NOTHING };
    for (const [reason, tally] of [...Object.entries(ledger.skipped), ...Object.entries(ledger.lost)]) {
      const part = least(tally, mine);
      if (part.packets === 0) continue;
      if (!reasons.has(reason)) reasons.set(reason, { ...NOTHING });
      add(reasons.get(reason), part);
      add(here, part);
    }
    add(fed, mine);
    add(left, least(here, mine));
    isBound ||= here.packets > 0 && (again.packets > 0 || again.bytes > 0);
  }
  return { fed, left, reasons, isBound };
}

const NOTHING = { packets: 0, bytes: 0 };

function add(to, one) {
  to.packets += one.packets;
  to.bytes += one.bytes;
}

const least = (one, most) => ({
  packets: Math.min(one.packets, most.packets),
  bytes: Math.min(one.bytes, most.bytes),
});

// So many of the largest reasons.
function largest(reasons, most) {
  const all = [...reasons].sort((a, b) => Math.max(...b.shares) - Math.max(...a.shares));
  const named = all.slice(0, most).map(({ reason, shares: [packets, bytes] }) => {
    return `${reason} ${percent(Math.max(packets, bytes))}${bytes > packets ? " of bytes" : ""}`;
  });
  const more = all.length - most;
  return `not in lists: ${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

// How many packets are not certain. It is a problem if they change more than a small share of the totals.
function notCertain(interfaces) {
  const uncertain = interfaces.map((of) => of.ledger.uncertain?.packets).filter(Boolean);
  if (uncertain.length === 0) return [];
  const [lower, upper] = [sum(uncertain, (of) => of.lower), sum(uncertain, (of) => of.upper)];
  const seen = sum(interfaces, (of) => of.ledger.seen.packets);
  const text = `uncertain: ${count(lower)} to ${count(upper)} packets`;
  return [upper - lower <= (1 - LISTED_MIN) * (seen + upper - lower) ? neutral(text) : judged(false, text)];
}

function sampled(interfaces) {
  const most = Math.max(1, ...interfaces.map((of) => of.sampling));
  return most === 1 ? judged(true, "unsampled") : neutral(`sampled 1 in ${most}`);
}

// The lowest coverage of all interfaces. The counters of weir and of the interface cannot be read at the same instant,
// so slightly more than 100 % is 100 %.
function covered(interfaces, { all }) {
  const known = interfaces
    .filter((of) => of.coverage !== undefined)
    .map(({ name, coverage, coverage_lower: lower, coverage_upper: upper }) => ({
      name,
      isLow: (upper ?? coverage) < 1,
      value: coverage >= 1 && (lower ?? coverage) <= 1 ? 1 : coverage,
    }));
  if (known.length === 0) return all > 0 ? [neutral("coverage unknown")] : [];
  const lowest = known.reduce((least, one) => (one.value < least.value ? one : least));
  const text = `coverage ${percent(lowest.value)}${lowest.value > 1 ? ": the interface counted fewer" : ""}`;
  return [lowest.isLow ? judged(false, `${text} (${lowest.name})`) : judged(true, text)];
}

// Checks that seen = attributed + sampled out + skipped + lost, for each interface, in packets and in bytes.
function balanced(interfaces) {
  const adds = ({ ledger }, unit) =>
    ledger.seen[unit] ===
    ledger.attributed[unit] +
      ledger.sampled_out[unit] +
      sum(values(ledger.skipped), (of) => of[unit]) +
      sum(values(ledger.lost), (of) => of[unit]);
  const isBalanced = interfaces.every((of) => adds(of, "packets") && adds(of, "bytes"));
  return judged(isBalanced, isBalanced ? "balanced: yes" : "balanced: NO");
}
