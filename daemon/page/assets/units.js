// Numbers as people read them, exactly as weir writes them on the terminal (daemon/system/src/numbers.rs).

const PREFIXES = ["k", "M", "G", "T", "P", "E"];

export const sum = (all, of) => all.reduce((total, one) => total + of(one), 0);

export const mean = (values) => sum(values, (value) => value) / values.length;

// A number with so many decimals, 0 or 1. A tie goes to the even digit, as in Rust, and not away from zero.
export function fixed(number, decimals) {
  const parts = number * (decimals ? 4 : 2);
  const isTie = Number.isInteger(parts) && parts % 2 !== 0;
  if (!isTie) return number.toFixed(decimals);
  const scale = decimals ? 10 : 1;
  const low = Math.floor(number * scale);
  return ((low % 2 === 0 ? low : low + 1) / scale).toFixed(decimals);
}

// A value with a decimal prefix and a unit: `999 bit/s`, `12.3 Mbit/s`. Whole below a thousand.
export function scaled(value, unit = "") {
  let prefix = "";
  let left = value;
  for (const next of PREFIXES) {
    if (left < (prefix ? 999.95 : 999.5)) break;
    left /= 1000;
    prefix = next;
  }
  return `${fixed(left, prefix ? 1 : 0)} ${prefix}${unit}`.trimEnd();
}

export const count = (value) => scaled(value);
export const bytes = (value) => scaled(value, "B");

// A rate of so many bytes or packets over so many seconds. Where there is no time, there is no rate, but the number.
export function rated(value, by, seconds) {
  if (!(seconds > 0)) return by === "packets" ? scaled(value, "pkt") : bytes(value);
  return by === "packets" ? scaled(value / seconds, "pkt/s") : scaled((value * 8) / seconds, "bit/s");
}

// A number with its digits in groups of three.
export const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

// So many of something: `1 window`, `1,200 windows`.
export const plural = (number, name) => `${grouped(number)} ${name}${number === 1 ? "" : "s"}`;

// A share of 1 in percent. A share close to nothing or to all is not rounded to 0 % or 100 %.
export function percent(share) {
  const of = share * 100;
  if (of > 0 && of < 0.05) return "<0.1 %";
  if (of >= 99.95 && of < 100) return ">99.9 %";
  return `${fixed(of, 1)} %`;
}

export const mebibytes = (size) => `${fixed(size / 2 ** 20, 1)} MiB`;

// A limit of a scale, a round number not below this one.
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value) ?? 10) * power;
}
