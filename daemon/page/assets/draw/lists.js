// The section "Who uses it": the tabs, and the list that is chosen.

import { nameOf, question, show, timesNamed } from "../report/key.js";
import { initial, lists, ordering } from "../report/lists.js";
import { windowText } from "../report/window.js";
import { go, link, OF_REPORTS, TO_NOW } from "../state/address.js";
import { span, subject } from "../state/known.js";
import { byId, keep, nav, put } from "./dom.js";
import { Measure } from "./measure.js";
import { Table } from "./table.js";
import { drawTabs } from "./tabs.js";

const table = new Table(byId("list"), (key) => go({ key }));
// Identifies the rows that the table shows, so that they are not drawn again.
let drawn = "";

export function drawLists(choice) {
  drawChoices(choice);
  const { report, why } = subject(choice);
  const all = report ? lists(report, choice.by) : [];
  const list = all.find((one) => one.name === choice.list) ?? initial(all);
  drawTabs(all, list, choice.by);
  if (!list) {
    put(byId("list-about"), "");
    put(byId("list-what"), "");
    drawn = "";
    table.showNothing(why);
    return;
  }
  const next = `${report.id ?? report.time ?? span.name} ${location.hash} ${list.name} ${timesNamed()}`;
  if (drawn === next) return;
  drawn = next;
  const measure = new Measure(list, choice.by, report.window.seconds, choice.isSpan);
  put(byId("list-what"), list.about ? `${list.about}.` : "");
  put(byId("list-about"), about(choice, report, measure));
  const rows = rowsOf(list, choice);
  if (rows.length === 0) table.showNothing(whyEmpty(list, choice));
  else table.show(list, measure, (key) => link({ key }), rows);
}

// The window, the order and the filter.
function drawChoices({ by, filter, isOpen, isSpan }) {
  const button = (text, changes, isOn, key) => nav(text, link(changes), isOn, { "aria-keyshortcuts": key });
  keep(byId("choose-order"), location.hash, () => [
    button("bytes", { by: null }, by === "bytes", "b"),
    button("packets", { by: "packets" }, by === "packets", "p"),
  ]);
  keep(byId("choose-window"), location.hash, () =>
    isSpan || OF_REPORTS
      ? []
      : [button("last window", { window: null }, !isOpen, "o"), button("open window", { window: "open" }, isOpen, "o")],
  );
  const field = /** @type {HTMLInputElement} */ (byId("filter"));
  if (document.activeElement !== field && field.value !== filter) field.value = filter;
}

function about(choice, report, measure) {
  const text = [windowText(choice, report), measure.about()].filter(Boolean).join(": ");
  return `${text}${choice.isOpen ? ". The line above, the ledger and the protocols are of the last window." : ""}`;
}

// The rows that pass the filter.
function rowsOf({ rows }, { by, filter }) {
  const wanted = filter.toLowerCase();
  return rows
    .filter((row) => ordering(row.amount, by))
    .map((row) => ({ ...row, question: question(row.key) }))
    .filter((row) => {
      const text = `${nameOf(row.key)?.name ?? ""} ${show(row.key).join(" ")} ${row.question}`;
      return text.toLowerCase().includes(wanted);
    });
}

/** @type {(list: import("../report/lists.js").List, choice: import("../state/address.js").Choice) => any} */
function whyEmpty({ name, isLeftOut, isChanged, rows }, { isOpen }) {
  if (isLeftOut && isOpen) {
    const toLast = nav("the last window", link({ window: null }));
    return [`${name} is known only when the window has ended: see `, toLast, "."];
  }
  if (isChanged) return `${name} asked another question in a part of this time, and what it answered is not added up.`;
  if (isLeftOut)
    return [`${name} cannot be added up over several windows: see `, nav("the last one", link(TO_NOW)), "."];
  if (rows.length === 0) return "Nothing in this list: no packet of this window belongs here.";
  return "No row passes the filter (Esc clears it).";
}
