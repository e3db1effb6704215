// The table of runs: sorted, filtered, chosen from; looked at again every two seconds.

import { ago, ask, bar, byId, fill, live, make, percent, pill, short, whole } from "/static/shared.js";
import { spark } from "/static/bars.js";
import { chips } from "/static/tags.js";
import { speedOf } from "/static/limit.js";

const COLUMNS = [
  { label: "Run", sort: (run) => run.name, cell: nameCell },
  { label: "State", less: true, sort: (run) => run.state, cell: (run) => make("td", { class: "less" }, pill(run.state, run.failure)) },
  { label: "Environment", less: true, sort: (run) => run.env, cell: (run) => make("td", { class: "less" }, run.env ?? "–") },
  { label: "Return", number: true, sort: (run) => run.latest.episode_return, cell: returnCell },
  { label: "Over time", less: true, cell: (run) => make("td", { class: "less" }, spark(run.sparks), make("span", { class: "unseen" }, sparkWords(run))) },
  { label: "Steps", number: true, sort: (run) => run.latest.env_steps, cell: stepsCell },
  { label: "Steps/s", number: true, less: true, sort: speedOf, cell: (run) => make("td", { class: "number less" }, short(speedOf(run))) },
  { label: "Last written", number: true, less: true, sort: (run) => run.changed, cell: (run) => make("td", { class: "number less" }, ago(now - run.changed)) },
];

let found = [];
let now = 0;
let sorting = null; // { column, down }; null: as the server gives them, those at work first
const chosen = new Set();

function nameCell(run) {
  const link = make("a", { href: `/run?run=${encodeURIComponent(run.name)}` }, run.name);
  const state = make("span", { class: "only-small" }, pill(run.state, run.failure)); // where there is no room for a column of its own
  const about = run.cause ? make("span", { class: "about cause" }, run.cause) : run.description ? make("span", { class: "about less" }, run.description) : null;
  return make("th", { scope: "row" }, link, " ", chips(run.tags), state, about);
}

function returnCell(run) {
  const goal = run.goal === null ? null : make("span", { class: "dim small" }, ` / ${short(run.goal)}`);
  return make("td", { class: "number", title: run.best === null ? null : `best seen ${short(run.best)}` }, make("b", {}, short(run.latest.episode_return)), goal);
}

function stepsCell(run) {
  const steps = run.latest.env_steps ?? 0;
  const part = run.total_steps ? steps / run.total_steps : 0;
  const label = run.total_steps ? `${percent(part)} of ${whole(run.total_steps)}` : "";
  return make("td", { class: "number", title: `${whole(steps)} steps` }, short(steps), " ", run.state === "running" ? bar(part, label) : null);
}

function sparkWords(run) {
  if (run.sparks.length < 2) return "no curve yet";
  return `from ${short(run.sparks[0])} to ${short(run.sparks.at(-1))}, best ${short(run.best)}`;
}

function head() {
  const choose = make("th", { scope: "col" }, make("span", { class: "unseen" }, "Choose for comparison"));
  const cells = COLUMNS.map((column) => {
    const sorted = sorting?.column === column ? (sorting.down ? "descending" : "ascending") : null;
    const kind = [column.number ? "number" : "", column.less ? "less" : ""].join(" ").trim();
    const content = column.sort ? make("button", { type: "button", onclick: () => sortBy(column) }, column.label) : column.label;
    return make("th", { scope: "col", class: kind || null, "aria-sort": sorted }, content);
  });
  return [choose, ...cells];
}

function sortBy(column) {
  const down = sorting?.column === column ? !sorting.down : Boolean(column.number);
  sorting = { column, down };
  show();
}

function row(run) {
  const box = make("input", {
    type: "checkbox", name: "run", value: run.name, form: "tools", "aria-label": `Choose ${run.name}`, checked: chosen.has(run.name),
    onchange: () => { chosen[box.checked ? "add" : "delete"](run.name); count(); },
  });
  return make("tr", { "data-key": run.name }, make("td", {}, box), COLUMNS.map((column) => column.cell(run)));
}

