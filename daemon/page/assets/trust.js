// Whether a reader may rely on the numbers: the rules and words of daemon/report/src/trust.rs. A test compares the two.

import { count, fixed, percent } from "./units.js";

// In any other mode weir does not see the packets of an interface.
const MEASURED = new Set(["xdp-native", "xdp-generic", "tcx", "tc", "afpacket", "replay", "others"]);
// If the lists are about less than this share of the packets or bytes, that is a problem.
const LISTED_MIN = 0.99;
const NAMED_MAX = 3;

export const NOT_MEASURED = "not measured";
export const isMeasured = (mode) => MEASURED.has(mode);

const sum = (all, of) => all.reduce((total, one) => total + of(one), 0);
const values = Object.values;
const share = (part, whole) => (whole === 0 ? 0 : part / whole);
const judged = (isGood, text) => ({ text, verdict: isGood ? "good" : "bad" });
const neutral = (text) => ({ text, verdict: "neutral" });

// What is attached: how many directions of interfaces there are, and which of them are not measured, and why.
function attachment(all, reasonOf) {
  const known = all.map((one) => ({ ...one, reason: reasonOf(one) }));
  const missing = known.filter((one) => one.reason);
  const isWhole = (name) => known.every((one) => one.name !== name || one.reason);
  const label = (one) => `${one.name}${one.direction && !isWhole(one.name) ? ` ${one.direction}` : ""} (${one.reason})`;
  return {
    all: all.filter((one) => one.mode !== "replay").length, missing: missing.length, labels: [...new Set(missing.map(label))].sort(),
    isCapture: all.some((one) => one.mode === "replay"), hasTrouble: all.some((one) => one.trouble),
  };
}

const ofReport = (interfaces) => attachment(interfaces, (one) => {
  if (!isMeasured(one.mode)) return one.mode;
  return one.unmeasured_seconds === undefined ? null : `for ${fixed(one.unmeasured_seconds, 0)} s`;
});

function ofNow(second) {
  const now = attachment(second.interfaces, (one) => (isMeasured(one.mode) ? null : one.mode));
  return { ...now, hasTrouble: now.hasTrouble || (second.troubles ?? []).length > 0 };
}

// Whether nothing at all was measured in a window.
export function isNothing(interfaces) {
  const { all, missing } = ofReport(interfaces);
  return missing > 0 && missing === all && interfaces.every((one) => one.ledger.seen.packets === 0);
}

// Whether every interface was measured in a window.
export const isWhole = (interfaces) => ofReport(interfaces).missing === 0;

// All facts about these interfaces: {text, verdict}, the most important ones first. `second` is their last second if the
// numbers are shown as those of now.
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
  all.push(...listed(interfaces), sampled(interfaces), ...covered(interfaces, then), balanced(interfaces));
  return isAll ? all : all.map((fact) => (fact.verdict === "good" ? neutral(fact.text) : fact));
}

function kept(interfaces, { missing }, lost) {
  const seen = sum(interfaces, (of) => of.ledger.seen.packets);
  if (seen === 0) return neutral(missing > 0 ? "kept unknown" : "no packet seen");
  return judged(lost === 0, `kept ${percent(Math.max(0, 1 - lost / seen))}`);
}

function notMeasured({ labels }) {
  const more = labels.length - NAMED_MAX;
  return labels.length === 0 ? [] : [judged(false, `${NOT_MEASURED}: ${labels.slice(0, NAMED_MAX).join(", ")}${more > 0 ? ` and ${more} more` : ""}`)];
}

// How much of the packets and bytes the lists are about, and the largest reasons for the rest.
function listed(interfaces) {
  const fed = { packets: 0, bytes: 0 };
  const unlisted = { packets: 0, bytes: 0 };
  const reasons = new Map();
  const add = (to, one) => { to.packets += one.packets; to.bytes += one.bytes; };
  const least = (one, most) => ({ packets: Math.min(one.packets, most.packets), bytes: Math.min(one.bytes, most.bytes) });
  let isBound = false;
  for (const { ledger, repeated } of interfaces) {
    const again = repeated ?? { packets: 0, bytes: 0 };
    const mine = { packets: ledger.seen.packets - again.packets, bytes: ledger.seen.bytes - again.bytes };
    add(fed, mine);
    const left = { packets: 0, bytes: 0 };
    for (const [reason, tally] of [...Object.entries(ledger.skipped), ...Object.entries(ledger.lost)]) {
      const part = least(tally, mine);
      if (part.packets === 0) continue;
      add(left, part);
      if (!reasons.has(reason)) reasons.set(reason, { packets: 0, bytes: 0 });
      add(reasons.get(reason), part);
    }
    isBound ||= (again.packets > 0 || again.bytes > 0) && left.packets > 0;
    add(unlisted, least(left, mine));
  }
  if (fed.packets === 0) return [];
  if (unlisted.packets === 0) return [judged(true, "in lists 100.0 %")];
  const shares = (tally) => [share(tally.packets, fed.packets), share(tally.bytes, fed.bytes)];
  const [packets, bytes] = shares(unlisted).map((left) => 1 - left);
  const isGood = Math.min(packets, bytes) >= LISTED_MIN;
  const byName = [...reasons].map(([reason, tally]) => ({ reason, shares: shares(tally) })).sort((a, b) => (a.reason < b.reason ? -1 : 1));
  const largest = byName.sort((a, b) => Math.max(...b.shares) - Math.max(...a.shares));
  const most = isGood ? 1 : NAMED_MAX;
  const named = largest.slice(0, most).map(({ reason, shares: [ofPackets, ofBytes] }) => `${reason} ${percent(Math.max(ofPackets, ofBytes))}${ofBytes > ofPackets ? " of bytes" : ""}`);
  const more = largest.length - most;
  const why = `not in lists: ${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  return [judged(isGood, `in lists ${isBound ? "at least " : ""}${percent(packets)} of packets, ${percent(bytes)} of bytes`), isGood ? neutral(why) : judged(false, why)];
}

function sampled(interfaces) {
  const most = Math.max(1, ...interfaces.map((of) => of.sampling));
  return most === 1 ? judged(true, "unsampled") : neutral(`sampled 1 in ${most}`);
}

// The lowest coverage of all interfaces. The counters of weir and of the interface cannot be read at the same instant, so
// slightly more than 100 % is 100 %.
function covered(interfaces, { all }) {
  const known = interfaces.filter((of) => of.coverage !== undefined).map(({ name, coverage, coverage_lower: lower, coverage_upper: upper }) => ({
    name, isLow: (upper ?? coverage) < 1, value: coverage >= 1 && (lower ?? coverage) <= 1 ? 1 : coverage,
  }));
  if (known.length === 0) return all > 0 ? [neutral("coverage unknown")] : [];
  const lowest = known.reduce((least, one) => (one.value < least.value ? one : least));
  const text = `coverage ${percent(lowest.value)}${lowest.value > 1 ? ": the interface counted fewer" : ""}`;
  return [lowest.isLow ? judged(false, `${text} (${lowest.name})`) : judged(true, text)];
}

// Whether seen = attributed + sampled out + skipped + lost, for each interface, in packets and in bytes.
function balanced(interfaces) {
  const adds = ({ ledger }, unit) => ledger.seen[unit] === ledger.attributed[unit] + ledger.sampled_out[unit]
    + sum(values(ledger.skipped), (of) => of[unit]) + sum(values(ledger.lost), (of) => of[unit]);
  const isBalanced = interfaces.every((of) => adds(of, "packets") && adds(of, "bytes"));
  return judged(isBalanced, isBalanced ? "balanced: yes" : "balanced: NO");
}
