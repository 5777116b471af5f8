// The rows of one table as HTML elements: printed rows with controls added, or new rows.

import { newElement, part } from "../dom.js";
import { TableModel } from "./model.js";

/**
 * @import { TimelineTarget } from "../timeline/types.js"
 * @import { Column, Heading, RowLink } from "./types.js"
 */

export class TableRows {
  /** @type {Record<string, string>} */
  static ICONS = {
    copy: "M5.5 5.5v-4h9v9h-4M1.5 5.5h9v9h-9z",
    done: "M2 8.5l4 4 8-9",
    show: "M1.5 13.5h13M3.5 10.5h5M6.5 7h7M2.5 3.5h6",
    kernel: "M2.5 2.5h11v11h-11zM2.5 6.5h11M7 6.5v7",
    replay: "M13 8a5 5 0 1 1-1.5-3.5M12 1v4h-4",
    ranges: "M2 3v10M2 5.5h4M2 12h4M8 5.5h6M8 12h6",
    range: "M2 3v10M2 5.5h4M2 12h4M8 5.5h6M8 12h6",
    kernels: "M2 3.5h12M5 8h9M5 12.5h9",
  };

  /** @type {Record<string, string>} */
  static TITLES = {
    copy: "Copy full name",
    show: "Show in timeline",
    kernel: "Show its kernel time",
    replay: "Show its replay (Nsight Compute)",
    ranges: "Show the ranges that launch it",
    range: "Show it in the table of ranges",
    kernels: "Show its kernels",
  };

  static LONG = 24; // characters: longer texts may wrap (macros/tables.html)

  /**
   * jump: returns the target of a row in the timeline; null if the table has no counterpart there. links: returns the
   * other places of a row on the page.
   * @param {TableModel} model
   * @param {{ headings: Heading[], jump: ((row: number) => TimelineTarget | null) | null, links: (row: number) => RowLink[] }} of
   */
  constructor(model, { headings, jump, links }) {
    this.model = model;
    this.links = links;
    this.headings = headings;
    this.jump = jump;
    /** @type {Map<number, HTMLTableRowElement>} */
    this.elements = new Map();
    /** @type {Set<number>} */
    this.opened = new Set(); // rows whose full name the reader opened
    this.allFull = false;
  }

  /**
   * Adds controls to a printed row and uses it.
   * @param {HTMLTableRowElement} element
   * @param {number} row
   */
  adopt(element, row) {
    const heading = element.cells[0];
    heading.replaceChildren(this.#nameCell(row, Array.from(heading.childNodes)));
    this.#keep(element, row);
  }

  /**
   * The element of a row, created on first use.
   * @param {number} row
   */
  element(row) {
    return this.elements.get(row) ?? this.#keep(this.#newRow(row), row);
  }

  /**
   * Marks the row that a link led to.
   * @param {number} row
   */
  mark(row) {
    for (const element of this.elements.values()) element.classList.remove("found");
    this.elements.get(row)?.classList.add("found");
  }

  /** @param {number} row */
  forget(row) {
    this.elements.delete(row);
  }

  /**
   * The row number of a node inside the table, NaN for none.
   * @param {Element} node
   */
  static rowOf(node) {
    return Number(node.closest("tr")?.dataset.row ?? NaN);
  }

  /**
   * @param {Element} element
   * @returns {NodeListOf<HTMLElement>}
   */
  static controls(element) {
    return element.querySelectorAll(".name-cell :is(button, summary, a)");
  }

  /** @param {HTMLElement} control */
  static kind(control) {
    return control.dataset.does ?? control.tagName;
  }

  /**
   * Roving tabindex: the Tab key reaches one row at a time, arrow keys move to the others.
   * @param {Element} element
   * @param {boolean} isReachable
   */
  static setReachable(element, isReachable) {
    for (const control of TableRows.controls(element)) control.tabIndex = isReachable ? 0 : -1;
  }

  /**
   * Updates an element after a row was opened or closed.
   * @param {number} row
   */
  refresh(row) {
    const element = this.element(row);
    const details = element.querySelector("details");
    if (details) details.open = this.allFull || this.opened.has(row);
    element.querySelector("button.toggle")?.setAttribute("aria-expanded", String(this.model.isOpen(row)));
  }

  // An invisible row with the widest content of each column, so that columns keep their widths while scrolling.
  ruler() {
    const name = newElement("th", {}, this.#nameCell(NaN, [TableRows.breakable(TableRows.#longest(this.model.short))]));
    const cells = this.model.columns.map((column, index) => this.#valueCell(index, TableRows.#widest(column), 0));
    return newElement("tr", { className: "ruler", "aria-hidden": "true" }, name, ...cells);
  }

  /** @param {Column} column */
  static #widest(column) {
    const { texts, values } = column;
    if (!values) return TableModel.cut(TableRows.#longest(texts ?? []));
    let [least, most, small] = [0, 0, 0];
    values.forEach((value, row) => {
      if (value < values[least] || Number.isNaN(values[least])) least = row;
      if (value > values[most] || Number.isNaN(values[most])) most = row;
      if (value > 0 && !(value >= values[small] && values[small] > 0)) small = row;
    });
    return TableRows.#longest([least, most, small].map(column.text));
  }

  /** @param {string[]} texts */
  static #longest(texts) {
    return texts.reduce((longest, text) => (text.length > longest.length ? text : longest), "");
  }

  /**
   * @param {HTMLTableRowElement} element
   * @param {number} row
   */
  #keep(element, row) {
    element.dataset.row = String(row);
    this.elements.set(row, element);
    TableRows.setReachable(element, false);
    return element;
  }

  /** @param {number} row */
  #newRow(row) {
    const className = `level-${Math.min(this.model.level?.[row] ?? 0, 8)}`;
    const heading = newElement("th", { className, scope: "row" }, this.#nameCell(row, [this.#name(row)]));
    const cells = this.model.columns.map((column, index) =>
      this.#valueCell(index, column.text(row), column.share ? column.share(row) : null),
    );
    return newElement("tr", {}, heading, ...cells);
  }

  /** @param {number} row */
  #name(row) {
    const short = TableRows.breakable(this.model.short[row]);
    if (!this.model.full[row]) return short;
    const full = newElement("bdi", { className: "full" }, this.model.full[row]);
    return newElement("details", { className: "full-name" }, newElement("summary", {}, short), full);
  }

