// Charts in SVG: lines over a common axis, a histogram, a spark line. Each says in words what it shows, can be walked
// with the arrow keys, and has its numbers in a table.

import { make, short } from "/static/shared.js";

const SPACE = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2"];
const COLOURS = 6;
const MARGIN = { left: 50, right: 12, top: 10, bottom: 24 };

function draw(tag, attributes = {}, text) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Round values that cover a range: 0, 50, 100, ...
export function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step + 0); // not -0
  return found;
}

// All charts of a page follow one cursor.
const charts = new Set();
let cursor = null;
function moveCursor(x) {
  cursor = x;
  for (const chart of charts) chart.point();
}

export class LineChart {
  // `options`: title, height, from (a value that the vertical axis must show), format (of values)
  constructor(parent, options) {
    this.options = { height: 190, format: short, ...options };
    this.lines = [];
    this.where = make("span", { class: "where" });
    this.legend = make("div", { class: "legend" });
    this.plot = draw("svg", { class: "plot", role: "img", tabindex: "0", height: this.options.height });
    this.spoken = make("p", { class: "unseen", "aria-live": "polite" });
    this.table = make("details", { ontoggle: () => this.tabulate() }, make("summary", {}, "Numbers"));
    this.figure = make(
      "figure", { class: "chart card" },
      make("figcaption", {}, make("span", { class: "title" }, options.title), this.where, this.legend),
      this.plot, this.spoken, this.table,
    );
    this.plot.addEventListener("pointermove", (event) => moveCursor(this.valueAt(event.offsetX)));
    this.plot.addEventListener("pointerleave", () => moveCursor(null));
    this.plot.addEventListener("blur", () => moveCursor(null));
    this.plot.addEventListener("keydown", (event) => this.walk(event));
    new ResizeObserver(() => { if (this.plot.clientWidth !== this.width) this.redraw(); }).observe(this.plot);
    parent.append(this.figure);
    charts.add(this);
  }

  // `lines`: [{ name, x, y, low, high, dots }]; `marks`: [{ y, label }]; `axis`: one of AXES
  show(lines, axis, marks = []) {
    this.lines = lines.map((line, index) => ({ ...line, colour: (line.colour ?? index) % COLOURS, dash: DASHES[index % DASHES.length] }));
    this.axis = axis;
    this.marks = marks.filter((mark) => Number.isFinite(mark.y));
    this.redraw();
    if (this.table.open) this.tabulate();
  }

