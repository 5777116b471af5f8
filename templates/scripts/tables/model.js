// The rows of a table: their data, filter, order and nesting.

import { part } from "../dom.js";
import { textTest } from "../matching.js";
import { ABSENT, formatCell, readNumber } from "../numbers.js";

/** @import { Column, Heading, PackedNumbers, PackedTable, PackedTexts, TableRowsData } from "./types.js" */

export class TableModel {
  static TEXT_LENGTH = 120;
  static FIRST_ROWS = 50;

  /**
   * short, full: texts of the first column; full is "" if short is already the full text. columns: the other columns,
   * each with `text(row)`, and `values` (NaN for missing) or `texts`; `full` if the texts are shortened. level: the
   * depth of each row, or null. numbered: the column (0 is the first) whose texts start with a replay number, or -1.
   * @param {TableRowsData} data
   */
  constructor({ short, full, level, columns, noun = "rows", total = short.length, more = "", numbered = -1 }) {
    this.short = short;
    this.full = full;
    this.level = level;
    this.columns = columns;
    this.noun = noun;
    this.total = total;
    this.more = more;
    this.numbered = numbered;
    this.count = short.length;
    this.natural = Uint32Array.from(short, (_, row) => row);
    this.isKept = new Uint8Array(this.count).fill(1);
    this.matched = this.count;
    this.isFiltered = false;
    this.sorted = this.natural;
    this.parent = level && TableModel.#parents(level);
    this.inside = this.parent && this.#inside(this.parent);
    this.open = this.parent ? this.#firstOpen(this.parent) : new Set();
    /** @type {Set<number>} */
    this.shut = new Set(); // rows that the reader closed while a filter had opened all
  }

  /**
   * A table of the compressed block. It lacks the full names of printed rows, which are read from the page.
   * @param {PackedTable} packed
   * @param {string[]} texts
   * @param {HTMLTableRowElement[]} printed
   */
  static fromBlock(packed, texts, printed) {
    const short = packed.name.map((code) => texts[code]);
    const full = short.map((_, row) =>
      row < printed.length ? TableModel.#printedName(printed[row]) : (texts[packed.full[row - printed.length]] ?? ""),
    );
    const columns = packed.columns.map((column) => TableModel.#packedColumn(column, texts));
    return new TableModel({ ...packed, short, full, columns, level: packed.level ?? null });
  }

  /**
   * @param {PackedTexts | PackedNumbers} column
   * @param {string[]} texts
   * @returns {Column}
   */
  static #packedColumn(column, texts) {
    if ("texts" in column) {
      const all = column.texts.map((code) => texts[code] ?? "");
      const full = column.full?.map((code) => texts[code] ?? "");
      return { texts: all, full, text: (row) => TableModel.cut(all[row]) || ABSENT };
    }
    const { values, largest } = column;
    /** @type {(row: number, most: number) => number | null} */
    const share = (row, most) => {
      const value = values[row];
      return value === null ? null : Math.min(Math.max((100 * value) / most, 0), 100);
    };
    return {
      values: Float64Array.from(values, (value) => value ?? NaN),
      text: (row) => formatCell(values[row], column),
      share: largest ? (row) => share(row, largest) : null,
    };
  }

