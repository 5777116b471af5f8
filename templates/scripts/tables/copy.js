// Rows and names taken out of the page: as a file of comma separated values, or as its text, and through the clipboard.

import { TableRows } from "./rows.js";

/**
 * @import { TableModel } from "./model.js"
 * @import { Column, Heading } from "./types.js"
 */

/** @typedef {[name: string, value: (row: number) => string | number]} Field */

export class TableCopy {
  static FORMULA = /^[=+\-@\t\r＝＋－＠]/;
  static SHOWN_MS = 1500;

  /**
   * All rows that the filter lets through, in order; numbers with all digits in the unit that ends the column's name,
   * names in full, and the number of a replay in a column of its own.
   * @param {TableModel} model
   * @param {Heading[]} headings
   * @param {boolean} hasDetails
   */
  static csv(model, headings, hasDetails) {
    const [first, ...others] = headings.map(({ name, title }) => name || title);
    /** @type {(name: string, value: (row: number) => string | number, at: number) => Field[]} */
    const column = (name, value, at) => (at === model.numbered ? TableCopy.#apart(name, value) : [[name, value]]);
    const { level } = model;
    const fields = column(first, (row) => (hasDetails ? model.short[row] : model.name(row)), 0);
    if (hasDetails) fields.push(["details", (row) => model.full[row]]);
    fields.push(
      ...model.columns.flatMap((each, at) => column(others[at], (row) => TableCopy.#value(each, row), at + 1)),
    );
    if (level) fields.push(["level", (row) => level[row]]);
    const line = (/** @type {number} */ row) => fields.map(([, value]) => TableCopy.#written(value(row))).join(",");
    const lines = Array.from(model.rows(true), line);
    return [fields.map(([name]) => TableCopy.#text(name)).join(","), ...lines, ""].join("\r\n");
  }

  /**
   * The number of a replay, and the name that it stands before.
   * @param {string} name
   * @param {(row: number) => string | number} text
   * @returns {Field[]}
   */
  static #apart(name, text) {
    const parts = (/** @type {number} */ row) => /^(?:(\d+)\. )?(.*)$/s.exec(String(text(row))) ?? [];
    return [
      ["replay", (row) => parts(row)[1] ?? ""],
      [name, (row) => parts(row)[2]],
    ];
  }

  /**
   * @param {Column} column
   * @param {number} row
   */
  static #value(column, row) {
    if (column.texts) return column.full?.[row] || column.texts[row];
    const value = column.values?.[row];
    return value !== undefined && Number.isFinite(value) ? value : "";
  }

  /** @param {string | number} value */
  static #written(value) {
    return typeof value === "number" ? String(value) : TableCopy.#text(value);
  }

  /**
   * A text that a spreadsheet would take for a formula gets an apostrophe before it.
   * @param {string} text
   */
  static #text(text) {
    const safe = TableCopy.FORMULA.test(text) ? `'${text}` : text;
    return /[",\r\n]|^\s|\s$/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  // A sandboxed frame may not download, and asking would put a message into the console. Nothing tells such a frame
  // from one of another origin, so in both the text is shown.
  static get canSave() {
    return window === window.parent || window.origin !== "null";
  }

  /**
   * The text of a file, to be copied.
   * @param {string} text
   * @param {string} name
   */
  static show(text, name) {
    const dialog = TableRows.node("dialog", "csv");
    const heading = TableRows.node("h2");
    heading.id = "csv-title";
    heading.textContent = `${name} as CSV`;
    dialog.setAttribute("aria-labelledby", heading.id);
    const reason = TableRows.node("p", "note");
    reason.textContent =
      "This page is shown in a frame that allows no downloads: copy the text, or open the page in a tab of its own.";
    const area = TableRows.node("textarea");
    Object.assign(area, { value: text, readOnly: true, spellcheck: false, wrap: "off", rows: 16 });
    area.setAttribute("aria-labelledby", heading.id);
    dialog.append(heading, reason, area, TableCopy.#dialogTools(dialog, area));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    area.select();
    area.scrollTop = 0;
  }

  /**
   * @param {HTMLDialogElement} dialog
   * @param {HTMLTextAreaElement} area
   */
  static #dialogTools(dialog, area) {
    const tools = TableRows.node("p", "csv-tools");
    const status = TableRows.node("output");
    /** @type {(text: string, act: () => void) => HTMLButtonElement} */
    const button = (text, act) => {
      const made = TableRows.button(text, text, "tool");
      made.addEventListener("click", act);
      return made;
    };
    const copy = () => {
      area.select();
      status.textContent = document.execCommand("copy") ? "Copied" : "Copy the selected text with the keyboard";
    };
    tools.append(
      button("Copy", copy),
      button("Select all", () => area.select()),
      button("Close", () => dialog.close()),
      status,
    );
    return tools;
  }

  /**
   * @param {string} text
   * @param {string} name
   */
  static save(text, name) {
    const link = TableRows.node("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    link.download = `${name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "table"}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  /**
   * @param {string} text
   * @param {HTMLButtonElement} button
   */
  static async copy(text, button) {
    const isCopied = (await TableCopy.#toClipboard(text)) || TableCopy.#bySelection(text, button);
    TableCopy.#tell(isCopied ? "Copied" : "The browser does not let this page copy");
    if (!isCopied) return;
    TableRows.draw(button, TableRows.ICONS.done);
    setTimeout(() => TableRows.draw(button, TableRows.ICONS.copy), TableCopy.SHOWN_MS);
  }

  /** @param {string} text */
  static async #toClipboard(text) {
    if (window !== window.parent) return false; // in a frame even the refusal would be a message in the console
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false; // there is none, or the reader refused
    }
  }

  /**
   * @param {string} text
   * @param {HTMLButtonElement} button
   */
  static #bySelection(text, button) {
    const area = TableRows.node("textarea", "unseen");
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    button.focus({ preventScroll: true });
    return isCopied;
  }

  /** @param {string} text */
  static #tell(text) {
    let status = document.getElementById("table-status");
    if (!status) {
      status = TableRows.node("p", "unseen");
      status.id = "table-status";
      status.setAttribute("role", "status");
      document.body.append(status);
    }
    status.textContent = text;
  }
}
