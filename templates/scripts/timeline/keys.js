// The keys of the timeline: one table of what they do, which the help shows. W, A, S, D, F, M, [, ] and ? do what they do
// in Perfetto, and Ctrl with the wheel zooms there and in Nsight Systems.

import { newElement, part } from "../dom.js";

/** @import { Timeline } from "./timeline.js" */

const PAN_SHARE = 0.2; // of the view
// of W, A, S and D: for a stroke, and for each repetition while the key is held
const STROKE = { pan: 0.15, zoom: 1.5 };
const HELD = { pan: 0.04, zoom: 1.1 };

/** @type {(timeline: Timeline, share: number) => void} */
const pan = (timeline, share) => {
  timeline.view.pan(share * timeline.view.width);
  timeline.draw();
};
/** @type {(event: KeyboardEvent) => { pan: number, zoom: number }} */
const stroke = ({ repeat }) => (repeat ? HELD : STROKE);

/**
 * `keys`: as browsers name them, letters in capitals, with `Shift+` for capitals; `mouse`: other ways to the same.
 * `isAnywhere`: the key works without the focus on the timeline. `isOfRanks`: only with several ranks.
 * @typedef {{ keys?: string[], mouse?: string, does: string, act?: (timeline: Timeline, event: KeyboardEvent) => void, isAnywhere?: boolean, isOfRanks?: boolean }} KeyEntry
 */

/** @type {[title: string, entries: KeyEntry[]][]} */
export const TIMELINE_KEYS = [
  [
    "View",
    [
      { keys: ["W", "+"], mouse: "Ctrl or ⌘ + wheel, pinch, double-click", does: "Zoom in", act: (timeline, event) => timeline.zoom(event.key === "+" ? 1 / 2 : 1 / stroke(event).zoom) },
      { keys: ["S", "-"], mouse: "Ctrl or ⌘ + wheel, pinch", does: "Zoom out", act: (timeline, event) => timeline.zoom(event.key === "-" ? 2 : stroke(event).zoom) },
      { keys: ["A"], mouse: "drag, Shift + wheel", does: "Pan left", act: (timeline, event) => pan(timeline, -stroke(event).pan) },
      { keys: ["D"], mouse: "drag, Shift + wheel", does: "Pan right", act: (timeline, event) => pan(timeline, stroke(event).pan) },
      { keys: ["ArrowLeft"], does: "Pan left, further", act: (timeline) => pan(timeline, -PAN_SHARE) },
      { keys: ["ArrowRight"], does: "Pan right, further", act: (timeline) => pan(timeline, PAN_SHARE) },
      { mouse: "click or drag in the overview", does: "Go there; drag its ends to zoom" },
      { keys: ["F"], does: "Focus: zoom to the selection", act: (timeline) => timeline.zoomToSelection() },
      { keys: ["Home"], mouse: "Fit", does: "Show the whole capture", act: (timeline) => timeline.fit() },
      { keys: ["Shift+F"], mouse: "Full screen", does: "Fill the window with the timeline, or leave", act: (timeline) => timeline.full.toggle(), isAnywhere: true },
    ],
  ],
  [
    "Events and times",
    [
      { keys: ["Enter"], mouse: "click", does: "Select an event; expand or collapse a group", act: (timeline) => timeline.enter() },
      { keys: ["]"], does: "Next event in the row", act: (timeline) => timeline.stepEvent(1) },
      { keys: ["["], does: "Previous event in the row", act: (timeline) => timeline.stepEvent(-1) },
      { keys: ["X"], mouse: "Shift + click the second event", does: "Measure from the selected event to the next one you select", act: (timeline) => timeline.measureFrom(timeline.selected) },
      { keys: ["M"], mouse: "Shift + drag, drag on the time axis", does: "Mark the time of the selection, or else the view, and show its statistics", act: (timeline) => timeline.markSelection() },
      { keys: ["N", "Shift+M"], mouse: "Add a note; click a note to edit it", does: "Add a note at the selection, or else in the middle of the view; the address keeps it", act: (timeline) => timeline.notes.add() },
      { keys: ["/"], does: "Search events: text or /regular expression/", act: (timeline) => timeline.search.input.focus() },
      { keys: ["Escape"], does: "Clear the selection and the search", act: (timeline) => (timeline.full.isOn ? timeline.full.toggle() : timeline.clear()) },
      { keys: ["T"], does: "Align a step on all ranks: that of the selected event, or else the one in the middle; again to undo", act: (timeline) => timeline.toggleAlignment(), isOfRanks: true },
      { keys: ["L"], does: "Go to the rank that arrived last in the selected collective", act: (timeline) => timeline.goToLast(), isOfRanks: true },
    ],
  ],
  [
    "Rows and help",
    [
      { keys: ["ArrowUp"], does: "Previous row", act: (timeline) => timeline.stepLane(-1) },
      { keys: ["ArrowDown"], does: "Next row", act: (timeline) => timeline.stepLane(1) },
      { keys: ["R"], does: "Filter rows: text or /regular expression/", act: (timeline) => timeline.filter.input.focus() },
      { keys: ["P"], mouse: "click left of its name, Pin row", does: "Pin the row to the top, or put it back", act: (timeline) => timeline.togglePin(timeline.chosen) },
      { mouse: "Back button of the browser", does: "Return to the table row that led here" },
      { keys: ["?"], mouse: "Keys", does: "Show these keys", act: (timeline) => timeline.help.show() },
    ],
  ],
];

