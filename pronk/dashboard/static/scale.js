// Axes: round ticks, and the same unit and number of digits for all of them.

import { duration, make, short } from "/static/shared.js";

const CLOCK = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400]; // seconds
const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"], [1, ""]];

function multiples(low, high, step) {
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step + 0); // not -0
  return found;
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9)) * power;
}

// Round values that cover a range: 0, 50, 100, ...
export function ticks(low, high, count) {
  return multiples(low, high, roundStep((high - low) / count));
}

// Likewise for seconds: 0 s, 30 s, 1 min, ...
export function timeTicks(low, high, count) {
  const rough = (high - low) / count;
  if (rough < 1) return ticks(low, high, count);
  return multiples(low, high, CLOCK.find((step) => step >= rough) ?? roundStep(rough / 86400) * 86400);
}

// Labels of ticks: 0, 500K, 1,000K differ in their first digits; 1.002M and 1.004M need three decimals.
export function tickLabels(values) {
  const largest = Math.max(...values.map(Math.abs), 0);
  const step = values.length > 1 ? values[1] - values[0] : largest || 1;
  if (largest > 0 && (largest < 1e-3 || step < 1e-6)) return values.map((value) => (value === 0 ? "0" : value.toExponential(1)));
  const [unit, letter] = largest >= 1e4 ? UNITS.find(([size]) => largest >= size) : [1, ""];
  const decimals = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  return values.map((value) => (value === 0 ? "0" : (value / unit).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) + letter));
}

export function timeLabels(values) {
  const step = values.length > 1 ? values[1] - values[0] : values[0];
  if (step < 1) return tickLabels(values).map((label) => `${label} s`);
  return values.map((value) => (value === 0 ? "0" : duration(value).replace(/ 0 (s|min|h)$/, "")));
}

const counted = { ticks, labels: tickLabels, short };
export const AXES = {
  env_steps: { label: "steps", unit: "steps", ...counted },
  frames: { label: "frames", unit: "frames", ...counted },
  wall_seconds: { label: "time", unit: "", ticks: timeTicks, labels: timeLabels, short: duration },
};

// A select that remembers its value from page to page.
export function remembered(select, name, options, changed) {
  for (const [value, label] of Object.entries(options)) select.append(make("option", { value }, label));
  const kept = localStorage.getItem(name);
  if (kept in options) select.value = kept;
  select.addEventListener("change", () => { localStorage.setItem(name, select.value); changed(); });
}

export const AXIS_NAMES = Object.fromEntries(Object.entries(AXES).map(([key, axis]) => [key, axis.label]));
export const SMOOTHINGS = { 0: "off", 0.02: "a little", 0.05: "more", 0.15: "much" }; // shares of the axis
