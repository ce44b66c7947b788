// The last hour of each interface, second by second.
export class Rates {
  static MAX = 3600;

  constructor() {
    // By name: {name, mode, ways: {ingress: Map(second -> {packets, bytes, seconds, lost}), egress: ...}, last: {}}
    this.all = new Map();
    this.latest = 0;
  }

  interface(name) {
    if (!this.all.has(name)) this.all.set(name, { name, ways: {}, last: {} });
    return this.all.get(name);
  }

  take(second) {
    // Messages come a second apart, more or less: each has a place of its own.
    let at = Math.round(Date.parse(second.time) / 1000);
    if (at === this.latest) at += 1;
    this.latest = Math.max(this.latest, at);
    for (const of of second.interfaces) {
      const way = of.direction ?? "both";
      const known = this.interface(of.name);
      known.ways[way] ??= new Map();
      const before = known.last[way];
      const lost = (of.lost?.packets ?? 0) - (before?.window === second.window_start ? before.lost : 0);
      known.last[way] = {
        ...of,
        at,
        seconds: second.seconds,
        window: second.window_start,
        lost: of.lost?.packets ?? 0,
      };
      if (!of.counted) continue;
      known.ways[way].set(at, { ...of.counted, seconds: second.seconds, lost });
      if (known.ways[way].size > Rates.MAX) known.ways[way].delete(known.ways[way].keys().next().value);
    }
    for (const [name, known] of this.all) {
      if (!second.interfaces.some((of) => of.name === name) && Object.keys(known.last).length > 0)
        this.all.delete(name);
    }
  }

  // Fills in the rates from before the page was opened.
  fill(past) {
    const start = Math.floor(Date.parse(past.from) / 1000);
    for (const of of past.interfaces) {
      const known = this.interface(of.name);
      const name = of.direction ?? "both";
      known.ways[name] ??= new Map();
      const way = known.ways[name];
      of.bytes.forEach((bytes, nth) => {
        const at = start + Math.round(nth * past.step_seconds);
        if (bytes === null || way.has(at)) return;
        way.set(at, {
          packets: of.packets[nth],
          bytes,
          seconds: of.seconds?.[nth] || past.step_seconds,
          lost: of.lost?.[nth] ?? 0,
        });
      });
      this.latest = Math.max(this.latest, start + of.bytes.length - 1);
    }
  }

  // Rates of the last `count` seconds before `until`, the oldest first; null where nothing is known.
  series(name, way, count, until, by) {
    const known = this.all.get(name)?.ways[way];
    if (!known) return null;
    const value = (at) => {
      const of = known.get(at);
      return of ? (by === "packets" ? of.packets : of.bytes * 8) / (of.seconds || 1) : null;
    };
    return Array.from({ length: count }, (_, nth) => value(until - count + 1 + nth));
  }

  lost(name, count, until) {
    const ways = Object.values(this.all.get(name)?.ways ?? {});
    const bad = [];
    for (let nth = 0; nth < count; nth++) {
      if (ways.some((way) => way.get(until - count + 1 + nth)?.lost > 0)) bad.push(nth);
    }
    return bad;
  }
}
