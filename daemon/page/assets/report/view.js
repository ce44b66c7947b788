// A view that looks closer at a key, as YAML for the configuration.

/** @import { Key } from "./key.js" */

const NAME_MAX = 48;

/**
 * @param {Key} key
 * @param {string} list the list that it is in
 * @param {string} measure
 */
export function viewAbout(key, list, measure) {
  const conditions = Object.entries(key).map(([name, value]) => [field(name, list), value]);
  const lines = ["views:", `  - name: ${nameOf(key)}`];
  if (conditions.length > 0) {
    lines.push(`    match: {${conditions.map(([of, value]) => `${of}: ${quoted(value)}`).join(", ")}}`);
  }
  const names = conditions.map(([name]) => name);
  const by = key.prefix === undefined ? others(new Set(names)) : [names[0]];
  lines.push(`    by: [${by.join(", ")}]`, `    measure: ${measure}`, "    top: 20");
  return `${lines.join("\n")}\n`;
}

// The condition that a field of a key is in `match`. A list of networks says of which end they are.
function field(name, list) {
  if (name !== "prefix") return name.split("/")[0];
  return list.startsWith("destination") ? "dst_ip" : "src_ip";
}

const nameOf = (key) =>
  `about_${Object.values(key).join("_")}`
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "_")
    .slice(0, NAME_MAX)
    .replace(/_+$/, "");

const quoted = (text) => (/^[0-9]+$/.test(text) ? text : JSON.stringify(text));

// The fields that the conditions leave open.
function others(has) {
  const by = ["src_ip", "dst_ip"].filter((name) => !has.has(name));
  const hasPort = has.has("port") || has.has("dst_port");
  if (by.length === 0) return hasPort || has.has("src_port") ? ["interface"] : ["proto", "port"];
  return by.length === 1 && !hasPort ? [...by, "proto", "port"] : by;
}
