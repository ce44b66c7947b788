// The page: connects what the reader chooses, what weir tells, and what is drawn.
//
//   state/    what is chosen, in the address bar, and what weir has told
//   fetch/    asks weir, or a collector that has its reports, and changes the state
//   report/   what a report means: its lists, its keys, how far it can be trusted
//   draw/     a file for each part of the screen, which draws the state

import { drawAll, drawCompared, drawOpen, drawPast, drawSecond, drawTime } from "./draw/all.js";
import { byId, find } from "./draw/dom.js";
import { drawUsage } from "./draw/usage.js";
import { followCollector } from "./fetch/collector.js";
import { loadComparison } from "./fetch/compare.js";
import { followNames } from "./fetch/names.js";
import { loadServices } from "./fetch/services.js";
import { loadSpan } from "./fetch/span.js";
import { followStream } from "./fetch/stream.js";
import { followUsage } from "./fetch/usage.js";
import { listen } from "./input.js";
import { OF_REPORTS } from "./state/address.js";
import { onChange } from "./state/changes.js";

onChange("all", drawAll);
onChange("compared", drawCompared);
onChange("open", drawOpen);
onChange("past", drawPast);
onChange("second", drawSecond);
onChange("time", drawTime);
onChange("usage", drawUsage);

listen();
if (OF_REPORTS) {
  byId("fleet").hidden = false;
  // Reports have no open window, and no seconds.
  find(byId("help"), "[data-live]")?.remove();
  followCollector();
} else {
  followStream();
  followUsage();
  followNames();
}
loadServices();
loadSpan().then(loadComparison);
drawAll();
