// How the page asks weir or a collector: single answers as JSON, and a stream with a message each second.

// How often answers are asked for again where there is no stream, in milliseconds.
export const EVERY = 5000;

// Why there is no answer, in weir's own words.
class Refused extends Error {
  /**
   * @param {string} why
   * @param {number} status of HTTP
   */
  constructor(why, status) {
    super(why);
    this.status = status;
  }
}

// Throws if weir refuses.
async function answerOf(path, options) {
  const response = await fetch(path, { cache: "no-store", ...options });
  if (response.ok) return response;
  throw new Refused((await response.text()).trim() || `weir answers ${response.status}`, response.status);
}

/**
 * An answer as JSON.
 * @param {string} path
 * @param {Record<string, any>} parameters those that are undefined are left out
 */
export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined));
  const text = query.toString();
  return (await answerOf(text ? `${path}?${text}` : path)).json();
}

// Reads server-sent events until the connection ends or is aborted. `take` gets each message.
async function read(signal, take, opened) {
  const { body } = await answerOf("api/seconds", { signal });
  opened();
  const reader = /** @type {ReadableStream} */ (body).pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("weir has closed the connection");
    rest += value;
    const messages = rest.split("\n\n");
    rest = messages.pop() ?? "";
    for (const message of messages) {
      const data = message
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5))
        .join("\n");
      if (data) take(JSON.parse(data));
    }
  }
}

// Keeps reading seconds: tries again after an error, and pauses while the page is hidden.
export class Seconds {
  /** @param {{take: (second: any) => void, opened: () => void, broken: (why: string) => void}} listener */
  constructor(listener) {
    this.listener = listener;
    /** @type {AbortController | null} */
    this.controller = null;
    /** @type {number | undefined} */
    this.hiding = undefined;
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
        await read(controller.signal, this.listener.take, () => {
          this.wait = 1000;
          this.listener.opened();
        });
      } catch (error) {
        if (controller.signal.aborted) break;
        // Each browser has its own words for a server that does not answer.
        this.listener.broken(error instanceof TypeError ? "weir does not answer" : error.message);
      }
      await new Promise((next) => {
        setTimeout(next, this.wait);
      });
      this.wait = Math.min(15_000, this.wait * 2);
    }
  }

  stop() {
    this.controller?.abort();
    this.controller = null;
  }
}
