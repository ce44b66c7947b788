// Asks what each interface, own host and own network has carried in this month and in the last one.

import { changed } from "../state/changes.js";
import { usage } from "../state/known.js";
import { ask } from "./source.js";

// It changes with each window, but nobody watches a month by the second. In milliseconds.
const EVERY = 30_000;

// How many hosts and networks of a month are shown.
const TOP = 10;

async function poll() {
  const months = (more) => ask("api/usage", { by: "month", last: 2, ...more }).catch(() => null);
  // weir may have no place to keep it, or may not show hosts: then nothing is shown.
  const [interfaces, hosts, networks] = await Promise.all([
    months(),
    months({ of: "hosts", top: TOP }),
    months({ of: "networks", top: TOP }),
  ]);
  usage.months = interfaces;
  usage.hosts = hosts;
  usage.networks = networks;
  changed("usage");
}

export function followUsage() {
  poll();
  setInterval(poll, EVERY);
}
