// The lists of a report, all in one shape; what a key means; which question it is, and which view.
// `weir top` has the same lists, under the same names (daemon/top/src/list.rs).

const TOP = [
  ["sources", "sources", ["src_ip"], "The addresses that sent most"],
  ["destinations", "destinations", ["dst_ip"], "The addresses that received most"],
  ["pairs", "pairs", ["src_ip", "dst_ip"], "Who sent most to whom"],
  ["flows", "flows", ["src_ip", "dst_ip", "src_port", "dst_port", "proto"], "The largest single connections, each direction for itself"],
  ["services", "services", ["proto", "port"], "The protocols and ports that were used most"],
  ["source nets", "source_prefixes", ["prefix"], "The networks that sent most, without the traffic of the addresses in sources"],
  ["destination nets", "destination_prefixes", ["prefix"], "The networks that received most, without the traffic of the addresses in destinations"],
];
// Every busy host is in these lists: only a number that is unusual for it is news.
const SPREAD = [
  ["floods", "sources_per_destination", "sources", "Destinations by the number of sources that sent to them: far more than usual may be a flood"],
  ["scans", "destinations_per_source", "destinations", "Sources by the number of destinations that they sent to: far more than usual may be a scan"],
  ["ports", "ports_per_source", "ports", "Sources by the number of ports that they sent to: far more than usual may be a scan of ports"],
];
// What of a row is not its key.
const NOT_KEY = new Set(["rank", "view", "packets", "bytes", "flows", "new_flows", "distinct", "beyond", "members"]);
const WITH_PORTS = new Set(["tcp", "udp", "sctp", "dccp", "udplite"]);

let services = {};
export const nameServices = (names) => { services = names; };

// All lists of a report, or of a union of several. `by` is "bytes" or "packets".
export function lists(report, by) {
  const top = (by === "packets" ? report.top_by_packets : report.top) ?? {};
  const whole = { packets: report.totals?.packets, bytes: report.totals?.bytes };
  // A union leaves some lists out, and the open window does not know all of them yet.
  const names = [...(report.left_out ?? []), ...(report.not_yet ?? [])];
  const leftOut = new Set(names);
  const all = [];
  for (const [name, field, fields, about] of TOP) {
    const rows = top[field] ?? [];
    all.push({
      name, about, whole, confidence: top.confidence, counted: null, isLeftOut: leftOut.has(field),
      rows: rows.map((row) => ({ rank: row.rank, key: pick(row, fields), amount: sums(row.beyond ?? row) })),
    });
  }
  for (const [name, field, counted, about] of SPREAD) {
    const rows = report.spread?.[field] ?? [];
    all.push({
      name, about, whole, counted, confidence: report.spread?.confidence, isLeftOut: !report.spread,
      rows: rows.map(ofRow),
    });
  }
  for (const view of report.views ?? []) {
    const parts = view.tables ?? [{ total: view.total, rows: view.rows ?? [] }];
    for (const part of parts) {
      const place = part.interface ? ` ${part.interface} ${part.direction ?? ""}` : "";
      const total = part.total;
      all.push({
        name: `${view.name}${place}`.trimEnd(), view: view.name, question: view.question, place: place.trim(),
        about: `The view ${view.name}: ${view.by?.length ? `by ${view.by.join(", ")}` : "all together"}${part.interface ? `, ${place.trim()} alone` : ""}`, confidence: view.confidence,
        whole: total ? { packets: total.packets.value, bytes: total.bytes.value } : whole, isOfView: Boolean(total),
        counted: measured(view.measure), rows: (part.rows ?? []).map(ofRow),
      });
    }
  }
  for (const name of names) {
    if (![...TOP, ...SPREAD].some(([, field]) => field === name)) {
      all.push({ name, view: name, whole, counted: null, rows: [], isLeftOut: true, isChanged: (report.changed ?? []).includes(name) });
    }
  }
  return all;
}

const pick = (row, fields) => Object.fromEntries(fields.map((field) => [field, String(row[field])]));
const sums = (row) => ({ packets: row.packets, bytes: row.bytes });

function ofRow(row) {
  const fields = Object.entries(row).filter(([name]) => !NOT_KEY.has(name));
  const key = Object.fromEntries(fields.map(([name, value]) => [name, String(value)]));
  const counted = row.distinct ?? row.flows ?? row.new_flows;
  return { rank: row.rank, key, amount: row.bytes ? sums(row) : { count: counted } };
}
export { ofRow as answered };

// What a view counts, in words; null for packets and bytes.
function measured(measure) {
  if (measure === "bytes" || measure === "packets") return null;
  if (typeof measure === "string") return measure.replaceAll("_", " ");
  return `different ${(measure?.distinct ?? []).join(", ")}`;
}

