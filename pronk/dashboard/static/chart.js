// Charts in SVG: lines over a common axis. Each says in words what it shows, can be walked with the arrow keys, zoomed by
// dragging or with + and -, and has its samples in a table.

import { draw, make, short } from "/static/shared.js";
import { tickLabels, ticks } from "/static/scale.js";
import { sampleTable } from "/static/samples.js";
import { isKnown, lastOf, nearest, smoothed } from "/static/series.js";
import { charts, moveCursor, view, zoomTo } from "/static/view.js";

const DASHES = ["", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2"];
const COLOURS = 6;
const MARGIN = { right: 14, top: 10, bottom: 24 };
const LETTER = 6.7; // pixels of a digit of a tick's label
const FEW = 12; // samples of a line that are drawn as dots, too
const DOT = 4; // pixels around a dot
const DRAG = 6; // pixels after which a press is a drag

export class LineChart {
  // `options`: title, unit, height, from (values that the vertical axis must show), format (of values), labels (of ticks)
  constructor(parent, options) {
    this.options = { height: 190, format: short, labels: tickLabels, ...options };
    this.lines = [];
    this.where = make("span", { class: "where" });
    this.legend = make("div", { class: "legend" });
    this.plot = draw("svg", { class: "plot", role: "img", tabindex: "0", height: this.options.height });
    this.spoken = make("p", { class: "unseen", "aria-live": "polite" });
    this.table = make("details", { ontoggle: () => this.tabulate() }, make("summary", {}, "Numbers"));
    const unit = options.unit ? make("span", { class: "unit" }, options.unit) : null;
    this.figure = make(
      "figure", { class: "chart card" },
      make("figcaption", {}, make("span", { class: "title" }, options.title), unit, this.where, this.legend),
      this.plot, this.spoken, this.table,
    );
    this.listen();
    new ResizeObserver(() => { if (this.plot.clientWidth !== this.width) this.redraw(); }).observe(this.plot);
    parent.append(this.figure);
    charts.add(this);
  }

  listen() {
    const { plot } = this;
    plot.addEventListener("pointerdown", (event) => { if (event.button === 0) this.pressed = event.offsetX; });
    plot.addEventListener("pointermove", (event) => {
      moveCursor(this.valueAt(event.offsetX));
      this.drag(event.offsetX);
    });
    plot.addEventListener("pointerup", (event) => this.release(event.offsetX));
    plot.addEventListener("pointerleave", () => { this.pressed = null; moveCursor(null); });
    plot.addEventListener("dblclick", () => zoomTo(null));
    plot.addEventListener("blur", () => moveCursor(null));
    plot.addEventListener("keydown", (event) => this.walk(event));
  }

  // `lines`: [{ name, x, y, low, high, dots }]; `marks`: [{ y, label }]; `axis`: one of AXES; `smooth`: share of the axis.
  // `samples`: lines of the table, where the drawn ones were computed from several.
  show(lines, axis, { marks = [], smooth = 0, samples = null } = {}) {
    this.samples = samples ?? lines;
    this.lines = lines.map((line, index) => ({
      ...(line.dots ? line : smoothed(line, smooth)), colour: (line.colour ?? index) % COLOURS, dash: line.solid ? "" : DASHES[index % DASHES.length],
    }));
    this.axis = axis;
    this.marks = marks.filter((mark) => Number.isFinite(mark.y));
    this.redraw();
    if (this.table.open) this.tabulate();
  }

  within(x) { return !view.range || (x >= view.range.left && x <= view.range.right); }

  bounds() {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const line of this.lines) {
      for (let i = 0; i < line.x.length; i++) {
        if (!isKnown(line.y[i]) || !isKnown(line.x[i]) || !this.within(line.x[i])) continue;
        const others = [line.y[i], line.low?.[i], line.high?.[i], line.raw?.[i]].filter(isKnown);
        left = Math.min(left, line.x[i]); right = Math.max(right, line.x[i]);
        low = Math.min(low, ...others); high = Math.max(high, ...others);
      }
    }
    if (left === Infinity) return null;
    for (const y of [...this.marks.map((mark) => mark.y), ...(this.options.from ?? [])]) { low = Math.min(low, y); high = Math.max(high, y); }
    if (view.range) ({ left, right } = view.range);
    else if (left <= right / 2 || left === right) left = Math.min(0, left); // an axis begins at 0, unless that would be far away
    if (right === left) right = left + 1;
    if (high === low) [low, high] = [low - (Math.abs(low) || 1) * 0.5, high + (Math.abs(high) || 1) * 0.5];
    const room = (high - low) * 0.06;
    return { left, right, low: (this.options.from ?? []).includes(low) ? low : low - room, high: high + room };
  }

  redraw() {
    this.width = this.plot.clientWidth;
    const { height } = this.options;
    this.plot.replaceChildren();
    this.range = this.width > 0 ? this.bounds() : null;
    this.plot.setAttribute("aria-label", this.words());
    if (!this.range) {
      this.plot.append(draw("text", { x: 4, y: 40 }, view.range ? "nothing in this stretch" : "nothing yet"));
      this.legend.replaceChildren();
      return;
    }
    this.plot.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.drawAxes(height);
    // What is outside of the axes is cut off by an inner picture with the same coordinates. Dots at its edge stay whole.
    const [left, across, down] = [this.left - DOT, this.width - this.left - MARGIN.right + 2 * DOT, height - MARGIN.bottom + DOT];
    const inner = draw("svg", { x: left, y: 0, width: across, height: down, viewBox: `${left} 0 ${across} ${down}` });
    for (const line of this.lines) this.drawLine(line, inner);
    this.plot.append(inner);
    this.drawMarks();
    this.pointer = draw("g");
    this.plot.append(this.pointer);
    this.point();
  }

  toX(value) { return this.left + ((value - this.range.left) / (this.range.right - this.range.left)) * (this.width - this.left - MARGIN.right); }
  toY(value) { return MARGIN.top + ((this.range.high - value) / (this.range.high - this.range.low)) * (this.options.height - MARGIN.top - MARGIN.bottom); }
  valueAt(pixel) {
    if (!this.range) return null;
    const part = (pixel - this.left) / (this.width - this.left - MARGIN.right);
    return this.range.left + Math.min(1, Math.max(0, part)) * (this.range.right - this.range.left);
  }

  drawAxes(height) {
    const bottom = height - MARGIN.bottom;
    const rows = ticks(this.range.low, this.range.high, height < 160 ? 3 : 4);
    const labels = this.options.labels(rows);
    this.left = 14 + LETTER * Math.max(3, ...labels.map((label) => label.length));
    rows.forEach((value, i) => {
      const y = this.toY(value);
      this.plot.append(draw("line", { class: "grid", x1: this.left, x2: this.width - MARGIN.right, y1: y, y2: y }));
      this.plot.append(draw("text", { x: this.left - 7, y: y + 4, "text-anchor": "end" }, labels[i]));
    });
    this.plot.append(draw("line", { class: "axis", x1: this.left, x2: this.width - MARGIN.right, y1: bottom, y2: bottom }));
    const columns = this.axis.ticks(this.range.left, this.range.right, Math.max(2, this.width / 95));
    const words = this.axis.labels(columns);
    columns.forEach((value, i) => {
      const x = this.toX(value);
      const text = i === columns.length - 1 && this.axis.unit ? `${words[i]} ${this.axis.unit}` : words[i];
      const half = (text.length * LETTER) / 2;
      const anchor = x + half > this.width ? "end" : x - half < 0 ? "start" : "middle";
      this.plot.append(draw("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
      this.plot.append(draw("text", { x: anchor === "end" ? Math.min(this.width - 1, x + MARGIN.right) : x, y: bottom + 17, "text-anchor": anchor }, text));
    });
  }

  path(x, y) {
    let [path, pen] = ["", "M"];
    for (let i = 0; i < x.length; i++) {
      if (!isKnown(y[i]) || !isKnown(x[i])) { pen = "M"; continue; }
      path += `${pen}${this.toX(x[i]).toFixed(1)} ${this.toY(y[i]).toFixed(1)}`;
      pen = "L";
    }
    return path;
  }

  drawLine(line, place) {
    const seen = line.x.map((_, i) => i).filter((i) => isKnown(line.y[i]) && isKnown(line.x[i]));
    if (line.low && seen.length > 1) {
      const edge = (values) => (i) => `${this.toX(line.x[i]).toFixed(1)} ${this.toY(values[i] ?? line.y[i]).toFixed(1)}`;
      const round = [...seen.map(edge(line.high)), ...[...seen].reverse().map(edge(line.low))].join("L");
      place.append(draw("path", { class: `band f${line.colour}`, d: `M${round}Z` }));
    }
    for (const thin of line.raw ? [line.raw] : []) place.append(draw("path", { class: `line thin s${line.colour}`, d: this.path(line.x, thin) }));
    place.append(draw("path", { class: `line s${line.colour}`, d: this.path(line.x, line.y), "stroke-dasharray": line.dash }));
    if (line.dots || seen.length <= FEW) {
      for (const i of seen) {
        const [x, y] = [this.toX(line.x[i]), this.toY(line.y[i])];
        if (line.low && seen.length === 1) place.append(draw("line", { class: `line s${line.colour}`, x1: x, x2: x, y1: this.toY(line.low[i]), y2: this.toY(line.high[i]) }));
        place.append(draw("circle", { class: `f${line.colour}`, cx: x, cy: y, r: line.dots ? 3 : 2.5 }));
      }
    }
  }

  drawMarks() {
    for (const mark of this.marks) {
      const y = this.toY(mark.y);
      this.plot.append(draw("line", { class: "mark", x1: this.left, x2: this.width - MARGIN.right, y1: y, y2: y }));
      this.plot.append(draw("text", { class: "mark-label", x: this.left + 5, y: y > MARGIN.top + 16 ? y - 5 : y + 14 }, mark.label));
    }
  }

  // The legend is the read-out: the values under the cursor, or the last ones.
  point() {
    if (!this.range || !this.pointer) return;
    const { cursor } = view;
    const inside = cursor !== null && cursor >= this.range.left && cursor <= this.range.right;
    this.pointer.replaceChildren();
    if (inside) this.pointer.append(draw("line", { class: "cursor", x1: this.toX(cursor), x2: this.toX(cursor), y1: MARGIN.top, y2: this.options.height - MARGIN.bottom }));
    this.where.textContent = inside ? `at ${this.axis.short(cursor)}${this.axis.unit ? ` ${this.axis.unit}` : ""}` : "";
    this.legend.replaceChildren(...this.lines.map((line) => {
      const i = inside ? nearest(line, cursor) : lastOf(line);
      if (inside && i >= 0 && this.within(line.x[i])) this.pointer.append(draw("circle", { class: `f${line.colour}`, cx: this.toX(line.x[i]), cy: this.toY(line.y[i]), r: 4 }));
      const key = draw("svg", { "aria-hidden": "true", viewBox: "0 0 20 8" });
      key.append(draw("line", { class: `line s${line.colour}`, x1: 0, x2: 20, y1: 4, y2: 4, "stroke-dasharray": line.dash }));
      return make("span", {}, key, line.name, make("b", {}, i < 0 ? "–" : this.options.format(line.y[i])));
    }));
  }

  drag(pixel) {
    if (!isKnown(this.pressed) || Math.abs(pixel - this.pressed) < DRAG || !this.pointer) return;
    const [from, to] = [this.pressed, pixel].sort((a, b) => a - b);
    this.pointer.append(draw("rect", { class: "chosen", x: from, width: to - from, y: MARGIN.top, height: this.options.height - MARGIN.top - MARGIN.bottom }));
  }

  release(pixel) {
    const from = this.pressed;
    this.pressed = null;
    if (!isKnown(from) || Math.abs(pixel - from) < DRAG) return;
    const [left, right] = [this.valueAt(from), this.valueAt(pixel)].sort((a, b) => a - b);
    if (right > left) zoomTo({ left, right });
  }

  // Half or twice of what is seen, around the cursor or the middle.
  zoomBy(factor) {
    if (!this.range) return;
    const { left, right } = this.range;
    const at = view.cursor ?? (left + right) / 2;
    if (factor > 1 && !view.range) return;
    const places = this.lines.flatMap((line) => line.x.filter(isKnown));
    const range = { left: at - (at - left) * factor, right: at + (right - at) * factor };
    const everything = range.left <= Math.min(...places) && range.right >= Math.max(...places);
    zoomTo(everything ? null : range);
  }

  walk(event) {
    if (["+", "=", "-", "0"].includes(event.key)) {
      event.preventDefault();
      return event.key === "0" ? zoomTo(null) : this.zoomBy(event.key === "-" ? 2 : 0.5);
    }
    const line = this.lines.find((one) => one.x.length);
    if (!line || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") return view.cursor === null ? zoomTo(null) : moveCursor(null);
    const seen = line.x.map((_, i) => i).filter((i) => isKnown(line.y[i]) && this.within(line.x[i]));
    if (!seen.length) return;
    const stride = Math.max(1, Math.round(seen.length / 50));
    const now = view.cursor === null ? seen.length - 1 : Math.max(0, seen.indexOf(nearest(line, view.cursor)));
    const next = { ArrowLeft: now - stride, ArrowRight: now + stride, Home: 0, End: seen.length - 1 }[event.key];
    moveCursor(line.x[seen[Math.min(seen.length - 1, Math.max(0, next))]]);
    const values = [...this.legend.children].map((entry) => `${entry.childNodes[1].textContent} ${entry.lastChild.textContent}`);
    this.spoken.textContent = `${this.where.textContent}: ${values.join(", ")}`;
  }

  words() {
    const described = this.lines.map((line) => {
      const values = line.y.filter((y, i) => isKnown(y) && this.within(line.x[i]));
      if (!values.length) return `${line.name} has no values yet`;
      const { format } = this.options;
      return `${line.name} from ${format(values[0])} to ${format(values.at(-1))}, between ${format(Math.min(...values))} and ${format(Math.max(...values))}`;
    });
    return `Chart of ${this.options.title} over ${this.axis?.label ?? "steps"}: ${described.join("; ") || "nothing yet"}. Arrow keys read values, plus and minus zoom.`;
  }

  tabulate() {
    if (!this.table.open || !this.axis) return;
    const { format, title } = this.options;
    this.table.replaceChildren(this.table.firstChild, sampleTable(this.samples, this.axis, format, title, (x) => this.within(x)));
  }
}
