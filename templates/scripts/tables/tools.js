// The tools of one table: sorting by headings, filter, full names, all columns, CSV.

import { newElement, part, partAround, toolButton } from "../dom.js";
import { reveal } from "../links.js";
import { NO_EXPRESSION } from "../matching.js";
import { formatCount } from "../numbers.js";
import { TableBox } from "./box.js";
import { TableCopy } from "./copy.js";
import { TableJumps } from "./jumps.js";
import { LinkedTables } from "./linked.js";
import { TableRows } from "./rows.js";

/** @import { TableModel } from "./model.js" */

export class TableTools {
  /** @type {TableModel} */
  model;
  /** @type {TableRows} */
  rows;
  /** @type {TableBox} */
  box;
  /** @type {HTMLElement} */
  bar;
  /** @type {HTMLInputElement} */
  input;
  /** @type {HTMLOutputElement} */
  status;
  /** @type {HTMLButtonElement} */
  names;
  /** @type {HTMLButtonElement} */
  all;
  /** @type {HTMLButtonElement} */
  opens;
  /** @type {HTMLButtonElement} */
  closes;

  /** @type {Record<number, "ascending" | "descending" | "none">} */
  static ARROWS = { 1: "ascending", "-1": "descending", 0: "none" };

  /** @param {HTMLTableElement} table */
  constructor(table) {
    const scroll = /** @type {HTMLElement} */ (table.parentElement);
    this.scroll = scroll;
    this.table = table;
    this.printed = Array.from(this.table.tBodies[0].rows);
    this.headings = Array.from(part(table, "thead tr", HTMLTableRowElement).cells, TableTools.#heading);
    this.bar = newElement("div", { className: "table-tools", role: "group", "aria-label": `Table tools: ${this.#name}` });
    this.sorting = { column: 0, direction: 0 };
    /** @type {string | null} */
    this.label = null; // of the rows that another part of the page has chosen
    if (this.printed.length !== 1) this.#makeHeadings();
    this.#makeBar();
    // insert the bar now, not when the rows are unpacked, so that the page below moves only once
    this.hasMore = scroll.nextElementSibling?.classList.contains("more") ?? false;
    scroll.before(this.bar);
  }

  /** @param {HTMLTableCellElement} cell */
  static #heading(cell) {
    const symbol = /\((.+)\)$/.exec(cell.querySelector(".unit")?.textContent ?? "")?.[1] ?? "";
    const [isNumber, isMinor] = ["number", "minor"].map((name) => cell.classList.contains(name));
    return { cell, symbol, name: cell.dataset.column ?? "", title: cell.textContent, isNumber, isMinor };
  }

