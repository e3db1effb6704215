// Several runs side by side: their curves in one chart, seeds as one line, and the settings in which they differ.

import { ask, byId, fill, live, make } from "/static/shared.js";
import { AXES, AXIS_NAMES, remembered, SMOOTHINGS } from "/static/scale.js";
import { LineChart } from "/static/chart.js";
import { Curve } from "/static/curve.js";
import { meanOf, smoothed } from "/static/series.js";
import { onZoom, zoomTo } from "/static/view.js";

const SEEDS = { range: "mean, lowest to highest", deviation: "mean ± deviation", each: "each run by itself" };
const names = [...new Set(new URLSearchParams(location.search).getAll("run"))];
const curves = Object.fromEntries(names.map((name) => [name, new Curve(name, "metrics", 1)]));
const charts = {
  episode_return: { title: "Return" },
  steps_per_second: { title: "Speed", unit: "steps/s", from: [0] },
  entropy: { title: "Entropy", unit: "nats" },
  policy_lag: { title: "Policy lag", unit: "updates", from: [0] },
};
const drawn = Object.fromEntries(Object.entries(charts).map(([key, options]) => [key, new LineChart(byId("curves"), { height: 240, ...options })]));
let groups = [];
byId("curves").hidden = names.length === 0;
byId("choose").open = names.length < 2;
remembered(byId("axis"), "axis", AXIS_NAMES, () => zoomTo(null));
remembered(byId("smooth"), "smooth", SMOOTHINGS, draw);
remembered(byId("seeds"), "seeds", SEEDS, draw);
onZoom(async (range) => {
  await Promise.all(Object.values(curves).map((curve) => curve.zoom(byId("axis").value, range)));
  draw();
});

function draw() {
  const [axis, smooth, seeds] = [byId("axis").value, Number(byId("smooth").value), byId("seeds").value];
  const line = (name, key) => ({ name, x: curves[name].column(axis), y: curves[name].column(key) });
  for (const [key, chart] of Object.entries(drawn)) {
    const each = names.map((name) => line(name, key));
    if (seeds === "each" || groups.every((group) => group.runs.length < 2)) {
      chart.show(each, AXES[axis], { smooth });
      continue;
    }
    const lines = groups.flatMap((group) => {
      const members = group.runs.map((name) => line(name, key));
      const mean = members.length > 1 ? meanOf(members.map((one) => smoothed(one, smooth)), seeds) : null;
      return mean ? [{ name: `${group.label} (${group.seeds} ${group.seeds === 1 ? "seed" : "seeds"})`, ...mean }] : members.map((one) => smoothed(one, smooth));
    });
    chart.show(lines, AXES[axis], { samples: each });
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
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Key"), runs.map((name) => make("th", { scope: "col" }, make("a", { href: `/run?run=${encodeURIComponent(name)}` }, name))))),
      make("tbody", {}, rows.map(({ key, values }) => make("tr", {}, make("th", { scope: "row", class: "mono" }, key), values.map(cell)))))),
    rest,
  ];
}

async function look() {
  const [all, difference] = await Promise.all([ask("runs"), ask("difference", { run: names }), ...Object.values(curves).map((curve) => curve.load())]);
  groups = difference.groups;
  byId("seeds").parentElement.hidden = groups.every((group) => group.runs.length < 2);
  fill(byId("choice"), all.runs.map((run) => run.name), () => choices(all.runs));
  fill(byId("settings"), difference, () => table(difference));
  draw();
  return all.runs.some((run) => names.includes(run.name) && run.state === "running") ? 2 : 5;
}
live(look);