  /**
   * A table that is printed completely: its data are read from the page, with the precision printed there.
   * @param {HTMLTableRowElement[]} printed
   * @param {Heading[]} headings
   */
  static fromPage(printed, headings) {
    const short = printed.map((row) => part(row.cells[0], "bdi", HTMLElement).textContent);
    const levels = printed.map((row) => Number(/\blevel-(\d+)/.exec(row.cells[0].className)?.[1] ?? 0));
    const columns = headings.slice(1).map((heading, index) => {
      const cells = printed.map((row) => row.cells[index + 1].textContent.trim());
      const text = (/** @type {number} */ row) => cells[row];
      if (!heading.isNumber) return { texts: cells.map((cell) => (cell === ABSENT ? "" : cell)), text };
      return { values: Float64Array.from(cells, (cell) => readNumber(cell, heading.symbol)), text };
    });
    const level = levels.some((depth) => depth > 0) ? levels : null;
    return new TableModel({ short, full: printed.map(TableModel.#printedName), columns, level });
  }

  /** @param {HTMLTableRowElement} row */
  static #printedName(row) {
    return row.cells[0].querySelector(".full")?.textContent ?? "";
  }

  /**
   * Like middle_cut in nightsight.render.table.view: counts characters, not UTF-16 code units.
   * @param {string} text
   * @param {number} [length]
   */
  static cut(text, length = TableModel.TEXT_LENGTH) {
    if (text.length <= length) return text;
    const characters = Array.from(text);
    if (characters.length <= length) return text;
    const tail = (length - 1) >> 1;
    return `${characters.slice(0, length - 1 - tail).join("")}…${characters.slice(characters.length - tail).join("")}`;
  }

  /**
   * The full name of a row.
   * @param {number} row
   */
  name(row) {
    return this.full[row] || this.short[row];
  }

  /**
   * Sorts by a column (0 is the first); direction 0 restores the order of the report.
   * @param {number} index
   * @param {number} direction
   */
  sort(index, direction) {
    if (!direction) {
      this.sorted = this.natural;
      return;
    }
    const keys = this.#keys(index);
    // missing values are last in both directions; equal values keep the order of the report
    const compare = (/** @type {number} */ a, /** @type {number} */ b) => {
      const [left, right] = [keys[a], keys[b]];
      if (left === right) return a - b;
      if (Number.isNaN(left)) return Number.isNaN(right) ? a - b : 1;
      return Number.isNaN(right) ? -1 : direction * (left - right) || a - b;
    };
    this.sorted = this.natural.slice().sort(compare);
  }

  /** @param {number} index */
  #keys(index) {
    if (index === 0) return TableModel.#ranks(this.short);
    const column = this.columns[index - 1];
    return column.values ?? TableModel.#ranks(column.texts ?? []);
  }

  /**
   * The rank of each text in natural order (numbers inside texts compare by value); NaN for empty texts.
   * @param {string[]} texts
   */
  static #ranks(texts) {
    const sortKey = (/** @type {string} */ text) => text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"));
    const keys = Array.from(new Set(texts), (text) => [sortKey(text), text]);
    keys.sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
    const ranks = new Map();
    keys.forEach(([key, text], rank) => ranks.set(text, rank && key === keys[rank - 1][0] ? ranks.get(keys[rank - 1][1]) : rank));
    return texts.map((text) => (text ? ranks.get(text) : NaN));
  }

  /**
   * Keeps the rows whose name or texts match `query`, and their parents. Returns false for an invalid expression.
   * @param {string} query
   */
  filter(query) {
    const test = textTest(query);
    this.isFiltered = Boolean(test);
    this.shut.clear();
    this.isKept.fill(test ? 0 : 1);
    if (test) this.#keepMatches(test);
    this.matched = this.isKept.reduce((sum, flag) => sum + flag, 0);
    if (test && this.parent) this.#keepParents(this.parent);
    return test !== undefined;
  }

  /**
   * Keeps the rows that pass a test, and their parents; all rows without one.
   * @param {((row: number) => boolean) | null} test
   */
  keep(test) {
    this.isFiltered = Boolean(test);
    this.shut.clear();
    for (const row of this.natural) this.isKept[row] = Number(!test || test(row));
    this.matched = this.isKept.reduce((sum, flag) => sum + flag, 0);
    if (test && this.parent) this.#keepParents(this.parent);
  }

