// The parts of a run's page that are not curves: who waits for whom, lag, actors, clips, settings.

import { bar, duration, make, percent, short, whole } from "/static/shared.js";
import { histogram } from "/static/chart.js";

const MOST_BARS = 24;
const ACTOR_STATES = {
  playing: ["good", "playing"],
  waiting: ["warn", "waits for the learner"],
  starting: ["live", "starting"],
  restarting: ["bad", "starts again"],
  ended: ["", "ended"],
};

// Actors -> slots -> learner.
export function flowPicture(run) {
  const now = run.latest;
  const actors = run.actors.actors ?? [];
  const of = (state) => actors.filter((one) => one.state === state).length;
  const counts = Object.entries(ACTOR_STATES).filter(([state]) => of(state)).map(([state, [, words]]) => `${of(state)} ${words}`);
  const box = (title, words, part, label) => make("div", {}, make("h3", {}, title), make("p", {}, words), bar(part ?? 0, label, true));
  const arrow = () => make("span", { class: "arrow", "aria-hidden": "true" }, "→");
  const playing = actors.length ? of("playing") / actors.length : 0;
  const busy = now.learner_waits === undefined ? undefined : 1 - now.learner_waits;
  return [
    box(`${actors.length || "No"} actor${actors.length === 1 ? "" : "s"}`, counts.join(", ") || "not known", playing, `${percent(playing)} of the actors are playing`),
    arrow(),
    box("Slots", `${percent(now.queue)} filled`, now.queue, `${percent(now.queue)} of the slots are filled`),
    arrow(),
    box("Learner", `${percent(busy)} busy, waits ${percent(now.learner_waits)} of the time`, busy, `the learner is busy ${percent(busy)} of the time`),
  ];
}

flowPicture.words = (run) => {
  const { learner_waits: waits, queue } = run.latest;
  const who = waits === undefined ? "Nothing measured yet."
    : waits > 0.1 ? `The learner waits for actors ${percent(waits)} of the time: more actors, or faster environments, would help.`
    : queue > 0.5 ? "The actors wait for the learner: a faster learner would help, more actors would not."
    : "Nobody waits: actors and learner are in balance.";
  if (!run.limit) {
    return [who, " The machine's limit is not measured: ", make("code", {}, `pronk bench ${run.path}`)];
  }
  const { env, inference, learner, cores, limit } = run.limit;
  const alone = [env, inference, learner].every(Number.isFinite) ? ` (alone on one core: environments ${short(env)}, policy ${short(inference)}, learner ${short(learner)})` : "";
  const from = run.limit.run === run.name ? "" : `, measured for ${run.limit.run}, which does the same work`;
  return [`${who} The limit of ${cores ?? "all"} cores is ${whole(limit)} steps/s${alone}${from}.`];
};