// What orders a list.
export const ordering = (amount, by) => amount.count ?? amount[by];

// The question of `weir ask` about a key.
export const question = (key) => Object.entries(key).map(([name, value]) => `${name}=${value}`).join(",");

export function readQuestion(text) {
  const fields = text.split(",").map((part) => part.split(/=(.*)/s)).filter(([name, value]) => name && value);
  return Object.fromEntries(fields.map(([name, value]) => [name, value]));
}

// Whether a standard list of addresses, flows or services has such keys.
export const isStandard = (key) => TOP.some(([, , fields]) => !fields.includes("prefix") && fields.length === Object.keys(key).length && fields.every((name) => key[name] !== undefined));

export const sameKey = (one, other) => question(one) === question(other);

// A key for people: one text, or two for a source and a destination.
export function show(key) {
  if (key.src_ip !== undefined && key.dst_ip !== undefined) return ends(key);
  if (Object.keys(key).length === 2 && key.proto !== undefined && key.port !== undefined) {
    return [service(key.proto, key.port)];
  }
  const plain = new Set(["src_ip", "dst_ip", "host", "prefix"]);
  const fields = Object.entries(key).map(([name, value]) => (plain.has(name) ? value : `${name} ${value}`));
  return [fields.join(", ") || "all"];
}

function ends(key) {
  const { src_ip: src, dst_ip: dst, proto, src_port: from, dst_port: to } = key;
  if (proto === undefined) return [src, `→ ${dst}`];
  if (from === undefined) return [`${proto} ${src}`, `→ ${dst}`];
  if (proto.startsWith("icmp")) return [`${proto} ${from}/${to} ${src}`, `→ ${dst}`];
  if (!WITH_PORTS.has(proto)) return [`${proto} ${src}`, `→ ${dst}`];
  const name = services[`${proto}/${Math.min(from, to)}`];
  return [`${proto} ${endpoint(src, from)}`, `→ ${endpoint(dst, to)}${name ? ` (${name})` : ""}`];
}

function endpoint(address, port) {
  if (port === "0") return address;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

function service(proto, port) {
  if (!WITH_PORTS.has(proto)) return proto;
  const name = services[`${proto}/${port}`];
  return name ? `${proto}/${port} (${name})` : `${proto}/${port}`;
}

// Whether a row has to do with a key: an address of it, or its service.
export function related(key, other) {
  const addresses = Object.values(key).filter(isAddress);
  // Of two ends, what both have in common, and each of them alone.
  const others = Object.values(other).filter(isAddress);
  if (addresses.length > 1) return others.length > 0 && others.every((one) => addresses.includes(one));
  if (addresses.length > 0) return others.includes(addresses[0]);
  const ports = (of) => Object.entries(of).filter(([name]) => name.endsWith("port")).map(([, port]) => port);
  const samePort = ports(key).length === 0 || ports(key).some((port) => ports(other).includes(port));
  return sameKey(key, other) || (key.proto !== undefined && key.proto === other.proto && samePort);
}

const isAddress = (text) => /^[0-9]+\.[0-9.]+(\/\d+)?$/.test(text) || (/^[0-9a-f:.]+(\/\d+)?$/i.test(text) && text.includes(":"));

// A view that looks closer at a key, as YAML for the configuration.
export function view(key, list, measure) {
  const conditions = [];
  const field = (name) => (name === "prefix" ? (list?.startsWith("destination") ? "dst_ip" : "src_ip") : name.split("/")[0]);
  for (const [name, value] of Object.entries(key)) conditions.push([field(name), value]);
  const has = new Set(conditions.map(([name]) => name));
  const isNet = key.prefix !== undefined;
  let by = ["src_ip", "dst_ip"].filter((name) => !has.has(name));
  if (isNet) by = [conditions[0][0]];
  if (by.length === 0) by = has.has("src_port") || has.has("dst_port") || has.has("port") ? ["interface"] : ["proto", "port"];
  else if (by.length === 1 && !isNet && !has.has("port") && !has.has("dst_port")) by.push("proto", "port");
  const name = `about_${Object.values(key).join("_")}`.toLowerCase().replace(/[^a-z0-9]+/g, "_").slice(0, 48).replace(/_+$/, "");
  const quoted = (text) => (/^[0-9]+$/.test(text) ? text : JSON.stringify(text));
  const lines = ["views:", `  - name: ${name}`];
  if (conditions.length > 0) lines.push(`    match: {${conditions.map(([of, value]) => `${of}: ${quoted(value)}`).join(", ")}}`);
  lines.push(`    by: [${by.join(", ")}]`, `    measure: ${measure}`, "    top: 20");
  return `${lines.join("\n")}\n`;
}
