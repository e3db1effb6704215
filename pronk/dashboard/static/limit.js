// A run's speed against the machine's limit, as `pronk bench` measured it, and who waits for whom.

import { make, percent, short, whole } from "/static/shared.js";

const NOISE = 1.05; // a rate of one second may be above the limit by so much

export const isOver = (run) => run.state !== "running";

// Of a run that has ended, the mean of all of it; else of the last second.
export function speedOf(run) {
  const { env_steps: steps, wall_seconds: seconds, steps_per_second: now } = run.latest;
  return isOver(run) && steps && seconds ? steps / seconds : now;
}

// Never more than all of it: what is faster than the limit shows that the limit was measured too low.
export function shareOfLimit(run) {
  if (!run.limit) return isOver(run) ? "mean of the run" : "limit not measured";
  const share = speedOf(run) / run.limit.limit;
  if (!Number.isFinite(share)) return "";
  const limit = run.limit.busy ? "a limit measured on a busy machine" : "the machine's limit";
  if (share > NOISE) return `above ${limit}${run.limit.busy ? "" : ": it was measured too low"}`;
  return `${percent(Math.min(1, share))} of ${limit}`;
}

export function limitMark(run) {
  if (!run.limit) return [];
  const which = run.limit.busy ? "limit, measured on a busy machine" : "limit of this machine";
  return [{ y: run.limit.limit, label: `${which}: ${short(run.limit.limit)}` }];
}

// What the machine could do, and where that is known from.
export function limitWords(run) {
  if (!run.limit) {
    if (!isOver(run)) return [" The machine's limit is not measured; that can be done when the run has ended."];
    return [" The machine's limit is not measured: ", make("code", {}, `pronk bench ${run.path}`)];
  }
  const { env, inference, learner, cores, limit, load, busy } = run.limit;
  const alone = [env, inference, learner].every(Number.isFinite) ? ` (alone on one core: environments ${short(env)}, policy ${short(inference)}, learner ${short(learner)})` : "";
  const from = run.limit.run === run.name ? "" : `, measured for ${run.limit.run}, which does the same work`;
  const how = busy ? ` It was measured while the machine had other work${Number.isFinite(load) ? ` (${short(load)} cores busy)` : ""}, so it is too low.` : "";
  return [` The limit of ${cores ?? "all"} cores is ${whole(limit)} steps/s${alone}${from}.${how}`];
}

// Of a run that goes on: what would make it faster. Of one that has ended: what was measured, and no advice.
export function waitWords(run, means) {
  if (isOver(run)) {
    if (means.waits === null) return "";
    const slots = means.queue === null ? "" : `, and ${percent(means.queue)} of the slots were filled`;
    return `On average the learner waited for actors ${percent(means.waits)} of the time${slots}.`;
  }
  const { learner_waits: waits, queue } = run.latest;
  if (waits === undefined) return "Nothing measured yet.";
  if (waits > 0.1) return `The learner waits for actors ${percent(waits)} of the time: more actors, or faster environments, would help.`;
  if (queue > 0.5) return "The actors wait for the learner: a faster learner would help, more actors would not.";
  return "Nobody waits: actors and learner are in balance.";
}
