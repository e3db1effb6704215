// Small pictures that are no curves over an axis: a histogram and a spark line.

import { draw, short } from "/static/shared.js";
import { ticks } from "/static/scale.js";

const [TOP, BOTTOM] = [10, 24]; // pixels

// Bars of counts: [{ label, count }]. Heights are shares of all.
export function histogram(bins, title, width, height = 190) {
  const all = bins.reduce((sum, bin) => sum + bin.count, 0) || 1;
  const most = Math.max(...bins.map((bin) => bin.count), 1);
  const bottom = height - BOTTOM;
  const plot = draw("svg", { class: "plot bars", role: "img", height, viewBox: `0 0 ${width} ${height}`, "aria-label": title });
  const step = (width - 44) / bins.length;
  const longest = 14 + 6.7 * Math.max(...bins.map((bin) => bin.label.length)); // pixels of a label
  for (const value of ticks(0, most / all, 3)) {
    const y = bottom - (value * all / most) * (bottom - TOP);
    plot.append(draw("line", { class: "grid", x1: 40, x2: width, y1: y, y2: y }), draw("text", { x: 34, y: y + 4, "text-anchor": "end" }, `${short(value * 100)}%`));
  }
  bins.forEach((bin, i) => {
    const tall = (bin.count / most) * (bottom - TOP);
    const wide = Math.min(56, step * 0.84);
    const box = draw("rect", { x: 42 + (i + 0.5) * step - wide / 2, width: Math.max(1, wide), y: bottom - tall, height: tall, rx: 2 });
    box.append(draw("title", {}, `${bin.label}: ${((bin.count / all) * 100).toFixed(1)}%`));
    plot.append(box);
    if (i % Math.ceil(longest / step) === 0) plot.append(draw("text", { x: 42 + (i + 0.5) * step, y: bottom + 17, "text-anchor": "middle" }, bin.label));
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
