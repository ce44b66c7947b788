// Asks what has changed in a list since an earlier time.

import { comparable } from "../report/lists.js";
import { chosen, earlierStart } from "../state/address.js";
import { changed } from "../state/changes.js";
import { comparison } from "../state/known.js";
import { iso } from "../times.js";
import { ask } from "./source.js";

// Another time may be chosen while an answer is on its way: then the answer is dropped.
export async function loadComparison() {
  const choice = chosen();
  const { by, from, to, against } = choice;
  const list = comparable(choice.list);
  const name = against ? `${list} ${by} ${from} ${to} ${against}` : null;
  if (comparison.name === name) return;
  comparison.begin(name);
  changed("compared");
  if (!against) return;
  try {
    const start = earlierStart(choice);
    if (Number.isNaN(start)) throw new Error(`${against} is not a time, such as 2026-11-17T14:00:00Z, before, or 7d`);
    const answer = await ask("api/changes", { list, by, from: iso(from), to: iso(to), against: iso(start) });
    if (comparison.name !== name) return;
    comparison.answer = answer;
  } catch (error) {
    if (comparison.name !== name) return;
    comparison.why = error.message;
  }
  changed("compared");
}
