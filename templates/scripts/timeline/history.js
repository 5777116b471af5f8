// Keeps the view of the timeline in the page's address: links share it, reloads keep it, and Back returns to the table
// row that led there. Pages without their own history (some sandboxed frames) silently go without.

import { bringIntoView } from "../links.js";
import { timelineAddress, timelineView } from "./address.js";

/**
 * @import { Timeline } from "./timeline.js"
 * @import { EventPlace, Hit, TimelineState, TimelineView } from "./types.js"
 */

export class TimelineHistory {
  /** @type {number | undefined} */
  timer;

  static REST = 400; // ms without a new frame; browsers limit how often the address may change

  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** @type {Map<number, Element | null>} */
    this.focused = new Map(); // the focused element before each jump
    window.addEventListener("popstate", ({ state }) => this.#arrive(state));
    if (history.state?.timeline) this.#restore(history.state.timeline);
    else this.#follow(location.hash);
    this.written = this.#address();
  }

  // Called after each frame; the address changes once the view is at rest.
  changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#write(), TimelineHistory.REST);
  }

  // Adds a history entry before a jump, so that Back returns to the current view.
  leave() {
    clearTimeout(this.timer);
    const place = { left: scrollX, top: scrollY };
    const number = performance.now();
    this.focused.set(number, document.activeElement);
    this.#keep("replaceState", { timeline: this.#view(), place, number });
    this.#keep("pushState", { timeline: this.#view() });
  }

  #write() {
    const address = this.#address();
    if (address === this.written) return;
    this.written = address;
    this.#keep("replaceState", { timeline: this.#view() }, address);
  }

  /**
   * @param {"replaceState" | "pushState"} how
   * @param {TimelineState} state
   * @param {string} [address]
   */
  #keep(how, state, address) {
    for (const addresses of address ? [[address], []] : [[]]) {
      try {
        history[how](state, "", ...addresses);
        return;
      } catch {
        // the address cannot be changed (then try without one), or there is no history
      }
    }
  }

  /** @returns {TimelineView} */
  #view() {
    const { view, span, search, alignment, selected, anchor, filter, pinned, notes } = this.timeline;
    const place = (/** @type {Hit | null} */ hit) => hit && /** @type {EventPlace} */ ([hit.layer.rowOf(hit.event), hit.layer.start[hit.event]]);
    return { view: [view.from, view.to], span, event: place(selected), anchor: place(anchor), query: search.query, alignment, filter: filter.text, pinned, notes: notes.all };
  }

  #address() {
    return timelineAddress(this.#view(), this.timeline.data.origin);
  }

  /**
   * Shows the view of an address that was opened or typed; returns false for links to sections.
   * @param {string} hash
   */
  #follow(hash) {
    const view = timelineView(hash, this.timeline.data.origin);
    if (view) this.#restore(view);
    return view !== null;
  }

  /**
   * A state can come from an older page at the same address, which had no pins, filter or notes.
   * @param {TimelineView} view
   */
  #restore({ view, span, event, anchor, query, alignment = null, filter = "", pinned = [], notes = [] }) {
    const { timeline } = this;
    timeline.pinned = pinned;
    timeline.filter.set(filter);
    timeline.notes.set(notes);
    timeline.search.restore(query);
    timeline.align(alignment);
    timeline.view.set(...view);
    if (span) timeline.chooseSpan(...span);
    else timeline.clearSpan();
    timeline.select(event && timeline.data.find(...event));
    timeline.measureFrom(anchor && timeline.data.find(...anchor));
    timeline.draw();
  }

  /** @param {TimelineState | null} state */
  #arrive(state) {
    clearTimeout(this.timer);
    const { notes, pinned, filter } = this.#view();
    if (state?.timeline) this.#restore({ ...state.timeline, notes, pinned, filter }); // Back takes nothing of these away
    else if (this.#follow(location.hash)) bringIntoView(this.timeline.section);
    else return;
    const isKept = !state?.timeline || same(state.timeline, this.#view());
    this.written = isKept ? this.#address() : "";
    if (!state?.place) return;
    window.scrollTo({ ...state.place, behavior: "instant" });
    const focused = this.focused.get(state.number ?? NaN);
    if (focused instanceof HTMLElement && focused.isConnected) focused.focus({ preventScroll: true });
  }
}

/**
 * Whether two views have the same notes, pins and filter.
 * @param {TimelineView} one
 * @param {TimelineView} other
 */
function same(one, other) {
  const [first, second] = [one, other].map(({ notes, pinned, filter }) => JSON.stringify([notes, pinned, filter]));
  return first === second;
}