function count() {
  byId("compare").disabled = chosen.size < 2;
  byId("compare").textContent = chosen.size < 2 ? "Compare: choose two or more" : `Compare ${chosen.size} runs`;
}

function visible() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = found.filter((run) => words.every((word) => `${run.name} ${run.env} ${run.state} ${run.description ?? ""} ${run.tags.join(" ")}`.toLowerCase().includes(word)));
  if (!sorting) return rows;
  const { column, down } = sorting;
  const missing = (value) => value === null || value === undefined;
  return [...rows].sort((one, other) => {
    const [a, b] = [column.sort(one), column.sort(other)];
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
  });
}

function show() {
  const rows = visible();
  fill(document.querySelector("#runs thead tr"), sorting && [sorting.column.label, sorting.down], head);
  fill(document.querySelector("#runs tbody"), rows.map((run) => [run, ago(now - run.changed)]), () => rows.map(row));
  byId("runs").parentElement.hidden = found.length === 0;
  byId("tools").hidden = found.length === 0;
  byId("nothing").hidden = rows.length > 0;
  fill(byId("nothing"), found.length, () => found.length
    ? ["No run matches the filter."]
    : [make("p", {}, "There is no run here yet. This page will show it as soon as there is one."), make("code", {}, "pronk train cartpole")]);
}

// A table for each sweep: its groups over seeds, the best first; a group's name compares its runs.
function sweepPart(sweep) {
  return [
    make("h2", {}, `Sweep ${sweep.name} `, pill(sweep.state), make("span", { class: "dim small" }, ` ${sweep.done} of ${sweep.members} done`)),
    groupTable(sweep.name, sweep.groups, capital(sweep.metric.replaceAll("_", " "))),
  ];
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// Runs that differ by their seed only.
function seedPart(groups) {
  if (!groups.length) return [];
  return [make("h2", {}, "Several seeds"), groupTable("seeds", groups, "Last return")];
}

function groupTable(name, groups, metric) {
  const head = ["Settings", "Runs", metric, "Lowest to highest"];
  const rows = groups.map((group) => {
    const link = `/compare?${group.runs.map((run) => `run=${encodeURIComponent(run)}`).join("&")}`;
    const runs = group.failed ? `${group.runs.length}, ${group.failed} failed` : `${group.runs.length}`;
    const ends = group.interval ? `${short(group.interval[0])} to ${short(group.interval[1])}` : "–";
    return make("tr", { "data-key": `${name} ${group.label}` },
      make("th", { scope: "row" }, make("a", { href: link }, group.label || "the base")),
      make("td", { class: "number" }, runs), make("td", { class: "number" }, make("b", {}, short(group.mean))), make("td", { class: "number" }, ends));
  });
  return make("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": `Groups: ${name}` },
    make("table", { class: "runs" },
      make("thead", {}, make("tr", {}, head.map((label, index) => make("th", { scope: "col", class: index ? "number" : null }, label)))),
      make("tbody", {}, rows)));
}

async function look() {
  const answer = await ask("runs");
  ({ runs: found, now } = answer);
  for (const name of chosen) if (!found.some((run) => run.name === name)) chosen.delete(name);
  const running = found.filter((run) => run.state === "running").length;
  const words = `${found.length} in ${answer.folder}${running ? `, ${running} running` : ""}`;
  if (byId("folder").textContent !== words) byId("folder").textContent = words;
  show();
  fill(byId("sweeps"), [answer.seeds, answer.sweeps], () => [...seedPart(answer.seeds), ...answer.sweeps.flatMap(sweepPart)]);
  count();
  return 2;
}

byId("filter").addEventListener("input", show);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement?.tagName !== "INPUT") { event.preventDefault(); byId("filter").focus(); }
});
count();
live(look);
