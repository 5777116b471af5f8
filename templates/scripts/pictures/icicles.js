// Icicles: a chosen part filters the tables to its rows, and its events are highlighted in the timeline.

import { newElement, parts, toolButton } from "../dom.js";
import { PictureParts } from "./parts.js";

/** @import { TableTools } from "../tables/tools.js" */
/** @import { TimelineTarget } from "../timeline/types.js" */

const TABLE = "step_parts";
// tables whose rows can have the names of parts, by the counterpart of their rows in the timeline
const KINDS = ["kernel", "copy", "operator", "span"];

export class Icicle {
  /** @type {SVGElement | null} */
  chosen;

  /**
   * @param {SVGElement} picture
   * @param {TableTools[]} tables
   * @param {TableTools} table
   */
  constructor(picture, tables, table) {
    this.picture = picture;
    this.tables = tables;
    this.table = table; // of the parts
    this.chosen = null;
    picture.classList.add("is-live");
    this.parts = new PictureParts(picture, ["tree", "treeitem"], (chosen) => this.choose(chosen));
    for (const part of this.parts.all) {
      part.setAttribute("aria-level", part.dataset.level ?? "1");
      part.setAttribute("aria-selected", "false");
    }
    this.bar = newElement("p", { className: "chosen-part", role: "status" });
    this.parts.reading.after(this.bar);
    picture.addEventListener("keydown", ({ key }) => key === "Escape" && this.choose(null));
  }

  /**
   * Chooses a part; null, or the chosen part again, chooses none.
   * @param {SVGElement | null} part
   */
  choose(part) {
    const chosen = part === this.chosen ? null : part;
    for (const selected of document.querySelectorAll(".icicle [aria-selected=true]")) {
      selected.setAttribute("aria-selected", "false");
    }
    for (const bar of document.querySelectorAll(".chosen-part")) bar.replaceChildren();
    this.chosen = chosen;
    chosen?.setAttribute("aria-selected", "true");
    const rows = Icicle.#rows(chosen?.dataset.rows ?? "").filter((row) => row < this.table.model.count);
    this.#keep(chosen && PictureParts.text(chosen).split(": ")[0], new Set(rows));
    if (!chosen) return;
    const target = this.#target(chosen, rows);
    if (target) Icicle.#show({ ...target, stays: true });
    this.#describe(chosen, target);
  }

  /**
   * The numbers in `3-5 9`.
   * @param {string} text
   */
  static #rows(text) {
    return text.split(" ").filter(Boolean).flatMap((run) => {
      const [first, last = first] = run.split("-").map(Number);
      return Array.from({ length: last - first + 1 }, (_, index) => first + index);
    });
  }

  /** @param {TimelineTarget} detail */
  static #show(detail) {
    document.dispatchEvent(new CustomEvent("timeline:show", { detail }));
  }

  /**
   * Filters the table of parts to rows, and other tables to rows with their names; shows all rows without a part.
   * @param {string | null} label
   * @param {Set<number>} rows
   */
  #keep(label, rows) {
    const names = new Set(Array.from(rows, (row) => this.table.model.name(row)));
    for (const tools of this.tables) {
      if (tools === this.table) tools.only(label, (row) => rows.has(row));
      else if (KINDS.includes(tools.table.dataset.timeline ?? "")) {
        const { model } = tools;
        const isAny = model.natural.some((row) => names.has(model.name(row)));
        tools.only(isAny ? label : null, (row) => names.has(model.name(row)));
      }
    }
    const folded = this.table.table.closest("details");
    if (folded && label !== null) folded.open = true;
  }

  /**
   * The target of a part in the timeline, null if it has none.
   * @param {SVGElement} chosen
   * @param {number[]} rows
   * @returns {TimelineTarget | null}
   */
  #target(chosen, rows) {
    const { jump } = this.table.rows;
    if (!jump || !rows.length) return null;
    const path = chosen.dataset.path?.split(" / ");
    const within = path && path.length > 1 ? { within: path.slice(0, -1) } : {};
    if (path) return { name: path[path.length - 1], kind: "range", ...within, near_ns: this.#mean(rows), in_window: true };
    const targets = rows.map((row) => jump(row)).filter((target) => target !== null);
    if (targets.length < 2) return targets[0] ? { ...targets[0], in_window: true } : null;
    const names = targets.flatMap((target) => ("name" in target && target.name ? [target.name] : []));
    const [group] = targets.flatMap((target) => ("group" in target && target.group ? [target.group] : []));
    return names.length ? { names: [...new Set(names)], ...(group ? { group } : {}), in_window: true } : null;
  }

  /**
   * The mean time of rows in a step, in ns. It leads to a typical step: the longest one is often that of the start-up.
   * @param {number[]} rows
   */
  #mean(rows) {
    const { headings, model } = this.table;
    const times = model.columns[headings.findIndex(({ name }) => name === "time_ns") - 1]?.values;
    return times && rows.reduce((sum, row) => sum + times[row], 0);
  }

  /**
   * @param {SVGElement} chosen
   * @param {TimelineTarget | null} target
   */
  #describe(chosen, target) {
    const clear = toolButton("Show all rows", () => {
      const part = this.chosen;
      this.choose(null);
      if (part) this.parts.go(part);
    });
    const show = target ? [toolButton("Show in the timeline", () => Icicle.#show(target)), " "] : [];
    this.bar.replaceChildren(newElement("span", {}, PictureParts.text(chosen)), " ", ...show, clear);
  }
}

/** @param {TableTools[]} tables */
export function showIcicles(tables) {
  const partTable = tables.find(({ table }) => table.dataset.table === TABLE);
  if (!partTable) return;
  for (const picture of parts(document, ".icicle", SVGElement)) new Icicle(picture, tables, partTable);
}
