// The filter of rows: a text or a /regular expression/ that the names of rows have, with those of their groups.

import { part } from "../dom.js";
import { NO_EXPRESSION, textTest } from "../matching.js";
import { countText } from "./text.js";

/** @import { Timeline } from "./timeline.js" */

export class RowFilter {
  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.input = part(timeline.section, ".timeline-filter input", HTMLInputElement);
    this.output = part(timeline.section, ".timeline-filter output", HTMLOutputElement);
    this.text = "";
    /** @type {((name: string) => boolean) | null} */
    this.test = null;
    /** @type {Set<number> | null} */
    this.collapsed = null; // groups collapsed while there is a filter: at first none
    this.input.addEventListener("input", () => this.set(this.input.value));
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" && event.key !== "Enter") return;
      event.preventDefault();
      if (event.key === "Escape") this.set("");
      timeline.canvas.focus({ preventScroll: true });
    });
  }

  /** @param {string} text */
  set(text) {
    const test = textTest(text);
    if (this.input.value !== text) this.input.value = text;
    this.input.setAttribute("aria-invalid", String(test === undefined));
    this.text = test ? text : "";
    const hadTest = this.test !== null;
    this.test = test ?? null;
    this.collapsed = test ? (this.collapsed ?? new Set()) : null;
    if (hadTest || test) this.timeline.arrange();
    const none = this.timeline.pinned.length ? "No other rows" : "No rows";
    const rows = this.timeline.lanes.all.filter(({ kind, isPinned }) => !isPinned && ["row", "curve", "split"].includes(kind)).length;
    this.output.textContent = test === undefined ? NO_EXPRESSION : test ? (rows ? countText(rows, "row") : none) : "";
  }
}
