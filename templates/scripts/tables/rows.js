// The rows of one table as elements: the printed ones with their controls added, or new ones.

import { TableModel } from "./model.js";

export class TableRows {
  static ICONS = {
    copy: "M5.5 5.5v-4h9v9h-4M1.5 5.5h9v9h-9z",
    done: "M2 8.5l4 4 8-9",
    show: "M1.5 13.5h13M3.5 10.5h5M6.5 7h7M2.5 3.5h6",
  };

  // jump: what to ask of the timeline for a row, null where it has none.
  constructor(model, { headings, hasDetails, jump }) {
    Object.assign(this, { model, headings, hasDetails, jump });
    this.elements = new Map();
    this.opened = new Set(); // rows whose full name the reader opened
    this.allFull = false;
  }

  // Take over a row that the page has.
  adopt(element, row) {
    const heading = element.cells[0];
    heading.replaceChildren(this.#nameCell(row, Array.from(heading.childNodes)));
    this.#keep(element, row);
  }

  // The element of a row, made when it is first asked for.
  element(row) {
    return this.elements.get(row) ?? this.#keep(this.#made(row), row);
  }

  forget(row) {
    this.elements.delete(row);
  }

  // The row that a node of the table belongs to, NaN for none.
  static rowOf(node) {
    return Number(node.closest("tr")?.dataset.row ?? NaN);
  }

  static controls(element) {
    return element.querySelectorAll(".name-cell :is(button, summary, a)");
  }

  static kind(control) {
    return control.dataset.does ?? control.tagName;
  }

  // One row at a time can be reached by the Tab key; arrow keys go to the others.
  static setReachable(element, isReachable) {
    for (const control of TableRows.controls(element)) control.tabIndex = isReachable ? 0 : -1;
  }

  // Bring an element up to date with what is open.
  refresh(row) {
    const element = this.elements.get(row);
    const details = element.querySelector("details");
    if (details) details.open = this.allFull || this.opened.has(row);
    element.querySelector("button.toggle")?.setAttribute("aria-expanded", String(this.model.isOpen(row)));
  }

  // A row that nobody sees and that is as wide as the widest of each column, so that scrolling moves no column.
  ruler() {
    const row = TableRows.node("tr", "ruler");
    row.setAttribute("aria-hidden", "true");
    const name = TableRows.node("th");
    name.append(this.#nameCell(NaN, [TableRows.bdi(TableRows.#longest(this.model.short))]));
    row.append(name, ...this.model.columns.map((column, place) => this.#valueCell(place, TableRows.#widest(column), 0)));
    return row;
  }

  static #widest(column) {
    if (column.texts) return TableModel.cut(TableRows.#longest(column.texts));
    let [least, most, small] = [0, 0, 0];
    column.values.forEach((value, row) => {
      if (value < column.values[least] || Number.isNaN(column.values[least])) least = row;
      if (value > column.values[most] || Number.isNaN(column.values[most])) most = row;
      if (value > 0 && !(value >= column.values[small] && column.values[small] > 0)) small = row;
    });
    return TableRows.#longest([least, most, small].map(column.text));
  }

  static #longest(texts) {
    return texts.reduce((longest, text) => (text.length > longest.length ? text : longest), "");
  }

  #keep(element, row) {
    element.dataset.row = row;
    this.elements.set(row, element);
    TableRows.setReachable(element, false);
    return element;
  }

  #made(row) {
    const element = TableRows.node("tr");
    const heading = TableRows.node("th", `level-${Math.min(this.model.level?.[row] ?? 0, 8)}`);
    heading.scope = "row";
    heading.append(this.#nameCell(row, [this.#name(row)]));
    const cells = this.model.columns.map((column, place) =>
      this.#valueCell(place, column.text(row), column.share ? column.share(row) : null),
    );
    element.append(heading, ...cells);
    return element;
  }

  #name(row) {
    const short = TableRows.bdi(this.model.short[row]);
    if (!this.model.full[row]) return short;
    const details = TableRows.node("details", "full-name");
    const summary = TableRows.node("summary");
    const full = TableRows.node("bdi", "full");
    full.textContent = this.model.full[row];
    summary.append(short);
    details.append(summary, full);
    return details;
  }

  // What `content` names, after the control that opens what is inside it, and before the other ones.
  #nameCell(row, content) {
    const cell = TableRows.node("div", "name-cell");
    if (this.model.parent) cell.append(this.model.inside[row] ? this.#toggle(row) : TableRows.node("span", "toggle"));
    cell.append(...content);
    if (Number.isNaN(row)) return cell;
    const tools = TableRows.node("span", "row-tools");
    const name = this.model.short[row];
    tools.append(TableRows.icon("copy", `Copy ${name}`));
    if (this.jump?.(row)) tools.append(TableRows.icon("show", `Show ${name} in the timeline`));
    cell.append(tools);
    return cell;
  }

  #toggle(row) {
    const button = TableRows.button("toggle", "", "toggle");
    button.setAttribute("aria-label", `Inside ${this.model.short[row]}`);
    button.setAttribute("aria-expanded", String(this.model.isOpen(row)));
    return button;
  }

  #valueCell(place, text, share) {
    const { isNumber, isMinor } = this.headings[place + 1];
    const cell = TableRows.node("td", isNumber ? "number" : "");
    if (isMinor) cell.classList.add("minor");
    if (share !== null && this.model.columns[place].share) {
      cell.classList.add("with-share");
      cell.append(TableRows.bar(share));
    }
    cell.append(isNumber ? text : TableRows.bdi(text));
    return cell;
  }

  static node(tag, className = "") {
    const node = document.createElement(tag);
    if (className) node.className = className;
    return node;
  }

  static button(does, text, className) {
    const button = TableRows.node("button", className);
    button.type = "button";
    button.dataset.does = does;
    button.textContent = text;
    return button;
  }

  static icon(does, label) {
    const button = TableRows.button(does, "", "icon");
    button.title = label.split(" ", 1)[0] === "Copy" ? "Copy the full name" : "Show in the timeline";
    button.setAttribute("aria-label", label);
    TableRows.draw(button, TableRows.ICONS[does]);
    return button;
  }

  static draw(button, outline) {
    const [picture, path] = TableRows.#shapes("svg", "path");
    picture.setAttribute("viewBox", "0 0 16 16");
    path.setAttribute("d", outline);
    picture.append(path);
    button.replaceChildren(picture);
  }

  static bar(share) {
    const [picture, bar] = TableRows.#shapes("svg", "rect");
    picture.setAttribute("class", "share");
    bar.setAttribute("width", `${share.toFixed(2)}%`);
    bar.setAttribute("height", "100%");
    picture.append(bar);
    return picture;
  }

  static #shapes(...names) {
    const { namespaceURI } = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild;
    const shapes = names.map((name) => document.createElementNS(namespaceURI, name));
    shapes[0].setAttribute("aria-hidden", "true");
    return shapes;
  }

  // A name that may go on in the next line after a separator.
  static bdi(text) {
    const name = TableRows.node("bdi");
    text.split(/(?<=[_,<…])(?=\S)/).forEach((part, at) => name.append(...(at ? [TableRows.node("wbr"), part] : [part])));
    return name;
  }
}