  get #name() {
    return this.table.caption?.textContent ?? "";
  }

  #makeHeadings() {
    this.headings.forEach(({ cell }, column) => {
      const properties = { type: "button", className: "sort", onclick: () => this.#sort(column) };
      cell.append(newElement("button", properties, ...cell.childNodes));
      cell.setAttribute("aria-sort", "none");
    });
  }

  #makeBar() {
    const name = this.#name;
    this.input = newElement("input", {
      type: "search",
      placeholder: "Filter: text or /regex/",
      autocomplete: "off",
      spellcheck: "false",
      "aria-label": `Filter ${name}`,
    });
    this.input.addEventListener("input", () => this.#filter());
    this.status = newElement("output");
    this.names = this.#button("Full names", () => this.#switchNames());
    this.all = this.#button(`All ${this.headings.length} columns`, () => this.#switchColumns());
    for (const button of [this.names, this.all]) button.setAttribute("aria-pressed", "false");
    this.opens = this.#button("Expand all", () => this.#openAll(true));
    this.closes = this.#button("Collapse all", () => this.#openAll(false));
    const file = this.#button("CSV", () => this.#download());
    file.title = "Download these rows as filtered and sorted, with all columns and full precision";
    file.setAttribute("aria-label", `Download ${name} as CSV`);
    const quiet = newElement("span", { className: "quiet" }, this.opens, this.closes, this.all, this.names, file);
    this.bar.append(this.input, this.status, quiet);
    this.input.hidden = this.printed.length > 0 && this.printed.length < TableTools.FEW;
    for (const button of [this.names, this.opens, this.closes]) button.hidden = true;
    this.all.hidden = !this.headings.some(({ isMinor }) => isMinor);
    this.table.classList.toggle("few-columns", !this.all.hidden);
  }

  static FEW = 5; // a table with fewer rows needs no filter

  /**
   * @param {string} text
   * @param {() => void} act
   */
  #button(text, act) {
    return toolButton(text, () => this.model && act());
  }

  /**
   * Shows the rows once they are unpacked. note: the remark on missing rows, "" for none.
   * @param {TableModel} model
   * @param {string} note
   * @param {boolean} hasTimeline
   */
  show(model, note, hasTimeline) {
    this.model = model;
    const jump = hasTimeline ? TableJumps.of(this.table, model, this.headings) : null;
    const links = (/** @type {number} */ row) => LinkedTables.of(this.table.dataset.table ?? "", model, row);
    this.rows = new TableRows(model, { headings: this.headings, jump, links });
    this.box = new TableBox(this.scroll, this.table, this.rows);
    this.names.hidden = !model.full.some(Boolean);
    if (this.table.dataset.details !== undefined) this.names.textContent = "Details";
    this.opens.hidden = this.closes.hidden = !model.inside?.some(Boolean);
    this.table.classList.toggle("tree", Boolean(model.parent));
    this.#addNote(note);
    this.#listen();
    this.#count();
    if (this.input.value) this.#filter();
  }

  /**
   * Adds the note on screen. The printed note, which is about fewer rows, then appears only on paper.
   * @param {string} note
   */
  #addNote(note) {
    if (this.box.isVirtual) this.scroll.nextElementSibling?.classList.add("on-paper");
    if (!note) return;
    this.scroll.after(newElement("p", { className: "note on-screen" }, note));
  }

  #listen() {
    const body = this.box.body;
    body.addEventListener("click", (event) => this.#click(event));
    body.addEventListener("keydown", (event) => this.#key(event));
    body.addEventListener("focusin", ({ target }) => target instanceof Element && this.box.reach(TableRows.rowOf(target)));
    body.addEventListener("toggle", ({ target }) => target instanceof HTMLDetailsElement && this.#opened(target), true);
  }

  /** @param {Event} event */
  #click(event) {
    const button = partAround(event.target, "button", HTMLButtonElement);
    const row = button ? TableRows.rowOf(button) : NaN;
    if (!button || Number.isNaN(row)) return;
    if (button.dataset.does === "toggle") this.#toggle(row);
    this.rows.links(row).find(({ does }) => does === button.dataset.does)?.go();
    if (button.dataset.does === "copy") TableCopy.copy(this.model.name(row), button);
    if (button.dataset.does === "show") {
      document.dispatchEvent(new CustomEvent("timeline:show", { detail: this.rows.jump?.(row) }));
    }
  }

  /**
   * Brings a row into view, without a filter, and focuses it. isOpen: shows its child rows, too.
   * @param {number} row
   * @param {boolean} [isOpen]
   */
  reveal(row, isOpen = false) {
    if (this.input.value) {
      this.input.value = "";
      this.#filter();
    }
    for (let parent = this.model.parent?.[row] ?? -1; parent >= 0; parent = this.model.parent?.[parent] ?? -1) {
      this.model.setOpen(parent, true);
    }
    if (isOpen && this.model.hasInside(row)) this.model.setOpen(row, true);
    this.box.arrange({ stays: true });
    this.#count();
    this.#bringIntoView();
    this.box.moveTo(this.box.placeOf(row), "copy");
    this.rows.mark(row);
  }

  /**
   * Filters the rows, and brings the table into view.
   * @param {string} query
   */
  find(query) {
    this.input.value = query;
    this.#filter();
    this.#bringIntoView();
    this.input.focus({ preventScroll: true });
  }

  #bringIntoView() {
    reveal(this.scroll);
    const section = this.table.closest("section, .closed");
    const above = section ? this.bar.getBoundingClientRect().top - section.getBoundingClientRect().top : Infinity;
    // pictures between the heading and the table would push the table out of view
    const top = section && above < innerHeight / 2 ? section : this.bar;
    top.scrollIntoView({ behavior: "instant", block: "start" });
  }

  /** @param {HTMLDetailsElement} details */
  #opened(details) {
    const row = TableRows.rowOf(details);
    if (details.open) this.rows.opened.add(row);
    else if (!this.rows.allFull) this.rows.opened.delete(row);
    if (this.rows.allFull && details.open) this.rows.opened.delete(row);
    if (this.box.isVirtual) this.box.draw();
  }

  /**
   * @param {number} row
   * @param {boolean} [isOpen]
   */
  #toggle(row, isOpen = !this.model.isOpen(row)) {
    this.model.setOpen(row, isOpen);
    this.box.arrange({ stays: true });
    this.#count();
  }

  /** @param {boolean} isOpen */
  #openAll(isOpen) {
    this.model.openAll(isOpen);
    this.box.arrange();
    this.#count();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (!(event.target instanceof HTMLElement)) return;
    const row = TableRows.rowOf(event.target);
    if (Number.isNaN(row) || event.ctrlKey || event.metaKey || event.altKey) return;
    const kind = TableRows.kind(event.target);
    const place = this.box.placeOf(row);
    /** @type {Record<string, number>} */
    const places = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: this.box.order.length - 1 };
    const isUsed = event.key in places || this.#keyInTree(event.key, row);
    if (event.key in places) this.box.moveTo(places[event.key], kind);
    if (isUsed) event.preventDefault();
  }

  /**
   * Tree keys: right opens; left closes, or goes to the parent.
   * @param {string} key
   * @param {number} row
   */
  #keyInTree(key, row) {
    if (!this.model.parent || !["ArrowLeft", "ArrowRight"].includes(key)) return false;
    const hasInside = this.model.hasInside(row);
    const isOpen = hasInside && this.model.isOpen(row);
    const parent = this.model.parent[row];
    if (key === "ArrowRight" && hasInside && !isOpen) this.#toggle(row, true);
    else if (key === "ArrowLeft" && isOpen) this.#toggle(row, false);
    else if (key === "ArrowLeft" && parent >= 0) this.box.moveTo(this.box.placeOf(parent), "toggle");
    return true;
  }

  /**
   * Each click goes to the next order: numbers descending (texts ascending), the reverse, the report's order.
   * @param {number} column
   */
  #sort(column) {
    if (!this.model) return;
    const begin = performance.now();
    const first = this.headings[column].isNumber ? -1 : 1;
    const { column: previous, direction } = this.sorting;
    const next = column !== previous || !direction ? first : direction === first ? -first : 0;
    this.sorting = { column, direction: next };
    this.headings.forEach(({ cell }, index) => cell.setAttribute("aria-sort", TableTools.ARROWS[index === column ? next : 0]));
    this.model.sort(column, next);
    this.box.arrange();
    performance.measure("table: sort", { start: begin, end: performance.now() });
  }

  #filter() {
    if (!this.model) return;
    const begin = performance.now();
    const isValid = this.model.filter(this.input.value);
    this.label = null;
    this.box.arrange();
    this.input.setAttribute("aria-invalid", String(!isValid));
    if (isValid) this.#count();
    else this.status.textContent = NO_EXPRESSION;
    performance.measure("table: filter", { start: begin, end: performance.now() });
  }

  /**
   * Keeps the rows that pass a test, and shows the label; keeps all rows without a label.
   * @param {string | null} label
   * @param {(row: number) => boolean} test
   */
  only(label, test) {
    if (label === null && this.label === null) return;
    this.label = label;
    this.input.value = "";
    this.model.keep(label === null ? null : test);
    this.box.arrange();
    this.input.setAttribute("aria-invalid", "false");
    this.#count();
  }

  #count() {
    const { matched, count, total, noun } = this.model;
    const folded = count - this.box.order.length;
    const rows = count < total ? `${formatCount(count)} of ${formatCount(total)}` : formatCount(count);
    const label = this.label === null ? "" : ` ${noun}: ${this.label}`;
    const filtered = `${formatCount(matched)} of ${formatCount(count)}${label}`;
    const unfiltered = `${rows} ${noun}${folded ? `, ${formatCount(folded)} of them folded` : ""}`;
    // a table of few rows has no filter, and readers see their number
    this.status.textContent = this.model.isFiltered ? filtered : this.input.hidden ? "" : unfiltered;
  }

  #switchNames() {
    this.rows.allFull = !this.rows.allFull;
    if (!this.rows.allFull) this.rows.opened.clear();
    this.names.setAttribute("aria-pressed", String(this.rows.allFull));
    this.table.classList.toggle("full-names", this.rows.allFull && this.table.dataset.details === undefined);
    this.box.draw();
    this.box.forgetHeights();
  }

  #switchColumns() {
    const isAll = this.table.classList.toggle("all-columns");
    this.table.classList.toggle("few-columns", !isAll);
    this.all.setAttribute("aria-pressed", String(isAll));
    this.box.forgetHeights();
  }

  #download() {
    const text = TableCopy.csv(this.model, this.headings, this.table.dataset.details !== undefined);
    const name = this.#name;
    if (TableCopy.canSave) TableCopy.save(text, (this.table.dataset.table || name).replace("/", "_by_"));
    else TableCopy.show(text, name);
  }
}
