// What the page of the fleet shows now: raw numbers by their names.
(() => {
  const within = (place, selector) => [...place.querySelectorAll(selector)];
  const value = (one) => Number(one.dataset.value);
  const named = (place, name) =>
    Object.fromEntries(within(place, `[data-${name}]`).map((one) => [one.dataset[name], value(one)]));
  return {
    totals: named(document, "total"),
    rate: value(document.querySelector("[data-sum=rate]")),
    count: document.getElementById("count").textContent,
    observers: Object.fromEntries(
      within(document, "[data-observer]").map((row) => [
        row.dataset.observer,
        { ...named(row, "of"), isLate: row.dataset.late === "true", text: row.textContent },
      ]),
    ),
    gaps: within(document, "[data-gap]").map(
      (row) => `${row.dataset.gap} ${row.dataset.status} ${value(row.querySelector("[data-value]"))}`,
    ),
    tombstones: within(document, "[data-tombstone]").map((row) => row.dataset.tombstone),
    isWide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
  };
})();
