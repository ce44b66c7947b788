// The meaning of a key: how it is shown, which question of `weir ask` it is, and which rows are related to it.

/** @typedef {Record<string, string>} Key its fields, as `{src_ip: "192.0.2.1"}` */

const WITH_PORTS = new Set(["tcp", "udp", "sctp", "dccp", "udplite"]);
// Fields that need no name beside their value.
const PLAIN = new Set(["src_ip", "dst_ip", "host", "prefix"]);
const HOSTS = new Set(["src_ip", "dst_ip", "host"]);

// How often names of ports or hosts have changed.
let named = 0;
export const timesNamed = () => named;

/**
 * Names of ports, as `{"tcp/443": "https"}`; null until they are known.
 * @type {Record<string, string> | null}
 */
let services = null;
export const nameServices = (/** @type {Record<string, string>} */ names) => {
  named += 1;
  services = names;
};

/**
 * The names of hosts that weir knows, by address, and where each is from.
 * @type {Map<string, {name: string, source: string}>}
 */
let hosts = new Map();
// What people call the sources.
const SOURCES = { file: "file", hosts: "hosts", lease: "DHCP" };
export const nameHosts = (/** @type {{address: string, name: string, source: string}[]} */ names) => {
  named += 1;
  hosts = new Map(names.map(({ address, name, source }) => [address, { name, source: SOURCES[source] ?? source }]));
};

/**
 * The name of the only address of a key, and where it is from; or null.
 * @param {Key} key
 */
export function nameOf(key) {
  const [[name, value] = ["", ""], ...more] = entries(key);
  return more.length === 0 && HOSTS.has(name) ? (hosts.get(value) ?? null) : null;
}

const entries = (/** @type {Key} */ key) => Object.entries(key);

/** The question of `weir ask` about a key. */
export const question = (/** @type {Key} */ key) =>
  entries(key)
    .map(([name, value]) => `${name}=${value}`)
    .join(",");

/** @returns {Key} */
export function readQuestion(/** @type {string} */ text) {
  const fields = text.split(",").map((part) => part.split(/=(.*)/s));
  return Object.fromEntries(fields.filter(([name, value]) => name && value).map(([name, value]) => [name, value]));
}

/** @type {(one: Key, other: Key) => boolean} */
export const sameKey = (one, other) => question(one) === question(other);

/**
 * A key for people: one text, or two for a source and a destination.
 * @param {Key} key
 * @returns {string[]}
 */
export function show(key) {
  if (key.src_ip !== undefined && key.dst_ip !== undefined) return ends(key);
  if (Object.keys(key).length === 2 && key.proto !== undefined && key.port !== undefined) {
    return [service(key.proto, key.port)];
  }
  const fields = entries(key).map(([name, value]) => (PLAIN.has(name) ? value : `${name} ${value}`));
  return [fields.join(", ") || "all"];
}

/** @param {Key} key */
function ends({ src_ip: src, dst_ip: dst, proto, src_port: from, dst_port: to }) {
  if (proto === undefined) return [src, `→ ${dst}`];
  if (from === undefined) return [`${proto} ${src}`, `→ ${dst}`];
  if (proto.startsWith("icmp")) return [`${proto} ${from}/${to} ${src}`, `→ ${dst}`];
  if (!WITH_PORTS.has(proto)) return [`${proto} ${src}`, `→ ${dst}`];
  const name = services?.[`${proto}/${Math.min(Number(from), Number(to))}`];
  return [`${proto} ${endpoint(src, from)}`, `→ ${endpoint(dst, to)}${name ? ` (${name})` : ""}`];
}

/** @type {(address: string, port: string) => string} */
function endpoint(address, port) {
  if (port === "0") return address;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** @type {(proto: string, port: string) => string} */
function service(proto, port) {
  if (!WITH_PORTS.has(proto)) return proto;
  const name = services?.[`${proto}/${port}`];
  return name ? `${proto}/${port} (${name})` : `${proto}/${port}`;
}

/**
 * Returns true if a row is related to a key: it has an address of the key, or its service.
 * @type {(key: Key, other: Key) => boolean}
 */
export function related(key, other) {
  const addresses = Object.values(key).filter(isAddress);
  // Of two ends, what both have in common, and each of them alone.
  const others = Object.values(other).filter(isAddress);
  if (addresses.length > 1) return others.length > 0 && others.every((one) => addresses.includes(one));
  if (addresses.length > 0) return others.includes(addresses[0]);
  const samePort = ports(key).length === 0 || ports(key).some((port) => ports(other).includes(port));
  return sameKey(key, other) || (key.proto !== undefined && key.proto === other.proto && samePort);
}

const ports = (/** @type {Key} */ key) =>
  entries(key)
    .filter(([name]) => name.endsWith("port"))
    .map(([, port]) => port);

const isAddress = (/** @type {string} */ text) =>
  /^[0-9]+\.[0-9.]+(\/\d+)?$/.test(text) || (/^[0-9a-f:.]+(\/\d+)?$/i.test(text) && text.includes(":"));
