// Times as people read them, always in UTC as everywhere in weir.

/** @type {[string, number][]} */
const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

// A length of time in seconds: `1 d 2 h`, `20 min`, `10 s`.
export function duration(seconds) {
  let left = Math.round(seconds);
  const parts = [];
  for (const [name, size] of UNITS) {
    const whole = Math.floor(left / size);
    if (whole > 0) parts.push(`${whole} ${name}`);
    left -= whole * size;
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

export const clock = (time) => new Date(time).toISOString().slice(11, 19);
export const minute = (time) => clock(time).slice(0, 5);
export const day = (time) => new Date(time).toISOString().slice(0, 10);

// A time with its day, unless that is today.
export const moment = (time) => (day(time) === day(Date.now()) ? clock(time) : `${day(time)} ${clock(time)}`);

// A start and an end, with their days unless both are today.
export function between(from, to) {
  if (day(from) === day(to)) return `${moment(from)} – ${clock(to)}`;
  return `${day(from)} ${clock(from)} – ${day(to)} ${clock(to)}`;
}

// A message of weir with its times as they are written here.
export const plain = (text) => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (time) => `${moment(Date.parse(time))} UTC`);

// A time as it stands in the address and in questions.
export const iso = (time) => new Date(time).toISOString().replace(".000Z", "Z");
