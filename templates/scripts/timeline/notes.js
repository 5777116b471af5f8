// Notes of the reader at times of the timeline: tags on the axis, and a list below. The address keeps them, so they are
// few and short. Their text comes from anyone who makes a link: it is only ever inserted as text.

import { nameElement, newElement, part, toolButton } from "../dom.js";
import { MOST_LETTERS, MOST_NOTES, bounded } from "./address.js";

/**
 * @import { Timeline } from "./timeline.js"
 * @import { Note } from "./types.js"
 */

export class TimelineNotes {
  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.place = part(timeline.section, ".timeline-own-notes", HTMLElement);
    /** @type {Note[]} */
    this.all = [];
  }

  /** @param {Note[]} notes */
  set(notes) {
    const { timeline } = this;
    this.all = [...notes].sort((a, b) => a.from - b.from || a.to - b.to).slice(0, MOST_NOTES);
    timeline.painter.notes = this.all;
    this.#show();
    timeline.arrange();
  }

  // Asks for a note at what was selected last, else in the middle of the view.
  add() {
    const { view, selectedSpan, announcement } = this.timeline;
    if (this.all.length >= MOST_NOTES) {
      announcement.textContent = `There are ${MOST_NOTES} notes: delete one first.`;
      this.#show(announcement.textContent);
      return;
    }
    const middle = Math.round((view.from + view.to) / 2);
    const [from, to] = selectedSpan ?? [middle, middle];
    this.#ask({ from, to, text: "" }, null);
  }

  /** @param {Note} note */
  edit(note) {
    this.#ask(note, note);
  }

  /**
   * @param {Note} note
   * @param {Note | null} old
   */
  #ask(note, old) {
    const { timeline } = this;
    const label = `Note at ${this.#when(note)}`;
    const input = newElement("input", { type: "text", maxlength: String(MOST_LETTERS), "aria-label": label, value: note.text, autocomplete: "off" });
    const close = () => {
      this.#show();
      timeline.canvas.focus({ preventScroll: true });
    };
    const save = () => {
      const text = bounded(input.value.trim());
      const others = this.all.filter((other) => other !== old);
      this.set(text ? [...others, { ...note, text }] : others);
      timeline.announcement.textContent = text ? `${label}: ${text}` : "No note";
      close();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      if (event.key === "Enter") save();
      else close();
    });
    this.#show();
    const tools = newElement("span", { className: "timeline-actions" }, toolButton("Save", save), toolButton("Cancel", close));
    this.place.append(newElement("div", { className: "timeline-ask" }, newElement("span", {}, label), input, tools));
    input.focus();
  }

  /** @param {Note} note */
  #when({ from, to }) {
    const [first, last] = this.timeline.data.instants(from, to);
    return to > from ? `${first} to ${last}` : first;
  }

  /** @param {Note} note */
  #go({ from, to }) {
    const { view } = this.timeline;
    if (to > from) view.show(from, to, 0.5);
    else view.center(from);
    this.timeline.draw();
  }

  /** @param {string} [remark] */
  #show(remark = "") {
    const isFocused = this.place.contains(document.activeElement);
    const items = this.all.map((note) =>
      newElement(
        "li",
        {},
        toolButton(this.#when(note), () => this.#go(note)),
        " ",
        nameElement(note.text),
        newElement(
          "span",
          { className: "timeline-actions" },
          toolButton("Edit", () => this.edit(note)),
          toolButton("Delete", () => this.set(this.all.filter((other) => other !== note))),
        ),
      ),
    );
    const list = items.length ? [newElement("h3", {}, "Notes"), newElement("ul", {}, ...items)] : [];
    this.place.replaceChildren(...list, ...(remark ? [newElement("p", { className: "note" }, remark)] : []));
    if (isFocused) this.timeline.canvas.focus({ preventScroll: true });
  }
}
