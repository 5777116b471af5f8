// Search in the timeline: the events with matching names, and steps from match to match.

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
  query;
  /** @type {Uint8Array | null} */
  isMatch;

  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.input = part(timeline.section, ".timeline-search input", HTMLInputElement);
    this.output = part(timeline.section, ".timeline-search output", HTMLOutputElement);
    this.steps = ["previous", "next"].map((name) => part(timeline.section, `[data-do="${name}"]`, HTMLButtonElement));
    this.finder = new TimelineFinder(timeline.data);
    this.query = null; // { text } as typed, or the query of another part of the page
    this.isMatch = null; // 0 or 1 for each label
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
    if (!this.isMatch) return null;
    const matches = this.matches.get(layer) ?? new EventMatches(layer, this.isMatch);
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
   * @param {Uint8Array | null} isMatch
   * @param {EventQuery | null} query
   */
  #use(isMatch, query) {
    this.isMatch = isMatch;
    this.query = query;
    this.matches.clear();
    this.at = -1;
    this.input.setAttribute("aria-invalid", "false");
    this.#write();
    this.timeline.draw();
  }

  #write() {
    const { data } = this.timeline;
    const [layer] = data.layers;
    const matches = this.matchesOf(layer);
    const noun = layer.isMerged ? "block" : "event";
    for (const button of this.steps) button.disabled = !matches?.total;
    if (!matches) this.output.textContent = "";
    else if (this.at < 0) this.output.textContent = matches.total ? countText(matches.total, noun) : "No matches";
    else {
      const rank = matches.rank(layer.start[this.at], layer.rowOf(this.at));
      this.output.textContent = `${formatCount(rank)} of ${countText(matches.total, noun)}`;
    }
  }

  /**
   * Goes to the next or previous match; wraps around at the ends.
   * @param {number} direction
   */
  step(direction) {
    const { timeline } = this;
    const [layer] = timeline.data.layers;
    const matches = this.matchesOf(layer);
    if (!matches?.total) return;
    /** @type {[number, number]} */
    const place = this.at < 0 ? [timeline.view.from, -1] : [layer.start[this.at], layer.rowOf(this.at)];
    let next = matches.step(direction, ...place);
    if (next < 0) next = matches.step(direction, direction > 0 ? -Infinity : Infinity, -1);
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
   * @param {EventQuery | null} query
   */
  restore(query) {
    if (query?.name ?? query?.names) {
      this.#highlight(query);
      return;
    }
    this.input.value = query?.text ?? "";
    this.#find();
  }

  /** @param {string} name */
  highlight(name) {
    this.#highlight({ name });
  }

  /** @param {EventQuery} query */
  #highlight(query) {
    const { text, isMatch } = this.finder.labels(query);
    this.input.value = text;
    this.#use(isMatch, query);
    return isMatch;
  }

  /**
   * Highlights the events that a table row represents, and zooms to one of them, in the window if the query says so.
   * All layers are searched, because merged blocks can hide an event that the exact part has.
   * @param {EventQuery} query
   */
  show(query) {
    const isMatch = this.#highlight(query);
    const { layers, window, span } = this.timeline.data;
    /** @type {Span[]} */
    const spans = query.in_window && window ? [window, [0, span]] : [[0, span]];
    const tries = spans.flatMap((within) => layers.map((layer) => ({ layer, within })));
    for (const { layer, within } of tries) {
      const event = this.finder.event(layer, isMatch, query, within);
      if (event < 0) continue;
      if (layer === layers[0]) this.at = event;
      this.#write();
      this.timeline.zoomTo(layer, event, 0.3);
      return;
    }
  }
}
