// The section "Protocols": what the packets were.

import { percent } from "../units.js";
import { stack } from "./chart/bars.js";
import { h, hint, number, swatch } from "./dom.js";

// Bars, each of parts that have a name and a field of the totals.
/** @type {[string, [string, string][]][]} */
const BARS = [
  [
    "IP version",
    [
      ["IPv4", "ipv4_packets"],
      ["IPv6", "ipv6_packets"],
    ],
  ],
  [
    "Protocol",
    [
      ["TCP", "tcp_packets"],
      ["UDP", "udp_packets"],
      ["ICMP", "icmp_packets"],
      ["other IP", "other_packets"],
    ],
  ],
];

export function mix(totals) {
  const share = (value) => percent(totals.packets ? value / totals.packets : 0);
  const bars = BARS.map(([title, parts]) => [
    bar(title, parts, totals, share),
    h(
      "p",
      { class: "legend" },
      parts.map(([name, field], nth) => part(name, field, nth, totals, share)),
    ),
  ]);
  return [hint("Shares of all packets."), ...bars];
}

function bar(title, parts, totals, share) {
  const stacked = parts.map(([name, field], nth) => ({
    name,
    class: `mix${nth}`,
    value: totals[field],
    title: `${name}: ${share(totals[field])} of packets`,
  }));
  const all = parts.map(([name, field]) => `${name} ${share(totals[field])}`).join(", ");
  return stack(stacked, totals.packets, `${title}, of packets: ${all}`);
}

function part(name, field, nth, totals, share) {
  const value = totals[field];
  const { lower, upper } = totals.bounds?.[field] ?? {};
  const range = lower === upper ? "" : ` (${share(lower)} – ${share(upper)})`;
  return h("span", { "data-field": field }, swatch(`mix${nth}`), `${name} `, number(value, share(value)), range);
}
