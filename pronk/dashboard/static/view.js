// What all charts of a page share: the cursor, and the stretch of the axis that is looked at.

import { byId } from "/static/shared.js";

export const charts = new Set();
export const view = { cursor: null, range: null }; // range: { left, right }, or null for everything
const listeners = new Set();

export function moveCursor(x) {
  view.cursor = x;
  for (const chart of charts) chart.point();
}

export function zoomTo(range) {
  view.range = range;
  const button = byId("unzoom");
  if (button) button.hidden = range === null;
  for (const chart of charts) chart.redraw();
  for (const listener of listeners) listener(range);
}

// `changed` is called with the new range after every zoom.
export function onZoom(changed) {
  listeners.add(changed);
  byId("unzoom")?.addEventListener("click", () => zoomTo(null));
}
