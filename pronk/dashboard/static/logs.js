// The logs of a run's processes: one at a time, followed while it grows.

import { ago, ask, byId, fill, make } from "/static/shared.js";

const MOST_LETTERS = 400_000; // kept on the page

export class LogView {
  constructor(run) {
    this.run = run;
    this.select = byId("log");
    this.text = byId("log-text");
    this.forget();
    this.select.addEventListener("change", () => { this.chosen = true; this.forget(); this.look(); });
  }

  forget() {
    [this.after, this.file] = [0, "0"];
    this.text.textContent = "";
  }

  // `preferred`: the log to show first.
  offer(logs, now, preferred) {
    fill(this.select, logs.map((log) => [log.name, Boolean(log.bytes)]), () => logs.map((log) => make("option", { value: log.name, selected: log.name === this.select.value }, log.bytes ? log.name : `${log.name} (empty)`)));
    byId("h-logs").parentElement.hidden = logs.length === 0;
    if (!this.chosen && logs.length) {
      this.chosen = true;
      this.choose(logs.some((log) => log.name === preferred) ? preferred : (logs.find((log) => log.bytes) ?? logs[0]).name);
    }
    const log = logs.find((one) => one.name === this.select.value);
    byId("log-about").textContent = log ? `${log.bytes ? `last written ${ago(now - log.changed)}` : "nothing was written to it"}` : "";
  }

  choose(name) {
    this.select.value = name;
    this.forget();
    return this.look();
  }

  // Add what is new; stay at the end if the reader is there.
  async look() {
    const name = this.select.value;
    if (!name) return;
    const answer = await ask("log", { run: this.run, log: name, after: this.after, file: this.file });
    if (name !== this.select.value) return;
    const first = this.file === "0";
    const box = this.text;
    const atEnd = first || box.scrollTop + box.clientHeight > box.scrollHeight - 30;
    if (!answer.goes_on && !first) box.textContent = "";
    const gap = answer.skipped > 0 ? `… ${answer.skipped.toLocaleString("en")} bytes before this are not shown …\n` : "";
    [this.after, this.file] = [answer.after, answer.file];
    if (!answer.text) return;
    box.textContent = (box.textContent + gap + answer.text).slice(-MOST_LETTERS);
    if (atEnd && byId("log-follow").checked) box.scrollTop = box.scrollHeight;
  }
}

export const logOfActor = (actor) => `actor-${String(actor).padStart(3, "0")}.log`;
