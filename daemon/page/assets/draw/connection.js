// Says in a word at the top if numbers arrive.

import { OF_REPORTS } from "../state/address.js";
import { connection, now } from "../state/known.js";
import { clock } from "../times.js";
import { byId, put } from "./dom.js";

export function drawConnection(choice) {
  const { broken, unknown, isLate, isLive } = connection;
  const place = byId("link");
  const isBad = broken || unknown || isLate;
  place.className = `link ${isBad ? "bad" : isLive ? "good" : ""}`;
  put(byId("link-text"), text(choice));
  place.title = now.second ? `last second: ${clock(now.second.time)} UTC` : "";
}

function text({ isSpan }) {
  if (connection.broken) return "not connected";
  if (connection.unknown) return "unknown router";
  if (connection.isLate) return "late";
  if (!connection.isLive) return "connecting";
  if (OF_REPORTS) return "from reports";
  // A screen reader would read the time aloud each second, so it is not in the text.
  return isSpan ? "connected" : "live";
}
