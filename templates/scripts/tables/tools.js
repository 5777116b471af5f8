// What a reader can do with one table: sort by its headings, filter, switch names, take it along as CSV.

import { NO_EXPRESSION } from "../matching.js";
import { TableBox } from "./box.js";
import { TableCopy } from "./copy.js";
import { TableJumps } from "./jumps.js";
import { TableRows } from "./rows.js";

export class TableTools {
  static ARROWS = { 1: "ascending", "-1": "descending", 0: "none" };

  constructor(scroll) {
    this.scroll = scroll;
    this.table = scroll.querySelector("table");
    this.printed = Array.from(this.table.tBodies[0].rows);
    this.headings = Array.from(this.table.tHead.rows[0].cells, TableTools.#heading);
    this.bar = TableRows.node("div", "table-tools");
    this.bar.setAttribute("role", "group");
    this.bar.setAttribute("aria-label", `Tools for the table ${this.table.caption.textContent}`);
    this.sorting = { place: 0, direction: 0 };
    if (this.printed.length > 1) this.#makeHeadings();
    this.#makeBar();
    // now, and not when the rows are there, so that the page below moves once
    this.hasMore = scroll.nextElementSibling?.classList.contains("more") ?? false;
    scroll.before(this.bar);
  }

  static #heading(cell) {
    const symbol = /\((.+)\)$/.exec(cell.querySelector(".unit")?.textContent ?? "")?.[1] ?? "";
    const [isNumber, isMinor] = ["number", "minor"].map((name) => cell.classList.contains(name));
    return { cell, symbol, name: cell.dataset.column ?? "", title: cell.textContent, isNumber, isMinor };
  }

