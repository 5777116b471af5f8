// Keeps the view of the timeline in the page's address: links share it, reloads keep it, and Back returns to the table
// row that led there. Pages without their own history (some sandboxed frames) silently go without.

import { bringIntoView } from "../links.js";

/**
 * @import { Timeline } from "./timeline.js"
 * @import { TimelineState } from "./types.js"
 */

const TIMELINE_ADDRESS = /^#timeline=(-?\d+),(-?\d+)(?:&span=(-?\d+),(-?\d+))?(?:&event=(\d+),(-?\d+))?(?:&step=(\d+),(\d+))?$/;

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
    if (history.state?.timeline) this.#restore(history.state);
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
    this.#keep("replaceState", { ...this.#state(), place, number });
    this.#keep("pushState", this.#state());
  }

  #write() {
    const address = this.#address();
    if (address === this.written) return;
    this.written = address;
    this.#keep("replaceState", this.#state(), address);
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

  /** @returns {TimelineState} */
  #state() {
    const { view, span, search, alignment } = this.timeline;
    return { timeline: { view: [view.from, view.to], span, event: this.#event(), query: search.query, alignment } };
  }

  /** @returns {[number, number] | null} */
  #event() {
    const { selected } = this.timeline;
    return selected && [selected.layer.rowOf(selected.event), selected.layer.start[selected.event]];
  }

  // The view as an address: whole ns since the start of the window, like the times in tables and on the axis.
  #address() {
    const { data, view, span, alignment } = this.timeline;
    const times = (/** @type {number[]} */ ...all) => all.map((time) => Math.round(time - data.origin)).join(",");
    const event = this.#event();
    const parts = [times(view.from, view.to)];
    if (span) parts.push(`span=${times(...span)}`);
    if (event) parts.push(`event=${event[0]},${times(event[1])}`);
    if (alignment) parts.push(`step=${alignment.step},${alignment.rank}`);
    return `#timeline=${parts.join("&")}`;
  }

  /**
   * Shows the view of an address that was opened or typed; returns false for links to sections.
   * @param {string} hash
   */
  #follow(hash) {
    const numbers = TIMELINE_ADDRESS.exec(hash)?.slice(1).map(Number);
    if (!numbers) return false;
    const { origin } = this.timeline.data;
    const [from, to, begin, end, row, start, step, rank] = numbers.map((value, index) => (index === 4 || index > 5 ? value : value + origin));
    this.#restore({
      timeline: {
        view: [from, to],
        span: Number.isFinite(begin) ? [begin, end] : null,
        event: Number.isFinite(row) ? [row, start] : null,
        query: null,
        alignment: Number.isFinite(step) ? { step, rank } : null,
      },
    });
    return true;
  }

  /** @param {TimelineState} state */
  #restore({ timeline: { view, span, event, query, alignment } }) {
    const { timeline } = this;
    timeline.search.restore(query);
    timeline.align(alignment ?? null);
    timeline.view.set(...view);
    if (span) timeline.chooseSpan(...span);
    else timeline.clearSpan();
    timeline.select(event && timeline.data.find(...event));
    timeline.draw();
  }

  /** @param {TimelineState | null} state */
  #arrive(state) {
    clearTimeout(this.timer);
    if (state?.timeline) this.#restore(state);
    else if (this.#follow(location.hash)) bringIntoView(this.timeline.section);
    else return;
    this.written = this.#address();
    if (!state?.place) return;
    window.scrollTo({ ...state.place, behavior: "instant" });
    const focused = this.focused.get(state.number ?? NaN);
    if (focused instanceof HTMLElement && focused.isConnected) focused.focus({ preventScroll: true });
  }
}
