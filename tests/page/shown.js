// What the page shows now: raw numbers, and the texts beside them.
(() => {
  const of = (element) =>
    element && {
      value: Number(element.dataset.value),
      text: element.textContent,
      lower: Number(element.dataset.lower),
      upper: Number(element.dataset.upper),
    };
  const within = (selector) => [...document.querySelectorAll(selector)];
  const numbers = (element) => [...element.querySelectorAll("[data-value]")].map(of);
  const named = (selector, name, get) =>
    Object.fromEntries(within(selector).map((one) => [one.dataset[name], get(one)]));
  return {
    about: document.getElementById("version").textContent,
    trust: document.getElementById("trust").textContent,
    totals: named("[data-total]", "total", of),
    list: document.querySelector("#tabs [aria-current]")?.dataset.list,
    rows: within("#list tbody tr").map((row) => ({
      key: row.dataset.key,
      shown: row.querySelector(".who").textContent,
      ...of(row.querySelector(".strong [data-value]")),
      range: row.querySelector(".bar").getAttribute("aria-label"),
      error: row.querySelector(".error").textContent,
      amount: of(row.querySelector("[data-amount]")),
      share: row.querySelector(".share")?.textContent,
    })),
    distinct: named("[data-count]", "count", (one) => numbers(one)[0]),
    ledger: named("[data-part]", "part", numbers),
    alerts: named("[data-rule]", "rule", (one) => one.dataset.state),
    listAbout: document.getElementById("list-about").textContent,
    isBusy: document.getElementById("list").ariaBusy === "true",
    isWide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
  };
})();
