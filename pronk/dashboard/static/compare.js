// Several runs side by side: their curves in one chart, and the settings in which they differ.

import { ask, AXES, byId, fill, live, make, remembered } from "/static/shared.js";
import { LineChart } from "/static/chart.js";
import { Curve } from "/static/curve.js";

const names = [...new Set(new URLSearchParams(location.search).getAll("run"))];
const curves = names.map((name) => new Curve(name, "metrics", 1));
const charts = { episode_return: "Return", steps_per_second: "Steps per second", entropy: "Entropy", policy_lag: "Policy lag, in updates" };
const drawn = Object.fromEntries(Object.entries(charts).map(([key, title]) => [key, new LineChart(byId("curves"), { title, height: 240, from: key === "steps_per_second" ? [0] : [] })]));
byId("curves").hidden = names.length === 0;
byId("choose").open = names.length < 2;
remembered(byId("axis"), "axis", Object.fromEntries(Object.entries(AXES).map(([key, axis]) => [key, axis.label])), draw);

function draw() {
  const axis = byId("axis").value;
  for (const [key, chart] of Object.entries(drawn)) {
    chart.show(curves.map((curve, i) => ({ name: names[i], x: curve.column(axis), y: curve.column(key) })), AXES[axis]);
  }
}

function choices(runs) {
  const boxes = runs.map((run) => make("label", {}, make("input", { type: "checkbox", name: "run", value: run.name, checked: names.includes(run.name) }), run.name));
  return [make("div", { class: "choices" }, boxes), make("button", { type: "submit" }, "Compare the chosen")];
}

function table({ runs, rows, same }) {
  if (runs.length < 2) return make("p", { class: "note card" }, "Choose two runs or more to see in which settings they differ.");
  const rest = make("p", { class: "dim small" }, `${same} other settings are the same in all.`);
  if (!rows.length) return make("p", { class: "note card" }, "The runs have the same settings.");
  const cell = (value) => make("td", { class: value === null ? "absent" : "mono" }, value ?? "not there");
  return [
    make("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": "Settings that differ" }, make("table", { class: "settings" },
      make("caption", { class: "unseen" }, "Settings that differ between the runs"),
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Key"), runs.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, rows.map(({ key, values }) => make("tr", {}, make("th", { scope: "row", class: "mono" }, key), values.map(cell)))))),
    rest,
  ];
}

async function look() {
  const [all, difference] = await Promise.all([ask("runs"), ask("difference", { run: names }), ...curves.map((curve) => curve.load())]);
  fill(byId("choice"), all.runs.map((run) => run.name), () => choices(all.runs));
  fill(byId("settings"), difference, () => table(difference));
  draw();
  return all.runs.some((run) => names.includes(run.name) && run.state === "running") ? 2 : 5;
}
live(look);
