// A tab for each list; a view with a table for each interface has one, and a choice of the table.

import { link } from "../state/address.js";
import { byId, find, h, keep, nav } from "./dom.js";

/** @import { List } from "../report/lists.js" */

/**
 * @param {List[]} all
 * @param {List | undefined} list the one that is shown
 * @param {"bytes" | "packets"} by
 */
export function drawTabs(all, list, by) {
  const first = withTabs(all, by);
  const key = `${all.map((one) => one.name)} ${first.map((one) => one.name)} ${list?.name} ${location.hash}`;
  const to = (one) => link({ list: one.name });
  const tabs = byId("tabs");
  keep(tabs, key, () => first.map((one, nth) => tab(one, nth, to(one), isIn(one, list))));
  const current = find(tabs, "[aria-current]");
  if (current) tabs.scrollLeft = current.offsetLeft - 60;
  const places = list?.place ? all.filter((one) => one.view === list.view) : [];
  keep(byId("places"), key, () =>
    places.map((one) => nav(one.place, to(one), one === list, { "data-list": one.name })),
  );
}

// The lists that a tab leads to: of a view with several tables, the interface and direction that has the most traffic.
function withTabs(all, by) {
  const isFirst = (list, nth) => all.findIndex((one) => one.view === list.view) === nth;
  const busiest = (list) => {
    const tables = all.filter((one) => one.view === list.view);
    return tables.reduce((most, one) => (one.whole[by] > most.whole[by] ? one : most));
  };
  const first = all.filter((list, nth) => !list.place || isFirst(list, nth));
  return first.map((list) => (list.place ? busiest(list) : list));
}

const isIn = (tab, list) => tab === list || Boolean(tab.place && tab.view === list?.view);

// The first ten have a key.
function tab(list, nth, href, isCurrent) {
  const key = nth < 10 ? h("kbd", { "aria-hidden": "true" }, String((nth + 1) % 10)) : null;
  return nav([key, list.place ? list.view : list.name], href, isCurrent, { "data-list": list.name });
}
