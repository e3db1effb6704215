// What all pages share: asking the server, words for numbers, elements, and the beat of a live page.

export async function ask(question, values = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) for (const one of [value].flat()) query.append(name, one);
  const response = await fetch(`/api/${question}?${query}`);
  if (!response.ok) throw Object.assign(new Error((await response.text()).trim()), { status: response.status });
  return response.json();
}

// Change something; throws with the server's reason if it refuses.
export async function send(question, values, content) {
  const response = await fetch(`/api/${question}?${new URLSearchParams(values)}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content),
  });
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.json();
}

// An element: make("a", { href: "/" }, "text", child, ...). Text is always set as text, never as HTML.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// An element of a picture.
export function draw(tag, attributes = {}, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export const byId = (id) => document.getElementById(id);

// Put new content in place only if it differs, and leave the reader where they were: what has the focus keeps it, what
// is unfolded stays unfolded. A `data-key` tells which row is which when their order changes.
const shown = new WeakMap();
export function fill(element, key, build) {
  const text = JSON.stringify(key);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  const before = places(element);
  const focused = before.get(document.activeElement);
  const open = new Set([...element.querySelectorAll("details[open] > summary")].map((summary) => before.get(summary)));
  element.replaceChildren(...[build()].flat().filter((child) => child !== null && child !== undefined));
  for (const [part, place] of places(element)) {
    if (open.has(place)) part.parentElement.open = true;
    if (focused !== undefined && place === focused) part.focus({ preventScroll: true });
  }
}

function places(element) {
  const found = new Map();
  const seen = {};
  for (const part of element.querySelectorAll("a, button, input, summary, [tabindex]")) {
    const name = `${part.closest("[data-key]")?.dataset.key ?? ""} ${part.tagName}`;
    seen[name] = (seen[name] ?? 0) + 1;
    found.set(part, `${name} ${seen[name]}`);
  }
  return found;
}

export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "K"]]) {
    if (size >= unit) {
      const scaled = value / (letter === "K" ? 1e3 : unit);
      return trim(scaled.toPrecision(3)) + letter;
    }
  }
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  if (size >= 0.001 || size === 0) return trim(value.toPrecision(3));
  return value.toExponential(1);
}
const trim = (text) => (text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : String(Number(text)));

export const whole = (value) => (Number.isFinite(value) ? Math.round(value).toLocaleString("en") : "–");
export const percent = (value) => (Number.isFinite(value) ? `${Math.round(value * 100)}%` : "–");

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const all = Math.max(0, Math.round(seconds));
  const [days, hours, minutes, rest] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60, all % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${rest} s` : `${rest} s`;
}

export function ago(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return "just now";
  const [count, unit] = seconds < 3600 ? [seconds / 60, "min"] : seconds < 86400 ? [seconds / 3600, "h"] : [seconds / 86400, "d"];
  return `${Math.floor(count)} ${unit} ago`;
}

const STATES = {
  running: ["live", "it is being trained right now"],
  solved: ["good", "it reached its goal"],
  finished: ["good", "it went through all its steps"],
  stopped: ["good", "a callback or its script ended it"],
  interrupted: ["warn", "it was stopped; --resume continues it"],
  failed: ["bad", "it ended with an error; its logs say which"],
  killed: ["bad", "its process ended without a summary; --resume continues it"],
  unknown: ["", "it was left by another version of Pronk"],
};
export function pill(state, cause = null) {
  const [kind, meaning] = STATES[state] ?? STATES.unknown;
  return make("span", { class: `pill ${kind}`, title: cause ?? meaning }, state);
}

export function bar(part, label, long = false) {
  const inner = make("i");
  inner.style.width = `${Math.min(100, Math.max(0, part * 100))}%`;
  return make("span", { class: long ? "bar long" : "bar", role: "img", "aria-label": label }, inner);
}

// Repeat while the page is visible: `look` returns the seconds until the next time.
export function live(look) {
  const pulse = byId("pulse");
  let timer = 0;
  async function beat() {
    clearTimeout(timer);
    if (document.hidden) return;
    let seconds = 2;
    try {
      seconds = await look();
      if (!document.body.dataset.ready) performance.mark("ready"); // for benchmarks/dashboard_opens.py
      document.body.dataset.ready = "yes";
      pulse.className = "pulse";
      if (pulse.textContent !== "") pulse.textContent = "";
    } catch (error) {
      if (!(error instanceof TypeError) && error.status !== 404) console.error(error);
      pulse.className = "pulse lost";
      const words = error instanceof TypeError ? "The dashboard does not answer; is it still running?" : error.message;
      if (pulse.textContent !== words) pulse.textContent = words;
    }
    timer = setTimeout(beat, seconds * 1000);
  }
  document.addEventListener("visibilitychange", beat);
  beat();
  return beat;
}
