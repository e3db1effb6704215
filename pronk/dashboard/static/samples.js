// The table below a chart: the samples as they were recorded, none of them invented.

import { make, whole } from "/static/shared.js";
import { isKnown } from "/static/series.js";

const MOST_ROWS = 200;

// Lines that share their places share a column for them; others have one of their own.
export function sampleTable(lines, axis, format, title, within) {
  const columns = [];
  for (const line of lines) {
    const same = columns.find((one) => one.x === line.x);
    if (same) same.lines.push(line);
    else columns.push({ x: line.x, lines: [line] });
  }
  for (const one of columns) {
    one.at = one.x.map((_, i) => i).filter((i) => isKnown(one.x[i]) && within(one.x[i]) && one.lines.some((line) => isKnown(line.y[i])));
  }
  const longest = Math.max(0, ...columns.map((one) => one.at.length));
  if (!longest) return make("p", {}, "No samples here.");
  const every = Math.ceil(longest / MOST_ROWS);
  for (const one of columns) one.at = one.at.filter((_, i) => i % every === 0 || i === one.at.length - 1);
  const head = columns.flatMap((one) => [make("th", { scope: "col", class: "number" }, axis.label), ...one.lines.map((line) => make("th", { scope: "col", class: "number" }, line.name))]);
  const rows = Array.from({ length: Math.max(...columns.map((one) => one.at.length)) }, (_, row) => make("tr", {}, columns.flatMap((one) => cells(one, row, axis, format))));
  const told = every > 1 ? `${whole(longest)} samples, every ${every === 2 ? "second" : every === 3 ? "third" : `${every}th`} shown` : `${whole(longest)} ${longest === 1 ? "sample" : "samples"}`;
  return make("div", {}, make("p", { class: "dim" }, told), make("div", { class: "rows", tabindex: "0", role: "region", "aria-label": `Samples of ${title}` },
    make("table", {}, make("caption", { class: "unseen" }, title), make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows))));
}

function cells(one, row, axis, format) {
  const i = one.at[row];
  if (i === undefined) return [make("td"), ...one.lines.map(() => make("td"))];
  const place = axis.label === "time" ? axis.short(one.x[i]) : whole(one.x[i]);
  return [make("th", { scope: "row", class: "number" }, place), ...one.lines.map((line) => make("td", { class: "number" }, isKnown(line.y[i]) ? format(line.y[i]) : ""))];
}