/** @type {Record<string, string>} */
const ALIASES = { "=": "+" }; // the same key without Shift
/** @type {Record<string, string>} */
const KEY_TEXTS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", "-": "−", Escape: "Esc" };

/**
 * The name of a key in the table: letters also with Caps Lock.
 * @param {KeyboardEvent} event
 */
function keyName({ key, shiftKey }) {
  if (/^[a-z]$/i.test(key)) return `${shiftKey ? "Shift+" : ""}${key.toUpperCase()}`;
  return ALIASES[key] ?? key;
}

/** @param {Timeline} timeline */
export function listenToKeys(timeline) {
  /** @type {Map<string, KeyEntry>} */
  const entries = new Map(TIMELINE_KEYS.flatMap(([, list]) => list.flatMap((entry) => (entry.keys ?? []).map((key) => [key, entry]))));
  const entryOf = (/** @type {KeyboardEvent} */ event) => (event.ctrlKey || event.metaKey || event.altKey ? undefined : entries.get(keyName(event)));
  timeline.canvas.addEventListener("keydown", (event) => {
    const entry = entryOf(event);
    if (!entry?.act) return;
    event.preventDefault();
    entry.act(timeline, event);
  });
  document.addEventListener("keydown", (event) => {
    const isTyped = event.target instanceof Element && event.target.closest("input, select, textarea, dialog");
    const entry = entryOf(event);
    if (entry?.isAnywhere && !isTyped && !event.defaultPrevented && !event.repeat) entry.act?.(timeline, event);
  });
}

/** @param {string} key */
function keyCap(key) {
  const parts = key === "+" ? [key] : key.split("+");
  return parts.flatMap((name, at) => [...(at ? [" + "] : []), newElement("kbd", {}, KEY_TEXTS[name] ?? name)]);
}

// The table of keys as a dialog.
export class KeyHelp {
  /**
   * @param {HTMLElement} section
   * @param {boolean} hasRanks
   */
  constructor(section, hasRanks) {
    this.dialog = part(section, ".timeline-keys", HTMLDialogElement);
    const lists = TIMELINE_KEYS.map(([title, all]) => {
      const items = all.filter(({ isOfRanks }) => hasRanks || !isOfRanks).map(({ keys = [], mouse, does }) => {
        const caps = keys.flatMap((key, at) => [...(at ? [" "] : []), ...keyCap(key)]);
        const other = mouse ? [newElement("span", { className: "timeline-mouse" }, mouse)] : [];
        return newElement("div", {}, newElement("dt", {}, ...caps, ...other), newElement("dd", {}, does));
      });
      return newElement("div", { className: "timeline-key-list" }, newElement("h4", {}, title), newElement("dl", {}, ...items));
    });
    part(this.dialog, ".timeline-key-lists", HTMLElement).replaceChildren(...lists);
    part(this.dialog, '[data-do="close"]', HTMLButtonElement).addEventListener("click", () => this.dialog.close());
    // Escape closes the dialog only, and not the full screen behind it
    this.dialog.addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.stopPropagation();
    });
    this.dialog.addEventListener("click", ({ target }) => {
      if (target === this.dialog) this.dialog.close(); // outside of its content
    });
  }

  show() {
    this.dialog.showModal();
  }
}
