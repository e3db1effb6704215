// The columns of one record of a run, kept up to date: only what is new is asked for, and old points are thinned.

import { ask } from "/static/shared.js";

const MOST = 1500; // points kept; then every other old one goes
const MARGIN = 0.05; // of a zoomed stretch, read on either side of it so that lines reach its edges

export class Curve {
  constructor(run, kind, part) {
    this.question = { run, kind };
    this.part = part;
    this.forget();
  }

  forget() {
    this.columns = {};
    this.detail = null; // columns of a stretch that is looked at closely
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

  // Read a stretch of a long record again, with more of its lines. Without a range, everything is shown.
  async zoom(axis, range) {
    this.range = range;
    this.detail = null;
    if (!range || !this.sampled) return;
    const room = (range.right - range.left) * MARGIN;
    const answer = await ask("curve", { ...this.question, axis, from: range.left - room, to: range.right + room });
    if (this.range === range) this.detail = answer.columns; // else the view has changed meanwhile
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

  // Of everything, whatever is looked at.
  all(key) { return this.columns[key] ?? Array(this.length).fill(null); }

  column(key) {
    if (!this.detail) return this.all(key);
    return this.detail[key] ?? Array(Object.values(this.detail)[0]?.length ?? 0).fill(null);
  }
}