  #makeHeadings() {
    this.headings.forEach(({ cell }, place) => {
      const button = TableRows.button("sort", "", "sort");
      button.append(...cell.childNodes);
      cell.append(button);
      cell.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => this.#sort(place));
    });
  }

  #makeBar() {
    const name = this.table.caption.textContent;
    this.input = TableRows.node("input");
    Object.assign(this.input, { type: "search", placeholder: "Filter: text or /regex/", autocomplete: "off", spellcheck: false });
    this.input.setAttribute("aria-label", `Filter ${name}`);
    this.input.addEventListener("input", () => this.#filter());
    this.status = TableRows.node("output");
    this.names = this.#button("Full names", () => this.#switchNames());
    this.all = this.#button(`All ${this.headings.length} columns`, () => this.#switchColumns());
    for (const each of [this.names, this.all]) each.setAttribute("aria-pressed", "false");
    this.opens = this.#button("Open all", () => this.#openAll(true));
    this.closes = this.#button("Close all", () => this.#openAll(false));
    const file = this.#button("CSV", () => this.#download());
    file.title = "Download these rows, as filtered and sorted, with all columns and digits";
    file.setAttribute("aria-label", `Download ${name} as CSV`);
    const quiet = TableRows.node("span", "quiet");
    quiet.append(this.opens, this.closes, this.all, this.names, file);
    this.bar.append(this.input, this.status, quiet);
    this.input.hidden = this.printed.length < TableTools.FEW;
    for (const each of [this.names, this.opens, this.closes]) each.hidden = true;
    this.all.hidden = !this.headings.some(({ isMinor }) => isMinor);
    this.table.classList.toggle("few-columns", !this.all.hidden);
  }

  static FEW = 5; // a table with fewer rows needs no filter

  #button(text, act) {
    const button = TableRows.button("tool", text, "tool");
    button.addEventListener("click", () => this.model && act());
    return button;
  }

  // The rows are there: show them. note: what is to be said about those that are not.
  show(model, note, hasTimeline) {
    this.model = model;
    const jump = hasTimeline ? TableJumps.of(this.table, model, this.headings) : null;
    this.rows = new TableRows(model, { headings: this.headings, jump });
    this.box = new TableBox(this.scroll, this.table, this.rows);
    this.names.hidden = !model.full.some(Boolean);
    if (this.table.dataset.details !== undefined) this.names.textContent = "Details";
    this.opens.hidden = this.closes.hidden = !model.inside?.some(Boolean);
    this.table.classList.toggle("tree", Boolean(model.parent));
    this.#say(note);
    this.#listen();
    this.#count();
    if (this.input.value) this.#filter();
  }

  // Under a table with all rows in its box: what is not there. On paper there are the printed rows and their note.
  #say(note) {
    if (this.box.isVirtual) this.scroll.nextElementSibling?.classList.add("on-paper");
    if (!note) return;
    const text = TableRows.node("p", "note on-screen");
    text.textContent = note;
    this.scroll.after(text);
  }

  #listen() {
    const body = this.box.body;
    body.addEventListener("click", (event) => this.#click(event));
    body.addEventListener("keydown", (event) => this.#key(event));
    body.addEventListener("focusin", (event) => this.box.reach(TableRows.rowOf(event.target)));
    body.addEventListener("toggle", (event) => this.#opened(event.target), true);
  }

  #click(event) {
    const button = event.target.closest("button");
    const row = button ? TableRows.rowOf(button) : NaN;
    if (Number.isNaN(row)) return;
    if (button.dataset.does === "toggle") this.#toggle(row);
    if (button.dataset.does === "copy") TableCopy.copy(this.model.name(row), button);
    if (button.dataset.does === "show") {
      document.dispatchEvent(new CustomEvent("timeline:show", { detail: this.rows.jump(row) }));
    }
  }

  #opened(details) {
    const row = TableRows.rowOf(details);
    if (details.open) this.rows.opened.add(row);
    else if (!this.rows.allFull) this.rows.opened.delete(row);
    if (this.rows.allFull && details.open) this.rows.opened.delete(row);
    if (this.box.isVirtual) this.box.draw();
  }

  #toggle(row, isOpen = !this.model.isOpen(row)) {
    this.model.setOpen(row, isOpen);
    this.box.arrange({ stays: true });
  }

  #openAll(isOpen) {
    this.model.openAll(isOpen);
    this.box.arrange();
  }

  #key(event) {
    const row = TableRows.rowOf(event.target);
    if (Number.isNaN(row) || event.ctrlKey || event.metaKey || event.altKey) return;
    const kind = TableRows.kind(event.target);
    const place = this.box.placeOf(row);
    const places = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: this.box.order.length - 1 };
    const isKnown = event.key in places || this.#keyInTree(event.key, row);
    if (event.key in places) this.box.moveTo(places[event.key], kind);
    if (isKnown) event.preventDefault();
  }

  // As in a tree: right opens, left closes or goes to what the row is inside of.
  #keyInTree(key, row) {
    if (!this.model.parent || !["ArrowLeft", "ArrowRight"].includes(key)) return false;
    const isOpen = this.model.inside[row] && this.model.isOpen(row);
    const parent = this.model.parent[row];
    if (key === "ArrowRight" && this.model.inside[row] && !isOpen) this.#toggle(row, true);
    else if (key === "ArrowLeft" && isOpen) this.#toggle(row, false);
    else if (key === "ArrowLeft" && parent >= 0) this.box.moveTo(this.box.placeOf(parent), "toggle");
    return true;
  }

  // Numbers from the largest on, texts from A on; then the other way; then as the report has them.
  #sort(place) {
    if (!this.model) return;
    const begin = performance.now();
    const first = this.headings[place].isNumber ? -1 : 1;
    const { place: before, direction } = this.sorting;
    const next = place !== before || !direction ? first : direction === first ? -first : 0;
    this.sorting = { place, direction: next };
    this.headings.forEach(({ cell }, at) => cell.setAttribute("aria-sort", TableTools.ARROWS[at === place ? next : 0]));
    this.model.sort(place, next);
    this.box.arrange();
    performance.measure("table: sort", { start: begin, end: performance.now() });
  }

  #filter() {
    if (!this.model) return;
    const begin = performance.now();
    const isFilter = this.model.filter(this.input.value);
    this.box.arrange();
    this.input.setAttribute("aria-invalid", String(!isFilter));
    if (isFilter) this.#count();
    else this.status.textContent = NO_EXPRESSION;
    performance.measure("table: filter", { start: begin, end: performance.now() });
  }

  #count() {
    const { matched, count, total, noun } = this.model;
    const [some, here, all] = [matched, count, total].map((number) => number.toLocaleString("en-US"));
    const unfiltered = this.box.isVirtual ? `${count < total ? `${here} of ${all}` : here} ${noun}` : "";
    this.status.textContent = this.model.isFiltered ? `${some} of ${here}` : unfiltered;
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
    const name = this.table.caption.textContent;
    if (TableCopy.canSave) TableCopy.save(text, this.table.dataset.table || name);
    else TableCopy.show(text, name);
  }
}
