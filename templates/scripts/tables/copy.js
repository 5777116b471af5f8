// Copies data out of the page: tables as a CSV file or as CSV text, names to the clipboard.

import { copyText } from "../clipboard.js";
import { newElement, toolButton } from "../dom.js";
import { TableRows } from "./rows.js";

/**
 * @import { TableModel } from "./model.js"
 * @import { Column, Heading } from "./types.js"
 */

/** @typedef {[name: string, value: (row: number) => string | number]} Field */

export class TableCopy {
  static FORMULA = /^[=+\-@\t\r＝＋－＠]/;

  /**
   * The filtered rows in order, as CSV: numbers at full precision in the unit of the column's name, full names, and
   * replay numbers in a separate column.
   * @param {TableModel} model
   * @param {Heading[]} headings
   * @param {boolean} hasDetails
   */
  static csv(model, headings, hasDetails) {
    const names = headings.map(({ name, title }) => name || title);
    /** @type {(index: number, value: (row: number) => string | number) => Field[]} */
    const column = (index, value) => (index === model.numbered ? TableCopy.#numberFields(names[index], value) : [[names[index], value]]);
    const { level } = model;
    const fields = column(0, (row) => (hasDetails ? model.short[row] : model.name(row)));
    if (hasDetails) fields.push(["details", (row) => model.full[row]]);
    fields.push(...model.columns.flatMap((values, index) => column(index + 1, (row) => TableCopy.#value(values, row))));
    if (level) fields.push(["level", (row) => level[row]]);
    const line = (/** @type {number} */ row) => fields.map(([, value]) => TableCopy.#cell(value(row))).join(",");
    const lines = Array.from(model.rows(true), line);
    return [fields.map(([name]) => TableCopy.#text(name)).join(","), ...lines, ""].join("\r\n");
  }

  /**
   * Splits `12. name` into a replay number and a name.
   * @param {string} name
   * @param {(row: number) => string | number} text
   * @returns {Field[]}
   */
  static #numberFields(name, text) {
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
  static #cell(value) {
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
    const id = "csv-title";
    const dialog = newElement("dialog", { className: "csv", "aria-labelledby": id });
    const area = newElement("textarea", { "aria-labelledby": id });
    Object.assign(area, { value: text, readOnly: true, spellcheck: false, wrap: "off", rows: 16 });
    const reason = "This page is in a frame that does not allow downloads. Copy the text, or open the page in its own tab.";
    dialog.append(
      newElement("h2", { id }, `${name} as CSV`),
      newElement("p", { className: "note" }, reason),
      area,
      TableCopy.#dialogTools(dialog, area),
    );
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
    const status = newElement("output");
    const copy = () => {
      area.select();
      status.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C or ⌘C to copy the selected text";
    };
    return newElement(
      "p",
      { className: "csv-tools" },
      toolButton("Copy", copy),
      toolButton("Select all", () => area.select()),
      toolButton("Close", () => dialog.close()),
      status,
    );
  }

  /**
   * @param {string} text
   * @param {string} name
   */
  static save(text, name) {
    const href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    newElement("a", { href, download: `${name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "table"}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  }

  /**
   * @param {string} text
   * @param {HTMLButtonElement} button
   */
  static async copy(text, button) {
    const draw = (/** @type {string} */ icon) => () => TableRows.draw(button, icon);
    await copyText(text, button, { confirm: draw(TableRows.ICONS.done), restore: draw(TableRows.ICONS.copy) });
  }
}
