// Starts the timeline: unpacks its data, and connects controls, keys, and requests from other parts of the page.

import { nameElement, newElement, part, parts } from "../dom.js";
import { bringIntoView, keepTarget } from "../links.js";
import { canUnpack, unpacked } from "../payload.js";
import { TimelineData } from "./data.js";
import { TimelineHistory } from "./history.js";
import { listenToKeys } from "./keys.js";
import { swatch } from "./spans.js";
import { countText, durationText } from "./text.js";
import { Timeline } from "./timeline.js";

/** @import { SpanTarget, StepTarget, TimelineTarget } from "./types.js" */

/** @param {Timeline} timeline */
function listenToControls(timeline) {
  const { section, data, pointer } = timeline;
  const button = (/** @type {string} */ name) => part(section, `[data-do="${name}"]`, HTMLButtonElement);
  /** @type {(name: string, action: (button: HTMLButtonElement) => void) => void} */
  const listen = (name, action) => button(name).addEventListener("click", () => action(button(name)));
  listen("zoom-in", () => timeline.zoom(1 / 2));
  listen("zoom-out", () => timeline.zoom(2));
  listen("fit", () => timeline.fit());
  listen("window", () => data.window && timeline.show(...data.window));
  listen("align", () => timeline.toggleAlignment());
  listen("full", () => timeline.full.toggle());
  listen("pin", () => timeline.togglePin(timeline.chosen));
  listen("note", () => timeline.notes.add());
  listen("help", () => timeline.help.show());
  listen("names", (pressed) => {
    const isOn = pressed.getAttribute("aria-pressed") !== "true";
    pressed.setAttribute("aria-pressed", String(isOn));
    data.colorBy(isOn ? "name" : "category");
    const legend = part(section, ".timeline-legend", HTMLElement);
    legend.hidden = isOn || !legend.children.length;
    timeline.draw();
  });
  listen("next", () => timeline.search.step(1));
  listen("previous", () => timeline.search.step(-1));
  listen("span", (pressed) => {
    pointer.isSelecting = !pointer.isSelecting;
    pressed.setAttribute("aria-pressed", String(pointer.isSelecting));
    timeline.canvas.classList.toggle("is-selecting", pointer.isSelecting);
  });
  listen("list", (pressed) => pressed.setAttribute("aria-expanded", String(timeline.toggleList())));
  // names of several words are ours; that of a range stays as the program writes it
  const name = data.windowName.includes(" ") ? data.windowName[0].toUpperCase() + data.windowName.slice(1) : data.windowName;
  button("window").replaceChildren(nameElement(name));
  button("window").hidden = !data.window;
  button("align").hidden = !data.ranks?.canAlign;
}

/**
 * Shows the target of another part of the page: a curve, a step, a time span, or else an event by its name and other
 * facts (TimelineFinder).
 * @param {Timeline} timeline
 * @param {TimelineTarget} target
 */
function showInTimeline(timeline, target) {
  const end = timeline.section.getBoundingClientRect().bottom;
  if (!target.stays) {
    timeline.history?.leave();
    bringIntoView(timeline.section);
  }
  timeline.clear();
  timeline.filter.set("");
  if ("curve" in target) showCurve(timeline, timeline.search.finder.curve(target));
  else if ("steps" in target) showStep(timeline, target);
  else if ("from_ns" in target) showSpan(timeline, target);
  else timeline.search.show(target);
  if (!target.stays) timeline.canvas.focus({ preventScroll: true });
  // a panel that opens above the chosen element must not move it
  else scrollBy({ top: timeline.section.getBoundingClientRect().bottom - end, behavior: "instant" });
}

/**
 * @param {Timeline} timeline
 * @param {SpanTarget} target
 */
function showSpan(timeline, { from_ns: from, to_ns: to, of_window: isOfWindow }) {
  const base = isOfWindow ? timeline.data.origin : 0;
  timeline.show(base + from, base + to);
  timeline.chooseSpan(base + from, base + to);
}

