// One run, live: curves, speed against the machine's limit, lag, actors, evaluation, clips, settings.

import { ago, ask, bar, byId, duration, fill, live, make, percent, pill, short, whole } from "/static/shared.js";
import { AXES, AXIS_NAMES, remembered, SMOOTHINGS } from "/static/scale.js";
import { LineChart } from "/static/chart.js";
import { actorTable, clipList, failedLog, failurePart, flowPicture, lagPicture, noteList, settingsTable } from "/static/parts.js";
import { isOver, limitMark, limitWords, shareOfLimit, speedOf, waitWords } from "/static/limit.js";
import { Curve } from "/static/curve.js";
import { LogView } from "/static/logs.js";
import { TagEditor } from "/static/tags.js";
import { onZoom, zoomTo } from "/static/view.js";

const name = new URLSearchParams(location.search).get("run") ?? "";
const PARTS = [[1, "the whole run"], [0.5, "the last half"], [0.1, "the last tenth"], [0.01, "the last hundredth"]];
const KNOWN = new Set(["env_steps", "frames", "wall_seconds", "updates", "episodes", "episode_return", "episode_length", "steps_per_second", "policy_lag", "loss", "entropy", "learner_waits", "queue", "progress"]);
const PACE_LINES = 30; // by which the time left is judged, after
const FIRST_LINES = 3;

const OF_TASK = "episode_return/"; // followed by the name of a task

document.title = `${name} · Pronk`;
byId("name").textContent = name;
byId("compare").href = `/compare?run=${encodeURIComponent(name)}`;

const charts = {};
const chart = (place, key, title, options = {}) => (charts[key] = new LineChart(byId(place), { title, ...options }));
chart("learning", "return", "Return");
chart("learning", "length", "Episode length", { unit: "steps", from: [0] });
chart("learning", "entropy", "Entropy", { unit: "nats", from: [0] });
chart("learning", "loss", "Loss");
chart("speed", "speed", "Speed", { unit: "steps/s", from: [0] });
chart("speed", "waits", "Who waits", { from: [0, 1], format: percent, labels: (values) => values.map(percent) });
const lagBox = make("figure", { class: "chart card" });
byId("lag").append(lagBox);
chart("lag", "lag", "Lag over the run", { unit: "updates", from: [0] });
const logs = new LogView(name);
const tags = new TagEditor(name);

function showLog(log) {
  logs.choose(log);
  byId("h-logs").scrollIntoView({ block: "start" });
  byId("log-text").focus({ preventScroll: true });
}

let metrics, evaluation, run;
let beat = null;
function restart() {
  metrics = new Curve(name, "metrics", byId("part").value);
  evaluation = new Curve(name, "evaluation", 1);
  beat?.();
}
remembered(byId("axis"), "axis", AXIS_NAMES, () => zoomTo(null));
remembered(byId("smooth"), "smooth", SMOOTHINGS, drawCurves);
onZoom(async (range) => {
  await metrics.zoom(byId("axis").value, range);
  drawCurves();
});
for (const [value, label] of PARTS) byId("part").append(make("option", { value }, label));
byId("part").addEventListener("change", () => { zoomTo(null); restart(); });
restart();

function line(label, column, extra = {}) {
  return { name: label, x: metrics.column(byId("axis").value), y: metrics.column(column), ...extra };
}

