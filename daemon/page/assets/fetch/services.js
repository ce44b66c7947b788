// Asks once for the names of ports.

import { nameServices } from "../report/key.js";
import { changed } from "../state/changes.js";
import { ask } from "./source.js";

export async function loadServices() {
  try {
    nameServices(await ask("api/services"));
  } catch {
    return; // ports have numbers, too
  }
  changed("all");
}
