// What a step is made of: a chosen part keeps its rows in the tables, and its events are highlighted in the timeline.

import { TableRows } from "../tables/rows.js";
import { PictureParts } from "./parts.js";

/** @import { TableTools } from "../tables/tools.js" */
/** @import { Wish } from "../timeline/types.js" */

const OWN = "step_parts";
// tables whose rows have names that can be those of parts: by what their rows are in the timeline
const KINDS = ["kernel", "copy", "operator", "span"];

export class Icicle {
  /** @type {SVGElement | null} */
  chosen;

  /**
   * @param {SVGElement} picture
   * @param {TableTools[]} tables
   * @param {TableTools} own
   */
  constructor(picture, tables, own) {
    this.picture = picture;
    this.tables = tables;
    this.own = own;
    this.chosen = null;
    picture.classList.add("is-live");
    this.parts = new PictureParts(picture, ["tree", "treeitem"], (chosen) => this.choose(chosen));
    for (const each of this.parts.all) {
      each.setAttribute("aria-level", each.dataset.level ?? "1");
      each.setAttribute("aria-selected", "false");
    }
    this.bar = TableRows.node("p", "chosen-part");
    this.bar.setAttribute("role", "status");
    this.parts.reading.after(this.bar);
    picture.addEventListener("keydown", ({ key }) => key === "Escape" && this.choose(null));
  }

  /**
   * Chooses a part; null, or the chosen one again: none.
   * @param {SVGElement | null} wanted
   */
  choose(wanted) {
    const chosen = wanted === this.chosen ? null : wanted;
    for (const other of document.querySelectorAll(".icicle [aria-selected=true]")) {
      other.setAttribute("aria-selected", "false");
    }
    for (const other of document.querySelectorAll(".chosen-part")) other.replaceChildren();
    this.chosen = chosen;
    chosen?.setAttribute("aria-selected", "true");
    const rows = Icicle.#rows(chosen?.dataset.rows ?? "").filter((row) => row < this.own.model.count);
    this.#keep(chosen && PictureParts.text(chosen).split(": ")[0], new Set(rows));
    if (!chosen) return;
    const wish = this.#wish(chosen, rows);
    if (wish) Icicle.#show({ ...wish, stays: true });
    this.#say(chosen, wish);
  }

  /**
   * The numbers in `3-5 9`.
   * @param {string} text
   */
  static #rows(text) {
    return text.split(" ").filter(Boolean).flatMap((run) => {
      const [first, last = first] = run.split("-").map(Number);
      return Array.from({ length: last - first + 1 }, (_, at) => first + at);
    });
  }

  /** @param {Wish} detail */
  static #show(detail) {
    document.dispatchEvent(new CustomEvent("timeline:show", { detail }));
  }

  /**
   * Keeps the rows of the part in its table, and in others those with the same names; all rows if there is no part.
   * @param {string | null} label
   * @param {Set<number>} rows
   */
  #keep(label, rows) {
    const names = new Set(Array.from(rows, (row) => this.own.model.name(row)));
    for (const tools of this.tables) {
      if (tools === this.own) tools.only(label, (row) => rows.has(row));
      else if (KINDS.includes(tools.table.dataset.timeline ?? "")) {
        const { model } = tools;
        const isAny = model.natural.some((row) => names.has(model.name(row)));
        tools.only(isAny ? label : null, (row) => names.has(model.name(row)));
      }
    }
    const folded = this.own.table.closest("details");
    if (folded && label !== null) folded.open = true;
  }

  /**
   * What the part is in the timeline, null if it is not in it.
   * @param {SVGElement} chosen
   * @param {number[]} rows
   * @returns {Wish | null}
   */
  #wish(chosen, rows) {
    const { jump } = this.own.rows;
    if (!jump || !rows.length) return null;
    const path = chosen.dataset.path?.split(" / ");
    const within = path && path.length > 1 ? { within: path.slice(0, -1) } : {};
    if (path) return { name: path[path.length - 1], kind: "range", ...within, near_ns: this.#mean(rows), in_window: true };
    const wishes = rows.map((row) => jump(row)).filter(Boolean);
    if (wishes.length < 2) return wishes[0] ? { ...wishes[0], in_window: true } : null;
    const names = wishes.flatMap((wish) => (wish && "name" in wish && wish.name ? [wish.name] : []));
    const [group] = wishes.flatMap((wish) => (wish && "group" in wish && wish.group ? [wish.group] : []));
    return names.length ? { names: [...new Set(names)], ...(group ? { group } : {}), in_window: true } : null;
  }

  /**
   * The mean time of rows in a step, in ns. A typical step is to be shown: the longest is often that of start-up.
   * @param {number[]} rows
   */
  #mean(rows) {
    const { headings, model } = this.own;
    const times = model.columns[headings.findIndex(({ name }) => name === "time_ns") - 1]?.values;
    return times && rows.reduce((sum, row) => sum + times[row], 0);
  }

  /**
   * @param {SVGElement} chosen
   * @param {Wish | null} wish
   */
  #say(chosen, wish) {
    const text = TableRows.node("span");
    text.textContent = PictureParts.text(chosen);
    const buttons = [];
    if (wish) {
      const shows = TableRows.button("tool", "Show in the timeline", "tool");
      shows.addEventListener("click", () => Icicle.#show(wish));
      buttons.push(shows);
    }
    const clears = TableRows.button("tool", "Show all rows", "tool");
    clears.addEventListener("click", () => {
      const back = this.chosen;
      this.choose(null);
      if (back) this.parts.go(back);
    });
    this.bar.replaceChildren(text, " ", ...buttons.flatMap((button) => [button, " "]), clears);
  }
}

/** @param {TableTools[]} tables */
export function showIcicles(tables) {
  const own = tables.find(({ table }) => table.dataset.table === OWN);
  if (!own) return;
  for (const picture of document.querySelectorAll(".icicle")) {
    if (picture instanceof SVGElement) new Icicle(picture, tables, own);
  }
}