  /**
   * The name cell: toggle of the child rows, the name itself (`content`), and the other buttons.
   * @param {number} row
   * @param {(Node | string)[]} content
   */
  #nameCell(row, content) {
    const cell = newElement("div", { className: "name-cell" });
    if (this.model.parent) cell.append(this.model.hasInside(row) ? this.#toggle(row) : newElement("span", { className: "toggle" }));
    cell.append(...content);
    if (Number.isNaN(row)) return cell;
    const tools = newElement("span", { className: "row-tools" });
    const name = this.model.short[row];
    tools.append(TableRows.icon("copy", `Copy ${name}`));
    if (this.jump?.(row)) tools.append(TableRows.icon("show", `Show ${name} in the timeline`));
    for (const { does, label } of this.links(row)) tools.append(TableRows.icon(does, label));
    cell.append(tools);
    return cell;
  }

  /** @param {number} row */
  #toggle(row) {
    return newElement("button", {
      type: "button",
      className: "toggle",
      "data-does": "toggle",
      "aria-label": `Rows inside ${this.model.short[row]}`,
      "aria-expanded": String(this.model.isOpen(row)),
    });
  }

  /**
   * @param {number} index
   * @param {string} text
   * @param {number | null} share
   */
  #valueCell(index, text, share) {
    const { isNumber, isMinor } = this.headings[index + 1];
    const cell = newElement("td", isNumber ? { className: "number" } : {});
    if (!isNumber && text.length > TableRows.LONG) cell.classList.add("long");
    if (isMinor) cell.classList.add("minor");
    if (share !== null && this.model.columns[index].share) {
      cell.classList.add("with-share");
      cell.append(TableRows.bar(share));
    }
    cell.append(isNumber ? text : TableRows.breakable(text));
    return cell;
  }

  /**
   * @param {string} does
   * @param {string} label
   */
  static icon(does, label) {
    const properties = { type: "button", className: "icon", "data-does": does, title: TableRows.TITLES[does] };
    const button = newElement("button", { ...properties, "aria-label": label });
    TableRows.draw(button, TableRows.ICONS[does]);
    return button;
  }

  /**
   * @param {HTMLButtonElement} button
   * @param {string} outline
   */
  static draw(button, outline) {
    const [picture, path] = TableRows.#shapes("svg", "path");
    picture.setAttribute("viewBox", "0 0 16 16");
    path.setAttribute("d", outline);
    picture.append(path);
    button.replaceChildren(picture);
  }

  /** @param {number} share */
  static bar(share) {
    const [picture, bar] = TableRows.#shapes("svg", "rect");
    picture.setAttribute("class", "share");
    bar.setAttribute("width", `${share.toFixed(2)}%`);
    bar.setAttribute("height", "100%");
    picture.append(bar);
    return picture;
  }

  /**
   * SVG elements by name; the parser supplies their namespace, so that the page contains no address.
   * @param {...string} names
   */
  static #shapes(...names) {
    const { namespaceURI } = part(new DOMParser().parseFromString("<svg></svg>", "text/html"), "svg", SVGElement);
    const shapes = names.map((name) => document.createElementNS(namespaceURI, name));
    shapes[0].setAttribute("aria-hidden", "true");
    return shapes;
  }

  /**
   * A name that can wrap, but only after separators.
   * @param {string} text
   */
  static breakable(text) {
    const words = text.split(/(?<=[_,<…])(?=\S)/);
    return newElement("bdi", {}, ...words.flatMap((word, index) => (index ? [newElement("wbr"), word] : [word])));
  }
}