function drawCurves() {
  if (!run) return;
  const axis = AXES[byId("axis").value];
  const smooth = Number(byId("smooth").value);
  const goal = run.goal === null ? [] : [{ y: run.goal, label: `goal ${short(run.goal)}` }];
  const played = evaluationLine();
  charts.return.show([line("recent episodes", "episode_return"), ...(played ? [played] : [])], axis, { marks: goal, smooth });
  charts.length.show([line("mean", "episode_length")], axis, { smooth });
  charts.entropy.show([line("mean", "entropy", { colour: 2 })], axis, { smooth });
  charts.loss.show([line("mean", "loss", { colour: 3 })], axis, { smooth });
  charts.speed.show([line("trained", "steps_per_second")], axis, { marks: limitMark(run), smooth });
  charts.waits.show([line("learner waits for actors", "learner_waits"), line("slots filled: actors wait", "queue")], axis, { smooth });
  charts.lag.show([line("mean", "policy_lag")], axis, { smooth });
  drawEvaluation(axis, played);
  drawTasks(axis, smooth);
  for (const key of metrics.names()) {
    if (KNOWN.has(key) || key.startsWith(OF_TASK)) continue;
    const own = `other ${key}`;
    charts[own] ??= new LineChart(byId("more"), { title: key.replaceAll("_", " "), height: 140 });
    charts[own].show([line("last", key, { colour: 4 })], axis, { smooth });
  }
  byId("h-more").parentElement.hidden = byId("more").children.length === 0;
  byId("sampled").textContent = metrics.sampled ? `${whole(metrics.length)} points of a longer record` : "";
}

// The return of each task, if there are several.
function drawTasks(axis, smooth) {
  const keys = metrics.names().filter((key) => key.startsWith(OF_TASK));
  for (const key of keys) {
    const task = key.slice(OF_TASK.length);
    charts[key] ??= new LineChart(byId("tasks"), { title: task, height: 140 });
    const played = evaluationLine(`/${task}`);
    charts[key].show([line("recent episodes", key), ...(played ? [played] : [])], axis, { smooth });
  }
  byId("h-tasks").parentElement.hidden = keys.length === 0;
}

// An evaluation that knows its steps only is placed on other axes by the nearest line of metrics. `of` ends the names of
// a task's columns.
function evaluationLine(of = "") {
  const steps = evaluation.column("env_steps");
  if (!steps.length) return null;
  const key = byId("axis").value;
  const [from, to] = [metrics.column("env_steps"), metrics.column(key)];
  const own = evaluation.column(key);
  const across = (step, at) => {
    if (own.every((value) => value !== null) || !from.length) return own[at] ?? step;
    let i = from.findIndex((value) => value >= step);
    if (i < 0) i = from.length - 1;
    return key === "frames" && from[i] ? (step * to[i]) / from[i] : to[i];
  };
  const [mean, std] = [evaluation.column(`mean${of}`), evaluation.column(`std${of}`)];
  const edge = (sign) => mean.map((value, i) => (value === null ? null : value + sign * (std[i] ?? 0)));
  return { name: "evaluation", x: steps.map(across), y: mean, low: edge(-1), high: edge(1), dots: steps.length < 60, colour: 1 };
}

function drawEvaluation(axis, played) {
  const place = byId("evaluation");
  if (!played) {
    fill(place, "none", () => make("p", { class: "note card" }, "Not evaluated. Runs started with ", make("code", {}, "pronk train … --evaluate"), " play whole episodes beside the training."));
    delete charts.evaluation;
    return;
  }
  if (!charts.evaluation) {
    fill(place, "some", () => []);
    chart("evaluation", "evaluation", "Return of whole episodes, mean ± deviation");
    charts.evaluationRows = make("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": "The last evaluations" });
    place.append(charts.evaluationRows);
  }
  charts.evaluation.show([played], axis);
  const value = (column, i) => make("td", { class: "number" }, short(evaluation.column(column)[i]));
  const last = evaluation.column("mean").map((_, i) => i).slice(-6).reverse();
  fill(charts.evaluationRows, [evaluation.length, last], () => make("table", { class: "settings" },
    make("caption", { class: "unseen" }, "The last evaluations, newest first"),
    make("thead", {}, make("tr", {}, ["Steps", "Mean", "Deviation", "Least", "Most", "Episodes"].map((label) => make("th", { scope: "col", class: "number" }, label)), make("th", { scope: "col" }, "Checkpoint"))),
    make("tbody", {}, last.map((i) => make("tr", {}, ["env_steps", "mean", "std", "min", "max", "episodes"].map((column) => value(column, i)), make("td", {}, (evaluation.column("checkpoint")[i] ?? "").split("/").at(-1)))))));
}

