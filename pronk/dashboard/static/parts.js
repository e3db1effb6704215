// The parts of a run's page that are not curves: why it failed, who waits for whom, lag, actors, clips, settings.

import { bar, duration, make, percent, short, whole } from "/static/shared.js";
import { logOfActor } from "/static/logs.js";
import { histogram } from "/static/bars.js";

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

// `showLog` is called with the name of a log.
export function actorTable(run, showLog) {
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
    make("td", { class: "less" }, logCell(one, run, showLog))));
  const table = make("table", {},
    make("caption", { class: "unseen" }, "Actors"),
    make("thead", {}, make("tr", {}, head.map((label) => make("th", { scope: "col", class: [numbers.has(label) ? "number" : "", ["Machine", "Log"].includes(label) ? "less" : ""].join(" ").trim() || null }, label)))),
    make("tbody", {}, rows));
  return make("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": "Table of actors" }, table);
}

function logCell(one, run, showLog) {
  const name = logOfActor(one.actor);
  if (!run.logs.some((log) => log.name === name)) return one.machine && one.machine !== "this machine" ? "on its machine" : "–";
  return make("button", { type: "button", class: "link mono", onclick: () => showLog(name) }, name);
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

// What the diagnosis found in the metrics. Advice is for a run that can still be changed.
export function noteList(notes, over) {
  if (!over) return notes.map((note) => make("p", { class: `diagnosis${note.over ? " dim" : ""}` }, `Diagnosis: ${note.message}${note.over ? " (over)" : ""}`));
  if (!notes.length) return [];
  const found = notes.map((note) => make("li", {}, note.message.split(/[;:,]? try /)[0] + (note.over ? " (passed)" : "")));
  return make("details", { class: "diagnosis" }, make("summary", {}, `The diagnosis noticed ${found.length === 1 ? "one thing" : `${found.length} things`} while it ran`), make("ul", {}, found));
}

// Why a run failed: the error in one line, all of the message below it, and the log of the process that failed.
export function failurePart(run, showLog) {
  if (!run.failure) return [];
  const log = failedLog(run);
  return [
    make("h2", {}, "Why it failed"),
    make("p", { class: "cause" }, run.cause),
    run.failure.trim() === run.cause ? null : make("details", {}, make("summary", {}, "The whole message"), make("pre", {}, run.failure)),
    log ? make("p", {}, make("button", { type: "button", onclick: () => showLog(log) }, `Show ${log}`)) : null,
  ];
}

// The log of the process that ended the run, if the message names one.
export function failedLog(run) {
  const actor = /^actor (\d+)\b/.exec(run.failure ?? "");
  const name = actor ? logOfActor(Number(actor[1])) : null;
  return run.logs.some((log) => log.name === name) ? name : null;
}

// Clips that were filmed during training are named after the steps until then.
function clipWords(clip) {
  const steps = /^0*(\d+)\./.exec(clip.name);
  return steps ? make("b", {}, `after ${short(Number(steps[1]))} steps `) : clip.name.startsWith("final.") ? make("b", {}, "the final policy ") : null;
}

export function clipList(run) {
  return run.clips.map((clip) => {
    const address = `/clip?run=${encodeURIComponent(run.name)}&clip=${encodeURIComponent(clip.name)}`;
    const poster = clip.poster ? address.replace("/clip", "/poster") : null;
    // Without a poster the browser shows the first picture after so many seconds instead of black.
    const picture = clip.name.endsWith(".gif")
      ? make("img", { src: address, alt: `The agent playing: ${clip.name}`, loading: "lazy" })
      : make("video", { src: poster ? address : `${address}#t=0.1`, poster, controls: true, loop: true, preload: poster ? "none" : "metadata", "aria-label": `The agent playing: ${clip.name}` });
    picture.muted = true;
    return make("figure", { class: "card" }, picture, make("figcaption", {}, clipWords(clip), make("a", { href: address, download: clip.name }, clip.name), ` ${clip.bytes < 1e6 ? `${Math.ceil(clip.bytes / 1e3)} kB` : `${(clip.bytes / 1e6).toFixed(1)} MB`}`));
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