  bounds() {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const line of this.lines) {
      for (let i = 0; i < line.x.length; i++) {
        if (line.y[i] === null || line.x[i] === null || line.y[i] === undefined) continue;
        left = Math.min(left, line.x[i]); right = Math.max(right, line.x[i]);
        low = Math.min(low, line.low?.[i] ?? line.y[i]); high = Math.max(high, line.high?.[i] ?? line.y[i]);
      }
    }
    if (left === Infinity) return null;
    for (const y of [...this.marks.map((mark) => mark.y), ...(this.options.from ?? [])]) { low = Math.min(low, y); high = Math.max(high, y); }
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
      this.plot.append(draw("text", { x: 4, y: 40 }, "nothing yet"));
      this.legend.replaceChildren();
      return;
    }
    this.plot.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.drawAxes(height);
    for (const line of this.lines) this.drawLine(line);
    this.drawMarks();
    this.pointer = draw("g");
    this.plot.append(this.pointer);
    this.point();
  }

  toX(value) { return MARGIN.left + ((value - this.range.left) / (this.range.right - this.range.left)) * (this.width - MARGIN.left - MARGIN.right); }
  toY(value) { return MARGIN.top + ((this.range.high - value) / (this.range.high - this.range.low)) * (this.options.height - MARGIN.top - MARGIN.bottom); }
  valueAt(pixel) {
    if (!this.range) return null;
    const part = (pixel - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
    return this.range.left + Math.min(1, Math.max(0, part)) * (this.range.right - this.range.left);
  }

  drawAxes(height) {
    const bottom = height - MARGIN.bottom;
    for (const value of ticks(this.range.low, this.range.high, 4)) {
      const y = this.toY(value);
      this.plot.append(draw("line", { class: "grid", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: y, y2: y }));
      this.plot.append(draw("text", { x: MARGIN.left - 7, y: y + 4, "text-anchor": "end" }, this.options.format(value)));
    }
    this.plot.append(draw("line", { class: "axis", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: bottom, y2: bottom }));
    for (const value of ticks(this.range.left, this.range.right, Math.max(2, this.width / 95))) {
      const x = this.toX(value);
      this.plot.append(draw("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
      const anchor = x > this.width - 26 ? "end" : x < MARGIN.left + 12 ? "start" : "middle";
      this.plot.append(draw("text", { x, y: bottom + 17, "text-anchor": anchor }, this.axis.short(value)));
    }
  }

  drawLine(line) {
    let path = "", pen = "M";
    const seen = [];
    for (let i = 0; i < line.x.length; i++) {
      if (line.y[i] === null || line.y[i] === undefined || line.x[i] === null) { pen = "M"; continue; }
      path += `${pen}${this.toX(line.x[i]).toFixed(1)} ${this.toY(line.y[i]).toFixed(1)}`;
      seen.push(i);
      pen = "L";
    }
    if (line.low && seen.length) {
      const edge = (values) => (i) => `${this.toX(line.x[i]).toFixed(1)} ${this.toY(values[i] ?? line.y[i]).toFixed(1)}`;
      const round = [...seen.map(edge(line.high)), ...[...seen].reverse().map(edge(line.low))].join("L");
      this.plot.append(draw("path", { class: `band f${line.colour}`, d: `M${round}Z` }));
    }
    this.plot.append(draw("path", { class: `line s${line.colour}`, d: path, "stroke-dasharray": line.dash }));
    if (line.dots || seen.length === 1) {
      for (const i of seen) this.plot.append(draw("circle", { class: `f${line.colour}`, cx: this.toX(line.x[i]), cy: this.toY(line.y[i]), r: 3 }));
    }
  }

  drawMarks() {
    for (const mark of this.marks) {
      const y = this.toY(mark.y);
      this.plot.append(draw("line", { class: "mark", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: y, y2: y }));
      this.plot.append(draw("text", { class: "mark-label", x: MARGIN.left + 5, y: y > MARGIN.top + 16 ? y - 5 : y + 14 }, mark.label));
    }
  }

  // The legend is the read-out: the values under the cursor, or the last ones.
  point() {
    if (!this.range || !this.pointer) return;
    const inside = cursor !== null && cursor >= this.range.left && cursor <= this.range.right;
    this.pointer.replaceChildren();
    if (inside) this.pointer.append(draw("line", { class: "cursor", x1: this.toX(cursor), x2: this.toX(cursor), y1: MARGIN.top, y2: this.options.height - MARGIN.bottom }));
    this.where.textContent = inside ? `at ${this.axis.short(cursor)}${this.axis.label === "time" ? "" : ` ${this.axis.label}`}` : "";
    this.legend.replaceChildren(...this.lines.map((line) => {
      const i = inside ? nearest(line, cursor) : lastOf(line);
      if (inside && i >= 0) this.pointer.append(draw("circle", { class: `f${line.colour}`, cx: this.toX(line.x[i]), cy: this.toY(line.y[i]), r: 4 }));
      const key = draw("svg", { "aria-hidden": "true", viewBox: "0 0 20 8" });
      key.append(draw("line", { class: `line s${line.colour}`, x1: 0, x2: 20, y1: 4, y2: 4, "stroke-dasharray": line.dash }));
      return make("span", {}, key, line.name, make("b", {}, i < 0 ? "–" : this.options.format(line.y[i])));
    }));
  }

  walk(event) {
    const line = this.lines.find((one) => one.x.length);
    if (!line || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") return moveCursor(null);
    const last = lastOf(line);
    const stride = Math.max(1, Math.round(line.x.length / 50));
    const now = cursor === null ? last : nearest(line, cursor);
    const next = { ArrowLeft: now - stride, ArrowRight: now + stride, Home: 0, End: last }[event.key];
    moveCursor(line.x[Math.min(last, Math.max(0, next))]);
    const values = [...this.legend.children].map((entry) => `${entry.childNodes[1].textContent} ${entry.lastChild.textContent}`);
    this.spoken.textContent = `${this.where.textContent}: ${values.join(", ")}`;
  }

  words() {
    const described = this.lines.map((line) => {
      const [first, last] = [line.y.findIndex((y) => y !== null && y !== undefined), lastOf(line)];
      if (last < 0) return `${line.name} has no values yet`;
      const values = line.y.filter((y) => y !== null && y !== undefined);
      const { format } = this.options;
      return `${line.name} from ${format(line.y[first])} to ${format(line.y[last])}, between ${format(Math.min(...values))} and ${format(Math.max(...values))}`;
    });
    return `Chart of ${this.options.title} over ${this.axis?.label ?? "steps"}: ${described.join("; ") || "nothing yet"}. Arrow keys read values.`;
  }

  tabulate() {
    if (!this.table.open || !this.range) return;
    const rows = Array.from({ length: 11 }, (_, i) => this.range.left + ((this.range.right - this.range.left) * i) / 10);
    const head = make("tr", {}, make("th", { scope: "col" }, this.axis.label), this.lines.map((line) => make("th", { scope: "col", class: "number" }, line.name)));
    const body = rows.map((x) => make("tr", {}, make("th", { scope: "row" }, this.axis.short(x)), this.lines.map((line) => {
      const i = nearest(line, x);
      return make("td", { class: "number" }, i < 0 ? "–" : this.options.format(line.y[i]));
    })));
    this.table.replaceChildren(this.table.firstChild, make("table", {}, make("caption", { class: "unseen" }, this.options.title), make("thead", {}, head), make("tbody", {}, body)));
  }
}

function lastOf(line) {
  for (let i = line.y.length - 1; i >= 0; i--) if (line.y[i] !== null && line.y[i] !== undefined) return i;
  return -1;
}

function nearest(line, x) {
  let best = -1;
  for (let i = 0; i < line.x.length; i++) {
    if (line.y[i] === null || line.y[i] === undefined) continue;
    if (best < 0 || Math.abs(line.x[i] - x) < Math.abs(line.x[best] - x)) best = i;
  }
  return best;
}

// Bars of counts: [{ label, count }]. Heights are shares of all.
export function histogram(bins, title, width, height = 190) {
  const all = bins.reduce((sum, bin) => sum + bin.count, 0) || 1;
  const most = Math.max(...bins.map((bin) => bin.count), 1);
  const bottom = height - MARGIN.bottom;
  const plot = draw("svg", { class: "plot bars", role: "img", height, viewBox: `0 0 ${width} ${height}`, "aria-label": title });
  const step = (width - 44) / bins.length;
  for (const value of ticks(0, most / all, 3)) {
    const y = bottom - (value * all / most) * (bottom - MARGIN.top);
    plot.append(draw("line", { class: "grid", x1: 40, x2: width, y1: y, y2: y }), draw("text", { x: 34, y: y + 4, "text-anchor": "end" }, `${short(value * 100)}%`));
  }
  bins.forEach((bin, i) => {
    const tall = (bin.count / most) * (bottom - MARGIN.top);
    const box = draw("rect", { x: 42 + i * step + step * 0.08, width: Math.max(1, step * 0.84), y: bottom - tall, height: tall, rx: 2 });
    box.append(draw("title", {}, `${bin.label}: ${((bin.count / all) * 100).toFixed(1)}%`));
    plot.append(box);
    if (i % Math.ceil((bins.length * 40) / width) === 0) plot.append(draw("text", { x: 42 + (i + 0.5) * step, y: bottom + 17, "text-anchor": "middle" }, bin.label));
  });
  return plot;
}

export function spark(values) {
  const plot = draw("svg", { class: "spark", viewBox: "0 0 130 30", "aria-hidden": "true" });
  if (values.length < 2) return plot;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const at = (value, i) => `${((i / (values.length - 1)) * 126 + 2).toFixed(1)} ${(high > low ? 27 - ((value - low) / (high - low)) * 24 : 15).toFixed(1)}`;
  plot.append(draw("path", { d: `M${values.map(at).join("L")}` }));
  return plot;
}
