// The body of a table: all its rows, or for many rows a scrolling box that contains only the visible ones.

import { newElement, shadeLowerEdge } from "../dom.js";
import { firstAbove } from "../searching.js";
import { TableRows } from "./rows.js";

/** @typedef {{ control: HTMLElement, row: number, kind: string }} Focus */

export class TableBox {
  /** @type {HTMLTableSectionElement} */
  body;
  /** @type {HTMLTableRowElement} */
  above;
  /** @type {HTMLTableRowElement} */
  below;
  /** @type {Map<number, number>} */
  places;
  /** @type {Uint32Array} */
  order;
  /** @type {Float64Array} */
  begins;
  /** @type {number[]} */
  drawn;
  /** @type {number | undefined} */
  reachable;
  /** @type {HTMLTableRowElement | undefined} */
  reached;
  /** @type {number | undefined} */
  width;

  static MARGIN = 240; // pixels of rows to keep above and below the visible ones
  static PASSES = 3; // real heights can change which rows are visible

  /**
   * @param {HTMLElement} scroll
   * @param {HTMLTableElement} table
   * @param {TableRows} rows
   */
  constructor(scroll, table, rows) {
    this.scroll = scroll;
    this.table = table;
    this.rows = rows;
    this.model = rows.model;
    this.printed = table.tBodies[0];
    this.isVirtual = this.model.count > this.printed.rows.length;
    this.heights = new Float64Array(this.model.count);
    this.guess = 0;
    this.order = new Uint32Array();
    this.drawn = [];
    this.current = NaN;
    this.waits = 0;
    if (this.isVirtual) this.#makeBox();
    else Array.from(this.printed.rows).forEach((element, row) => rows.adopt(element, row));
    this.body ??= this.printed;
    new ResizeObserver(() => this.#resized()).observe(scroll);
    scroll.addEventListener("scroll", () => this.#soon());
    shadeLowerEdge(scroll);
    this.arrange();
  }

  #makeBox() {
    this.table.classList.add("virtual");
    this.scroll.classList.add("box");
    this.printed.classList.add("printed");
    this.body = newElement("tbody");
    this.above = TableBox.#space(this.model.columns.length + 1);
    this.below = TableBox.#space(this.model.columns.length + 1);
    this.body.append(this.rows.ruler(), this.above, this.below);
    this.table.append(this.body);
  }

  /** @param {number} columns */
  static #space(columns) {
    return newElement("tr", { className: "space", "aria-hidden": "true" }, newElement("td", { colspan: String(columns) }));
  }

  /**
   * Shows the current rows of the model; scrolls to the top unless `stays`.
   * @param {{ stays?: boolean }} [of]
   */
  arrange({ stays = false } = {}) {
    this.order = this.model.rows();
    this.places = new Map(Array.from(this.order, (row, place) => [row, place]));
    if (this.isVirtual) {
      if (!stays) this.scroll.scrollTop = 0;
      this.table.setAttribute("aria-rowcount", String(this.order.length + 1));
      this.#stack();
    }
    this.draw();
  }

  draw() {
    const focus = this.#focused();
    if (this.isVirtual) this.#drawInSight();
    else this.#place(0, this.order.length);
    this.#letReach();
    if (focus) this.#focusAgain(focus);
  }

  #drawInSight() {
    for (let pass = 0; pass < TableBox.PASSES; pass++) {
      const [top, height] = [this.scroll.scrollTop, this.scroll.clientHeight || innerHeight];
      const first = this.#placeAt(top - TableBox.MARGIN);
      const last = Math.min(this.#placeAt(top + height + TableBox.MARGIN) + 1, this.order.length);
      this.#place(first, last);
      this.#fill(first, last);
      if (!this.#measure()) return;
      this.#stack();
      this.#fill(first, last);
    }
  }

  #soon() {
    if (!this.isVirtual || this.waits) return;
    this.waits = requestAnimationFrame(() => {
      this.waits = 0;
      this.draw();
    });
  }

