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
export class Rates {}