export function lagPicture(columns, width) {
  const title = make("figcaption", {}, make("span", { class: "title" }, "How old experience was when learnt from"));
  const counts = Object.entries(columns ?? {}).map(([lag, count]) => [Number(lag), count]).filter((pair) => pair.every(Number.isFinite));
  if (!counts.length) return [title, make("p", { class: "dim" }, "Not recorded.")];
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  const mean = counts.reduce((sum, [lag, count]) => sum + lag * count, 0) / all;
  const below = (part) => { let sum = 0; return counts.find(([, count]) => (sum += count) >= part * all)[0]; };
  const [first, last] = [counts[0][0], counts.at(-1)[0]];
  const each = Math.max(1, Math.ceil((last - first + 1) / MOST_BARS));
  const bins = Array.from({ length: Math.ceil((last - first + 1) / each) }, (_, i) => {
    const from = first + i * each;
    return { label: each === 1 ? `${from}` : `${from}–${from + each - 1}`, count: 0 };
  });
  for (const [lag, count] of counts) bins[Math.floor((lag - first) / each)].count += count;
  const words = `mean ${short(mean)}, half at most ${below(0.5)}, 95% at most ${below(0.95)}, all at most ${last} updates`;
  const rows = bins.map((bin) => make("tr", {}, make("th", { scope: "row" }, bin.label), make("td", { class: "number" }, `${((100 * bin.count) / all).toFixed(1)}%`)));
  const table = make("table", {}, make("caption", { class: "unseen" }, "Share of columns by lag"), make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Updates"), make("th", { scope: "col", class: "number" }, "Share"))), make("tbody", {}, rows));
  title.append(make("div", { class: "legend" }, words));
  return [title, histogram(bins, `Histogram of policy lag: ${words}`, width), make("details", {}, make("summary", {}, "Numbers"), table)];
}

export function actorTable(run) {
  const actors = run.actors.actors ?? [];
  if (!actors.length) return make("p", { class: "note card" }, "Not recorded: the run has not started its actors yet, or was made by an earlier version.");
  const fastest = Math.max(1, ...actors.map((one) => one.steps_per_second ?? 0));
  const head = ["Actor", "State", "Steps/s", "Unrolls", "Slots filled", "Starts", "Machine", "Log"];
  const numbers = new Set(["Unrolls", "Starts"]);
  const rows = actors.map((one) => make("tr", {},
    make("th", { scope: "row" }, `${one.actor}`),
    make("td", {}, actorState(one, run.state)),
    make("td", {}, bar((one.steps_per_second ?? 0) / fastest, ""), ` ${short(one.steps_per_second)}`),
    make("td", { class: "number" }, whole(one.unrolls)),
    make("td", {}, slots(one)),
    make("td", { class: "number" }, `${one.lives ?? "–"}`),
    make("td", { class: "less" }, one.pid ? `${one.machine}, pid ${one.pid}` : one.machine ?? "–"),
    make("td", { class: "less mono" }, one.machine && one.machine !== "this machine" ? "there" : `logs/actor-${String(one.actor).padStart(3, "0")}.log`)));
  const table = make("table", {},
    make("caption", { class: "unseen" }, "Actors"),
    make("thead", {}, make("tr", {}, head.map((label) => make("th", { scope: "col", class: [numbers.has(label) ? "number" : "", ["Machine", "Log"].includes(label) ? "less" : ""].join(" ").trim() || null }, label)))),
    make("tbody", {}, rows));
  return make("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": "Table of actors" }, table);
}

function actorState(one, runState) {
  const over = runState !== "running" && one.state !== "ended";
  const [kind, words] = ACTOR_STATES[one.state] ?? ["", one.state];
  if (over) return make("span", { class: "pill" }, `was ${words}`);
  const silent = one.silent_seconds > 10 ? `, silent for ${duration(one.silent_seconds)}` : "";
  return make("span", { class: `pill ${silent ? "warn" : kind}` }, words + silent);
}

function slots(one) {
  if (!one.slots) return "–";
  if (one.slots > 12) return `${one.filled} of ${one.slots}`;
  const cells = Array.from({ length: one.slots }, (_, i) => make("i", { class: i < one.filled ? "full" : null }));
  return make("span", { class: "slots", role: "img", "aria-label": `${one.filled} of ${one.slots}` }, cells);
}

// What the diagnosis found in the metrics.
export function noteList(notes) {
  return notes.map((note) => make("p", { class: `diagnosis${note.over ? " dim" : ""}` }, `Diagnosis: ${note.message}${note.over ? " (over)" : ""}`));
}

export function clipList(run) {
  return run.clips.map((clip) => {
    const address = `/clip?run=${encodeURIComponent(run.name)}&clip=${encodeURIComponent(clip.name)}`;
    const picture = clip.name.endsWith(".gif")
      ? make("img", { src: address, alt: `The agent playing: ${clip.name}`, loading: "lazy" })
      : make("video", { src: address, controls: true, loop: true, preload: "metadata", "aria-label": `The agent playing: ${clip.name}` });
    picture.muted = true;
    return make("figure", { class: "card" }, picture, make("figcaption", {}, make("a", { href: address, download: clip.name }, clip.name), ` ${clip.bytes < 1e6 ? `${Math.ceil(clip.bytes / 1e3)} kB` : `${(clip.bytes / 1e6).toFixed(1)} MB`}`));
  });
}

export function settingsTable(settings) {
  const rows = Object.entries(settings);
  if (!rows.length) return make("p", { class: "note card" }, "config.yaml cannot be read.");
  const table = make("table", { class: "settings" }, make("caption", { class: "unseen" }, "Settings"),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Key"), make("th", { scope: "col" }, "Value"))),
    make("tbody", {}, rows.map(([key, value]) => make("tr", {}, make("th", { scope: "row", class: "mono" }, key), make("td", { class: "mono" }, value)))));
  return make("details", { class: "card pad" }, make("summary", {}, `${rows.length} settings`), table);
}
