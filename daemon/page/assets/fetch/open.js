// Asks for the lists of the open window, one question at a time.

import { chosen } from "../state/address.js";
import { changed } from "../state/changes.js";
import { open } from "../state/known.js";
import { ask } from "./source.js";

let isAsking = false;

export async function loadOpen() {
  if (isAsking || !chosen().isOpen || document.hidden) return;
  isAsking = true;
  try {
    open.report = await ask("api/live");
    open.why = null;
  } catch (error) {
    open.why = error.message;
  }
  isAsking = false;
  changed("open");
}
