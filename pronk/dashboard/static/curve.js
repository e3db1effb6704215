// The columns of one record of a run, kept up to date: only what is new is asked for, and old points are thinned.

import { ask } from "/static/shared.js";

const MOST = 1500; // points kept; then every other old one goes

export class Curve {
  constructor(run, kind, part) {
    this.question = { run, kind };
    this.part = part;
    this.forget();
  }

  forget() {
    this.columns = {};
    this.length = 0;
    this.after = null;
    this.sampled = false;
  }

  async load() {
    const place = this.after === null ? { part: this.part } : { after: this.after, file: this.file };
    const answer = await ask("curve", { ...this.question, ...place });
    if (!answer.goes_on) this.forget();
    this.append(answer.columns);
    this.after = answer.after;
    this.file = answer.file;
    this.sampled ||= answer.sampled;
  }

  append(columns) {
    const count = Math.max(0, ...Object.values(columns).map((column) => column.length));
    if (count === 0) return;
    for (const key of new Set([...Object.keys(this.columns), ...Object.keys(columns)])) {
      const old = this.columns[key] ?? Array(this.length).fill(null);
      this.columns[key] = old.concat(columns[key] ?? Array(count).fill(null));
    }
    this.length += count;
    if (this.length > MOST) this.thin();
  }

  thin() {
    const keep = (_, i) => i % 2 === 0 || i > this.length - MOST / 4;
    for (const key of Object.keys(this.columns)) this.columns[key] = this.columns[key].filter(keep);
    this.length = Object.values(this.columns)[0].length;
    this.sampled = true;
  }

  names() { return Object.keys(this.columns); }

  column(key) { return this.columns[key] ?? Array(this.length).fill(null); }
}
