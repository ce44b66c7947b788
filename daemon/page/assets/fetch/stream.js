// Follows a running weir, which sends a message each second.

import { changed } from "../state/changes.js";
import { Delay } from "../state/delay.js";
import { connection, now, rates } from "../state/known.js";
import { loadOpen } from "./open.js";
import { loadPast, loadReport } from "./reports.js";
import { EVERY, Seconds } from "./source.js";

let isFirst = true;

export function followStream() {
  new Seconds({ opened, broken, take }).start();
  // While none comes, nothing else draws.
  setInterval(() => changed("time"), EVERY);
  loadReport();
}

function opened() {
  isFirst = true;
  connection.delay = new Delay();
  connection.made();
  loadReport();
}

function broken(why) {
  connection.lost(why);
  // Perhaps only the stream is missing: as many browsers as weir serves have one.
  loadReport();
  changed("all");
}

function take(second) {
  now.second = second;
  connection.delay.take(Date.parse(second.time), Date.now());
  rates.take(second);
  // Now, so that no second is missing between what is remembered and what comes.
  if (isFirst) loadPast();
  isFirst = false;
  if (second.last_report && second.last_report.id !== now.last?.id) loadReport();
  loadOpen();
  changed("second");
}
