// Copies data out of the page: tables as a CSV file or as CSV text, names to the clipboard.

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
   * The filtered rows in order, as CSV: numbers at full precision in the unit of the column's name, full names, and
   * replay numbers in a separate column.
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
   * Splits `12. name` into a replay number and a name.
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
   * Quotes a text; one that a spreadsheet would run as a formula gets a leading apostrophe.
   * @param {string} text
   */
  static #text(text) {
    const safe = TableCopy.FORMULA.test(text) ? `'${text}` : text;
    return /[",\r\n]|^\s|\s$/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  // Sandboxed frames cannot download, and trying would log an error. They look the same as frames of another origin,
  // so in both cases the CSV is shown as text.
  static get canSave() {
    return window === window.parent || window.origin !== "null";
  }

  /**
   * Shows the text of a file in a dialog, to be copied.
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
      "This page is in a frame that does not allow downloads. Copy the text, or open the page in its own tab.";
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
      status.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C or ⌘C to copy the selected text";
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
    TableCopy.#tell(isCopied ? "Copied" : "The browser does not allow this page to copy");
    if (!isCopied) return;
    TableRows.draw(button, TableRows.ICONS.done);
    setTimeout(() => TableRows.draw(button, TableRows.ICONS.copy), TableCopy.SHOWN_MS);
  }

  /** @param {string} text */
  static async #toClipboard(text) {
    if (window !== window.parent) return false; // in a frame, even a refusal would log an error
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false; // no clipboard, or the reader refused
    }
  }

  /**
   * The older way to copy, for pages without access to the clipboard.
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

  /**
   * Announces a text to screen readers.
   * @param {string} text
   */
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