function tiles() {
  const now = run.latest;
  const goal = run.goal === null ? "mean of recent episodes" : `goal ${short(run.goal)}, best seen ${short(run.best)}`;
  const frames = now.frames && now.frames !== now.env_steps ? `, ${short(now.frames)} frames` : "";
  return [
    ["Return", short(now.episode_return), goal],
    ["Steps", short(now.env_steps), `${run.total_steps ? `of ${short(run.total_steps)}` : ""}${frames}`],
    ["Speed", `${short(speedOf(run))}/s`, shareOfLimit(run)],
    ["Policy lag", short(now.policy_lag), "updates, mean"],
    ["Episodes", short(now.episodes), now.episode_length === undefined ? "" : `${short(now.episode_length)} steps each`],
    ["Trained for", duration(now.wall_seconds), `${short(now.updates)} updates`],
  ];
}

function drawHead() {
  const now = run.latest;
  const silent = run.now - run.changed;
  fill(byId("state"), run.state, () => pill(run.state));
  byId("failure").hidden = !run.failure;
  fill(byId("failure"), [run.failure, failedLog(run)], () => failurePart(run, showLog));
  const left = secondsLeft();
  const time = isOver(run) ? `last written ${ago(silent)}` : silent > 10 ? `silent for ${duration(silent)}` : left === null ? null : `${duration(left)} left`;
  byId("about").textContent = [run.description, run.env, run.seed === undefined || run.seed === null ? null : `seed ${run.seed}`, time].filter(Boolean).join(" · ");
  tags.show(run);
  byId("seeds").hidden = run.seeds.length < 2;
  byId("seeds").textContent = `All ${run.seeds.length} seeds`;
  byId("seeds").href = `/compare?${run.seeds.map((one) => `run=${encodeURIComponent(one)}`).join("&")}`;
  const part = run.total_steps ? (now.env_steps ?? 0) / run.total_steps : 0;
  fill(byId("progress"), part, () => bar(part, `${percent(part)} of all steps`, true));
  fill(byId("tiles"), tiles(), () => tiles().map(([label, value, more]) => make("div", { class: "tile" }, make("dt", {}, label), make("dd", {}, value, make("small", {}, more || " ")))));
}

// By the pace of the last lines, as the terminal shows it; null before there are a few.
function secondsLeft() {
  const [times, parts] = [metrics.all("wall_seconds"), metrics.all("progress")];
  const first = Math.max(0, times.length - PACE_LINES);
  const [spent, done] = [times.at(-1) - times[first], parts.at(-1) - parts[first]];
  return times.length >= FIRST_LINES && done > 0 ? (Math.max(0, 1 - parts.at(-1)) * spent) / done : null;
}

function meanOfColumn(key) {
  const known = metrics.all(key).filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

function drawParts() {
  const over = isOver(run);
  fill(byId("notes"), [run.notes, over], () => noteList(run.notes, over));
  const means = { waits: meanOfColumn("learner_waits"), queue: meanOfColumn("queue") };
  fill(byId("bottleneck"), [run.latest.learner_waits, run.latest.queue, run.limit, run.name, over, means], () => [waitWords(run, means), ...limitWords(run)]);
  byId("flow").hidden = over; // it shows what happens now
  fill(byId("flow"), [run.latest.learner_waits, run.latest.queue, run.actors, run.state], () => flowPicture(run));
  const width = Math.max(200, lagBox.clientWidth - 28);
  fill(lagBox, [run.lag, width], () => lagPicture(run.lag, width));
  fill(byId("actors"), [run.actors, run.state, run.logs.map((log) => log.name)], () => actorTable(run, showLog));
  logs.offer(run.logs, run.now, failedLog(run));
  fill(byId("clips"), run.clips, () => clipList(run));
  fill(byId("config"), run.config, () => settingsTable(run.config));
}

async function look() {
  const [answer] = await Promise.all([ask("run", { run: name }), metrics.load(), evaluation.load(), logs.look()]);
  run = answer;
  drawHead();
  drawCurves();
  drawParts();
  document.body.dataset.steps = run.latest.env_steps ?? 0;
  return run.state === "running" ? 1 : 4;
}
beat = live(look);
