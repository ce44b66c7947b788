// Draws the notices that a reader needs before the numbers: problems of weir, of the connection, or of the address.

import { missingIn } from "../report/window.js";
import { connection, now, subject } from "../state/known.js";
import { clock, moment } from "../times.js";
import { byId, h, keep } from "./dom.js";

const bad = (title, text) => h("p", { class: "notice bad" }, h("b", null, title), text);
const notice = (text) => h("p", { class: "notice" }, text);

export function drawNotices(choice) {
  document.body.classList.toggle("unknown", Boolean(connection.unknown));
  const all = [
    ...ofConnection(),
    ...ofRouter(),
    ...(choice.isSpan ? [] : troubles(now.drawn, now.second)).map((text) =>
      bad("weir does not see all packets: ", text),
    ),
    ...ofAddress(choice),
    ...missingIn(subject(choice).report).map(notice),
  ];
  keep(byId("notices"), all.map((one) => one.textContent).join(), () => all);
}

function ofConnection() {
  const { broken, delay } = connection;
  if (broken) {
    const text = `${broken.why}. Trying again; the numbers below are those of before.`;
    return [bad(`Connection lost at ${clock(broken.at)} UTC: `, text)];
  }
  const late = delay.seconds(Date.now());
  if (late <= 0) return [];
  const text =
    `up to ${Math.round(late)} seconds after weir sent them. Does a proxy in between hold them back? The rates below ` +
    "are of that time.";
  return [bad("Messages come late: ", text)];
}

function ofRouter() {
  const { unknown, router, isLate } = connection;
  if (unknown) return [bad("Unknown router: ", `${unknown}.`)];
  if (!isLate) return [];
  const text =
    `its last window ended ${moment(router.last.window_end)} UTC, and nothing came for three windows and 30 seconds. ` +
    "The numbers below are those of its last report.";
  return [bad("This router is late: ", text)];
}

function ofAddress({ isWrong }) {
  const text =
    "from= and to= in the address are not times in UTC, such as 2026-11-20T08:00:00Z, or to= is before from=: " +
    "this is now.";
  return isWrong ? [notice(text)] : [];
}

// Returns weir's present troubles, or those of its last report.
function troubles(report, second) {
  const ofInterfaces = (all = []) =>
    all
      .filter((one) => one.trouble)
      .map((one) => `${one.name}${one.direction ? ` ${one.direction}` : ""}: ${one.trouble}`);
  const said = [...(second?.troubles ?? []), ...ofInterfaces(second?.interfaces)];
  return [...new Set(said.length > 0 ? said : ofInterfaces(report?.interfaces))];
}
