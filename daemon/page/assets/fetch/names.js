// Asks for the names of hosts, which change as leases do.

import { nameHosts } from "../report/key.js";
import { changed } from "../state/changes.js";
import { ask } from "./source.js";

// In milliseconds.
const EVERY = 10_000;
let known = "";

async function poll() {
  // Without an answer, addresses are shown alone: weir may not know the question, or may not show names.
  const { names } = await ask("api/names").catch(() => ({ names: [] }));
  const next = JSON.stringify(names);
  if (next === known) return;
  known = next;
  nameHosts(names);
  changed("all");
  changed("usage");
}

export function followNames() {
  poll();
  setInterval(poll, EVERY);
}