  #resized() {
    if (!this.isVirtual || this.width === this.scroll.clientWidth) return;
    this.width = this.scroll.clientWidth;
    this.scroll.style.setProperty("--bar", `${this.scroll.offsetWidth - this.width}px`);
    this.forgetHeights();
  }

  forgetHeights() {
    this.heights.fill(0);
    this.guess = 0;
    if (this.isVirtual) this.#stack();
    this.#soon();
  }

  // Computes where each row begins; rows not measured yet get the average height.
  #stack() {
    const guess = this.guess || 32;
    this.begins = new Float64Array(this.order.length + 1);
    this.order.forEach((row, place) => {
      this.begins[place + 1] = this.begins[place] + (this.heights[row] || guess);
    });
  }

  /**
   * The place (in display order) of the row at height `y`.
   * @param {number} y
   */
  #placeAt(y) {
    return Math.max(firstAbove(this.begins, y, 0, this.order.length) - 1, 0);
  }

  /**
   * Puts the rows at places first to last - 1 into the page; rows that are already there are not moved, to keep focus.
   * @param {number} first
   * @param {number} last
   */
  #place(first, last) {
    const visible = this.order.slice(first, last);
    const isVisible = new Set(visible);
    for (const row of this.drawn) {
      if (isVisible.has(row)) continue;
      this.rows.elements.get(row)?.remove();
      if (this.isVirtual) this.rows.forget(row);
    }
    let next = this.isVirtual ? this.above.nextElementSibling : this.body.firstElementChild;
    for (const row of visible) {
      const element = this.rows.element(row);
      if (element === next) next = element.nextElementSibling;
      else this.body.insertBefore(element, next);
      this.rows.refresh(row);
      if (this.isVirtual) element.setAttribute("aria-rowindex", String(this.placeOf(row) + 2));
    }
    if (!this.isVirtual) while (next) next = TableBox.#removed(next);
    this.drawn = Array.from(visible);
  }

  /** @param {Element} element */
  static #removed(element) {
    const next = element.nextElementSibling;
    element.remove();
    return next;
  }

  /**
   * Gives the spacers the heights of the rows above and below, so that the scrollbar is right.
   * @param {number} first
   * @param {number} last
   */
  #fill(first, last) {
    const heights = [this.begins[first], this.begins[this.order.length] - this.begins[last]];
    [this.above, this.below].forEach((space, index) => {
      space.hidden = heights[index] < 1;
      space.cells[0].style.height = `${heights[index]}px`;
    });
  }

  // Measures the rows in the page; true if a height differs from its estimate.
  #measure() {
    const heights = this.drawn.map((row) => this.rows.element(row).getBoundingClientRect().height);
    if (!heights.length || !heights[0]) return false; // inside a closed <details> nothing has a height
    const isFirst = !this.guess;
    this.guess ||= heights.reduce((sum, height) => sum + height, 0) / heights.length;
    const isNew = heights.map((height, index) => Math.abs(height - (this.heights[this.drawn[index]] || this.guess)) > 0.5);
    this.drawn.forEach((row, index) => (this.heights[row] = heights[index]));
    return isFirst || isNew.includes(true);
  }

  // Lets the Tab key reach the current row, or the first drawn one if the current row is not drawn.
  #letReach() {
    const row = this.places.has(this.current) && this.rows.elements.has(this.current) ? this.current : this.drawn[0];
    if (row === this.reachable && this.rows.elements.get(row) === this.reached) return;
    if (this.reached) TableRows.setReachable(this.reached, false);
    [this.reachable, this.reached] = [row, this.rows.elements.get(row)];
    if (this.reached) TableRows.setReachable(this.reached, true);
  }

  #focused() {
    const control = document.activeElement;
    if (!(control instanceof HTMLElement) || !this.body.contains(control)) return null;
    return { control, row: TableRows.rowOf(control), kind: TableRows.kind(control) };
  }

  /**
   * Restores the focus after drawing replaced elements; if the row is gone, the box gets it.
   * @param {Focus} focus
   */
  #focusAgain({ control, row, kind }) {
    if (document.activeElement === control) return;
    if (this.places.has(row) && this.rows.elements.get(row)?.isConnected) this.#focusControl(row, kind, true);
    else this.scroll.focus({ preventScroll: true });
  }

  /**
   * @param {number} row
   * @param {string} kind
   * @param {boolean} [preventScroll]
   */
  #focusControl(row, kind, preventScroll = false) {
    const controls = Array.from(TableRows.controls(this.rows.element(row)));
    const control = controls.find((candidate) => TableRows.kind(candidate) === kind) ?? controls[0];
    control?.focus({ preventScroll });
  }

  /**
   * Lets the Tab key reach a row.
   * @param {number} row
   */
  reach(row) {
    this.current = row;
    this.#letReach();
  }

  /**
   * Moves the focus to the same control of the row at a place.
   * @param {number} place
   * @param {string} kind
   */
  moveTo(place, kind) {
    const row = this.order[Math.min(Math.max(place, 0), this.order.length - 1)];
    if (row === undefined) return;
    if (this.isVirtual) this.#bringIntoSight(this.placeOf(row));
    this.reach(row);
    this.#focusControl(row, kind);
  }

  /** @param {number} place */
  #bringIntoSight(place) {
    const head = this.table.tHead?.offsetHeight ?? 0;
    const room = this.scroll.clientHeight - head;
    const [begin, end] = [this.begins[place], this.begins[place + 1]];
    if (begin < this.scroll.scrollTop) this.scroll.scrollTop = begin;
    else if (end > this.scroll.scrollTop + room) this.scroll.scrollTop = end - room;
    this.draw();
  }

  /** @param {number} row */
  placeOf(row) {
    return this.places.get(row) ?? -1;
  }
}