/**
 * Shows a step on the GPU of a rank, or of the rank that represents it.
 * @param {Timeline} timeline
 * @param {StepTarget} target
 */
function showStep(timeline, { rank: number, step, steps, is_own: isOwn }) {
  const { ranks } = timeline.data;
  const requested = ranks?.list.find((rank) => rank.number === number);
  const place = requested?.groups.length ? ranks?.list.indexOf(requested) : requested?.like;
  const span = ranks && place !== undefined ? ranks.span(place, step + (isOwn ? ranks.list[place].step : 0), steps) : null;
  if (!ranks || place === undefined || !span) return;
  timeline.show(...span);
  timeline.chooseSpan(...span);
  const [group] = ranks.list[place].groups;
  timeline.open(group);
  const lane = timeline.lanes.all.find(({ kind, index }) => kind === "group" && index === group);
  if (lane) timeline.choose(lane);
}

/**
 * Shows all of a curve and selects the time of its highest value.
 * @param {Timeline} timeline
 * @param {number} number
 */
function showCurve(timeline, number) {
  const curve = timeline.data.curves[number];
  if (!curve) return;
  timeline.open(curve.group);
  if (curve.max === 0 && !timeline.unfolded.has(curve.group)) timeline.fold(curve.group);
  const lane = timeline.lanes.all.find(({ kind, index }) => kind === "curve" && index === number);
  if (lane) timeline.choose(lane);
  timeline.fit();
  const values = curve.value.map((value) => value ?? -Infinity);
  const peak = values.indexOf(values.reduce((most, value) => Math.max(most, value), -Infinity));
  timeline.chooseSpan(curve.time_ns[peak], curve.time_ns[peak + 1] ?? timeline.data.span);
}

/** @param {Timeline} timeline */
function describeTimeline(timeline) {
  const { section, data, canvas } = timeline;
  const events = data.totals.events;
  const rows = data.totals.rows;
  const text = `Timeline of ${countText(events, "event")} in ${countText(rows, "row")} over ${durationText(data.span)}`;
  canvas.setAttribute("aria-label", text);
  const notes = data.thinned.map((sentence) => newElement("p", { className: "note" }, sentence));
  const legend = part(section, ".timeline-legend", HTMLElement);
  legend.replaceChildren(...data.occurring.map((category) => newElement("li", {}, swatch(category), category[0])));
  legend.hidden = !legend.children.length;
  for (const help of parts(section, ".of-ranks", HTMLElement)) help.hidden = !data.ranks;
  part(section, ".timeline-notes", HTMLElement).replaceChildren(...notes);
}

/** @param {HTMLElement} section */
async function startTimeline(section) {
  const message = part(section, ".timeline-message", HTMLElement);
  if (!canUnpack) return null;
  message.textContent = "Unpacking the timeline …";
  try {
    const bytes = await unpacked("timeline-data");
    if (!bytes) throw new TypeError("the page has no #timeline-data");
    const data = new TimelineData(bytes);
    message.hidden = true;
    part(section, ".timeline-live", HTMLElement).hidden = false;
    const timeline = new Timeline(section, data);
    listenToKeys(timeline);
    listenToControls(timeline);
    describeTimeline(timeline);
    timeline.history = new TimelineHistory(timeline);
    keepTarget();
    performance.measure("timeline: ready", { start: 0, end: performance.now() });
    return timeline;
  } catch (error) {
    message.textContent = "The timeline could not be drawn.";
    message.hidden = false;
    throw error;
  }
}

export function showTimeline() {
  const section = document.getElementById("timeline");
  if (!section) return;
  const started = startTimeline(section);
  document.addEventListener("timeline:show", async (event) => {
    const timeline = await started;
    if (timeline && event instanceof CustomEvent) showInTimeline(timeline, event.detail);
  });
}