  /**
   * Tests each distinct text once: names repeat in many rows.
   * @param {(text: string) => boolean} test
   */
  #keepMatches(test) {
    /** @type {Map<string, boolean>} */
    const results = new Map();
    const passes = (/** @type {string} */ text) => {
      const result = results.get(text) ?? test(text);
      results.set(text, result);
      return result;
    };
    const values = this.columns.flatMap(({ texts, full }) => [texts ?? [], full ?? []]);
    const all = [this.short, this.full, ...values].filter((texts) => texts.length);
    for (let row = 0; row < this.count; row++) if (all.some((texts) => passes(texts[row]))) this.isKept[row] = 1;
  }

  /**
   * Keeps the parents of kept rows; parents come before their children, so one pass backwards is enough.
   * @param {Int32Array} parent
   */
  #keepParents(parent) {
    for (let row = this.count - 1; row >= 0; row--) {
      if (this.isKept[row] && parent[row] >= 0) this.isKept[parent[row]] = 1;
    }
  }

  /**
   * The filtered rows in order; rows inside closed parents only if `all`.
   * @param {boolean} [all]
   */
  rows(all = false) {
    if (!this.parent) return this.sorted.filter((row) => this.isKept[row]);
    /** @type {Map<number, number[]>} */
    const inside = new Map();
    for (const row of this.sorted) {
      const parent = this.parent[row];
      const children = inside.get(parent);
      if (children) children.push(row);
      else inside.set(parent, [row]);
    }
    const rows = [];
    const stack = (inside.get(-1) ?? []).slice().reverse();
    for (let row = stack.pop(); row !== undefined; row = stack.pop()) {
      if (!this.isKept[row]) continue;
      rows.push(row);
      if (all || this.isOpen(row)) stack.push(...(inside.get(row) ?? []).slice().reverse());
    }
    return Uint32Array.from(rows);
  }

  /** @param {number} row */
  isOpen(row) {
    return this.isFiltered ? !this.shut.has(row) : this.open.has(row);
  }

  /**
   * @param {number} row
   * @param {boolean} isOpen
   */
  setOpen(row, isOpen) {
    const rows = this.isFiltered ? this.shut : this.open;
    if (isOpen !== this.isFiltered) rows.add(row);
    else rows.delete(row);
  }

  /** @param {boolean} isOpen */
  openAll(isOpen) {
    for (let row = 0; row < this.count; row++) if (this.hasInside(row)) this.setOpen(row, isOpen);
  }

  /**
   * The parent of each row, which is the last row before it that is less deep; -1 for none.
   * @param {number[]} level
   */
  static #parents(level) {
    /** @type {number[]} */
    const path = [];
    return Int32Array.from(level, (depth, row) => {
      while (path.length && level[path[path.length - 1]] >= depth) path.pop();
      path.push(row);
      return path.at(-2) ?? -1;
    });
  }

  /**
   * Whether a row has child rows.
   * @param {number} row
   */
  hasInside(row) {
    return this.inside !== null && this.inside[row] > 0;
  }

  /**
   * The number of child rows of each row.
   * @param {Int32Array} parents
   */
  #inside(parents) {
    const counts = new Uint32Array(this.count);
    for (const parent of parents) if (parent >= 0) counts[parent]++;
    return counts;
  }

  /**
   * The rows that are open at first: as many levels as fit into about as many rows as a table prints.
   * @param {Int32Array} parents
   */
  #firstOpen(parents) {
    const depth = new Uint32Array(this.count);
    /** @type {number[]} */
    const counts = [];
    parents.forEach((parent, row) => {
      depth[row] = parent < 0 ? 0 : depth[parent] + 1;
      counts[depth[row]] = (counts[depth[row]] ?? 0) + 1;
    });
    let shown = 0;
    const tooDeep = counts.findIndex((count) => {
      shown += count;
      return shown > TableModel.FIRST_ROWS;
    });
    const deepest = tooDeep < 0 ? counts.length : Math.max(tooDeep - 1, 0);
    return new Set(Array.from(this.natural).filter((row) => this.hasInside(row) && depth[row] < deepest));
  }
}
