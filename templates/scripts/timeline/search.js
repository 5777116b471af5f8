// Search in the timeline: the events with matching names, and stepping from one to the next.

import { part } from "../dom.js";
import { NO_EXPRESSION, textTest } from "../matching.js";
import { formatCount } from "../numbers.js";
import { EventMatches } from "./data.js";
import { TimelineFinder } from "./find.js";
import { countText } from "./text.js";

/**
 * @import { EventLayer } from "./data.js"
 * @import { Timeline } from "./timeline.js"
 * @import { EventQuery, Span } from "./types.js"
 */

export class TimelineSearch {
  /** @type {EventQuery | null} */
  asked;
  /** @type {Uint8Array | null} */
  isWanted;

  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.input = part(timeline.section, ".timeline-search input", HTMLInputElement);
    this.output = part(timeline.section, ".timeline-search output", HTMLOutputElement);
    this.steps = ["previous", "next"].map((name) => part(timeline.section, `[data-do="${name}"]`, HTMLButtonElement));
    this.finder = new TimelineFinder(timeline.data);
    this.asked = null; // { text } as typed, or what another part of the page asked for
    this.isWanted = null; // 0 or 1 for each label
    /** @type {Map<EventLayer, EventMatches>} */
    this.matches = new Map(); // by layer, created on first use
    this.at = -1; // the current match, in the first layer
    this.input.addEventListener("input", () => this.#find());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.clear();
    });
  }

  /** @param {EventLayer} layer */
  matchesOf(layer) {
    if (!this.isWanted) return null;
    const matches = this.matches.get(layer) ?? new EventMatches(layer, this.isWanted);
    this.matches.set(layer, matches);
    return matches;
  }

  #find() {
    const text = this.input.value;
    const test = textTest(text);
    this.#use(test ? this.timeline.data.labelsWith(test) : null, text.trim() ? { text } : null);
    this.input.setAttribute("aria-invalid", String(test === undefined));
    if (test === undefined) this.output.textContent = NO_EXPRESSION;
  }

  /**
   * @param {Uint8Array | null} isWanted
   * @param {EventQuery | null} asked
   */
  #use(isWanted, asked) {
    this.isWanted = isWanted;
    this.asked = asked;
    this.matches.clear();
    this.at = -1;
    this.input.setAttribute("aria-invalid", "false");
    this.#write();
    this.timeline.draw();
  }

  #write() {
    const { data } = this.timeline;
    const [layer] = data.layers;
    const found = this.matchesOf(layer);
    const noun = layer.isMerged ? "block" : "event";
    for (const button of this.steps) button.disabled = !found?.total;
    if (!found) this.output.textContent = "";
    else if (this.at < 0) this.output.textContent = found.total ? countText(found.total, noun) : "No matches";
    else {
      const rank = found.rank(layer.start[this.at], layer.rowOf(this.at));
      this.output.textContent = `${formatCount(rank)} of ${countText(found.total, noun)}`;
    }
  }

  /**
   * Goes to the next or previous match; wraps around at the ends.
   * @param {number} direction
   */
  step(direction) {
    const { timeline } = this;
    const [layer] = timeline.data.layers;
    const found = this.matchesOf(layer);
    if (!found?.total) return;
    /** @type {[number, number]} */
    const place = this.at < 0 ? [timeline.view.from, -1] : [layer.start[this.at], layer.rowOf(this.at)];
    let next = found.step(direction, ...place);
    if (next < 0) next = found.step(direction, direction > 0 ? -Infinity : Infinity, -1);
    this.at = next;
    this.#write();
    timeline.goTo(layer, next);
  }

  clear() {
    this.input.value = "";
    this.#use(null, null);
  }

  /**
   * Restores a search from the browser's history.
   * @param {EventQuery | null} asked
   */
  restore(asked) {
    if (asked?.name ?? asked?.names) {
      this.#highlight(asked);
      return;
    }
    this.input.value = asked?.text ?? "";
    this.#find();
  }

  /** @param {string} name */
  highlight(name) {
    this.#highlight({ name });
  }

  /** @param {EventQuery} asked */
  #highlight(asked) {
    const { text, isWanted } = this.finder.labels(asked);
    this.input.value = text;
    this.#use(isWanted, asked);
    return isWanted;
  }

  /**
   * Highlights the events that a table row represents, and zooms to one of them, if asked for one in the window.
   * All layers are tried, because merged blocks can hide an event that the exact part has.
   * @param {EventQuery} asked
   */
  show(asked) {
    const isWanted = this.#highlight(asked);
    const { layers, window, span } = this.timeline.data;
    /** @type {Span[]} */
    const spans = asked.in_window && window ? [window, [0, span]] : [[0, span]];
    const tries = spans.flatMap((within) => layers.map((layer) => ({ layer, within })));
    for (const { layer, within } of tries) {
      const event = this.finder.event(layer, isWanted, asked, within);
      if (event < 0) continue;
      if (layer === layers[0]) this.at = event;
      this.#write();
      this.timeline.zoomTo(layer, event, 0.3);
      return;
    }
  }
}
