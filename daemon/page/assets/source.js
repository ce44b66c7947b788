// Where the numbers come from: answers of weir, and a message each second.

// An answer as JSON. An error says why there is none, in weir's own words.
export async function ask(path, parameters = {}, options = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined));
  const text = query.toString();
  const response = await fetch(text ? `${path}?${text}` : path, { cache: "no-store", ...options });
  if (!response.ok) {
    const error = new Error((await response.text()).trim() || `weir answers ${response.status}`);
    error.status = response.status;
    throw error;
  }
  return response.json();
}

// Reads server-sent events until the connection ends or is aborted. `take` gets each message.
async function read(signal, take, opened) {
  const response = await fetch("api/seconds", { cache: "no-store", signal });
  if (!response.ok) throw new Error((await response.text()).trim() || `weir answers ${response.status}`);
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("weir has closed the connection");
    rest += value;
    const messages = rest.split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const data = message.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (data) take(JSON.parse(data));
    }
  }
}

// Keeps reading seconds: after an error again, and not while nobody sees the page.
export class Seconds {
  constructor({ take, opened, broken }) {
    Object.assign(this, { take, opened, broken });
    this.controller = null;
    this.wait = 1000;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.hiding = setTimeout(() => this.stop(), 60_000);
      else {
        clearTimeout(this.hiding);
        this.start();
      }
    });
  }

  async start() {
    if (this.controller) return;
    const controller = new AbortController();
    this.controller = controller;
    while (!controller.signal.aborted) {
      try {
        await read(controller.signal, this.take, () => { this.wait = 1000; this.opened(); });
      } catch (error) {
        if (controller.signal.aborted) break;
        // What a browser says when nobody answers differs from one to the next.
        this.broken(error instanceof TypeError ? "weir does not answer" : error.message);
      }
      await new Promise((next) => { setTimeout(next, this.wait); });
      this.wait = Math.min(15_000, this.wait * 2);
    }
  }

  stop() {
    this.controller?.abort();
    this.controller = null;
  }
}

// How late messages come. weir sends one each second, so a pause before one that was sent in time means that something
// between weir and the browser held it back. The clocks of both may differ, and are never compared.
export class Delay {
  // Pauses up to this many seconds are usual.
  static USUAL = 3;

  // How many seconds a pause stays known, because the messages after it come all at once.
  static KEPT = 30;

  constructor() {
    this.last = null;
    this.pause = null;
  }

  // `sent` is a message's own time, `now` that of the browser, both in milliseconds.
  take(sent, now) {
    const { last } = this;
    this.last = { sent, now };
    if (this.pause && now - this.pause.at > Delay.KEPT * 1000) this.pause = null;
    const between = last ? sent - last.sent : 0;
    // Someone may have set the router's clock.
    if (!last || between < 0 || between > 60_000) return;
    const seconds = (now - last.now - between) / 1000;
    if (seconds > Delay.USUAL && seconds > (this.pause?.seconds ?? 0)) this.pause = { seconds, at: now };
  }

  // How many seconds late messages come, or the next one is; 0 if they come in time.
  seconds(now) {
    const waiting = this.last ? (now - this.last.now) / 1000 - 1 : 0;
    return Math.max(waiting > Delay.USUAL ? waiting : 0, this.pause?.seconds ?? 0);
  }
}

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
      known.last[way] = { ...of, at, seconds: second.seconds, window: second.window_start, lost: of.lost?.packets ?? 0 };
      if (!of.counted) continue;
      known.ways[way].set(at, { ...of.counted, seconds: second.seconds, lost });
      if (known.ways[way].size > Rates.MAX) known.ways[way].delete(known.ways[way].keys().next().value);
    }
    for (const [name, known] of this.all) {
      if (!second.interfaces.some((of) => of.name === name) && Object.keys(known.last).length > 0) this.all.delete(name);
    }
  }

  // What weir remembers of the time before the page was opened.
  fill(past) {
    const start = Math.floor(Date.parse(past.from) / 1000);
    for (const of of past.interfaces) {
      const known = this.interface(of.name);
      const way = (known.ways[of.direction ?? "both"] ??= new Map());
      of.bytes.forEach((bytes, nth) => {
        const at = start + Math.round(nth * past.step_seconds);
        if (bytes === null || way.has(at)) return;
        way.set(at, { packets: of.packets[nth], bytes, seconds: of.seconds?.[nth] || past.step_seconds, lost: of.lost?.[nth] ?? 0 });
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
      return of ? ((by === "packets" ? of.packets : of.bytes * 8) / (of.seconds || 1)) : null;
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
