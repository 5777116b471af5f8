// The rows of one table: where they come from, which of them a filter lets through, and in which order.

import { textTest } from "../matching.js";
import { ABSENT, formatCell, readNumber } from "../numbers.js";

export class TableModel {
  static TEXT_LENGTH = 120;
  static FIRST_ROWS = 50;

  // short, full: the texts of the first column, full ones "" where they are the same. columns: all others, each with
  // `text(row)`, and `values` (numbers, NaN where there is none) or `texts`, where these are short for something with
  // `full`. level: null, or the depth of each row. numbered: the column, 0 for the first, whose texts begin with the
  // number of a replay.
  constructor({ short, full, level, columns, noun = "rows", total = short.length, more = "", numbered = -1 }) {
    Object.assign(this, { short, full, level, columns, noun, total, more, numbered, count: short.length });
    this.natural = Uint32Array.from(short, (_, row) => row);
    this.kept = new Uint8Array(this.count).fill(1);
    this.matched = this.count;
    this.isFiltered = false;
    this.sorted = this.natural;
    this.parent = level && TableModel.#parents(level);
    this.inside = this.parent && this.#inside();
    this.open = this.parent ? this.#firstOpen() : null;
    this.shut = new Set(); // what the reader closed among the rows that a filter opened
  }

  // A table of the compressed block; the page has the full names of the rows that it prints.
  static fromBlock(packed, texts, printed) {
    const short = packed.name.map((code) => texts[code]);
    const full = short.map((_, row) =>
      row < printed.length ? TableModel.#printedName(printed[row]) : (texts[packed.full[row - printed.length]] ?? ""),
    );
    const columns = packed.columns.map((column) => TableModel.#packedColumn(column, texts));
    return new TableModel({ ...packed, short, full, columns, level: packed.level ?? null });
  }

  static #packedColumn(column, texts) {
    if (column.texts) {
      const all = column.texts.map((code) => texts[code] ?? "");
      const full = column.full?.map((code) => texts[code] ?? "");
      return { texts: all, full, text: (row) => TableModel.cut(all[row]) || ABSENT };
    }
    const shareOf = (value) => Math.min(Math.max((100 * value) / column.largest, 0), 100);
    const share = (row) => (column.values[row] === null ? null : shareOf(column.values[row]));
    return {
      values: Float64Array.from(column.values, (value) => value ?? NaN),
      text: (row) => formatCell(column.values[row], column),
      share: column.largest ? share : null,
    };
  }

  // A table that is all in the page: its numbers are what can be read there.
  static fromPage(printed, headings) {
    const short = printed.map((row) => row.cells[0].querySelector("bdi").textContent);
    const levels = printed.map((row) => Number(/\blevel-(\d+)/.exec(row.cells[0].className)?.[1] ?? 0));
    const columns = headings.slice(1).map((heading, place) => {
      const shown = printed.map((row) => row.cells[place + 1].textContent.trim());
      const text = (row) => shown[row];
      if (!heading.isNumber) return { texts: shown.map((each) => (each === ABSENT ? "" : each)), text };
      return { values: Float64Array.from(shown, (each) => readNumber(each, heading.symbol)), text };
    });
    const level = levels.some((each) => each > 0) ? levels : null;
    return new TableModel({ short, full: printed.map(TableModel.#printedName), columns, level });
  }

  static #printedName(row) {
    return row.cells[0].querySelector(".full")?.textContent ?? "";
  }

  // As pipeline.render.view.middle_cut: characters are counted, not code units.
  static cut(text, length = TableModel.TEXT_LENGTH) {
    if (text.length <= length) return text;
    const characters = Array.from(text);
    if (characters.length <= length) return text;
    const tail = (length - 1) >> 1;
    return `${characters.slice(0, length - 1 - tail).join("")}…${characters.slice(characters.length - tail).join("")}`;
  }

  name(row) {
    return this.full[row] || this.short[row];
  }

  // `place` counts columns from the first one on; a direction of 0 is the order that the report chose.
  sort(place, direction) {
    const keys = direction ? this.#keys(place) : null;
    // what is missing stays last whichever way, and what is equal in the report's order
    const compare = (one, other) => {
      const [left, right] = [keys[one], keys[other]];
      if (left === right) return one - other;
      if (Number.isNaN(left)) return Number.isNaN(right) ? one - other : 1;
      return Number.isNaN(right) ? -1 : direction * (left - right) || one - other;
    };
    this.sorted = keys ? this.natural.slice().sort(compare) : this.natural;
  }

  #keys(place) {
    if (place === 0) return TableModel.#ranks(this.short);
    const column = this.columns[place - 1];
    return column.values ?? TableModel.#ranks(column.texts);
  }

  // The place of each text among all of them, numbers in them by value; NaN for empty ones.
  static #ranks(texts) {
    const written = (text) => text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"));
    const keys = Array.from(new Set(texts), (text) => [written(text), text]);
    keys.sort(([one], [other]) => (one < other ? -1 : Number(one > other)));
    const ranks = new Map();
    keys.forEach(([key, text], at) => ranks.set(text, at && key === keys[at - 1][0] ? ranks.get(keys[at - 1][1]) : at));
    return texts.map((text) => (text ? ranks.get(text) : NaN));
  }

  // Keep the rows whose name or texts hold `query`, or match it if it is written /like this/. False if it cannot be one.
  filter(query) {
    const test = textTest(query);
    this.isFiltered = Boolean(test);
    this.shut.clear();
    const known = new Map();
    const holds = (text) => {
      if (!known.has(text)) known.set(text, test(text));
      return known.get(text);
    };
    const others = this.columns.flatMap((column) => [column.texts, column.full]).filter(Boolean);
    const texts = [this.short, this.full, ...others];
    this.kept.fill(test ? 0 : 1);
    if (test) for (let row = 0; row < this.count; row++) if (texts.some((all) => holds(all[row]))) this.kept[row] = 1;
    this.matched = this.kept.reduce((sum, kept) => sum + kept, 0);
    if (test && this.parent) this.#keepParents();
    return test !== undefined;
  }

  #keepParents() {
    for (let row = this.count - 1; row >= 0; row--) {
      if (this.kept[row] && this.parent[row] >= 0) this.kept[this.parent[row]] = 1;
    }
  }

  // Rows in order: all that the filter lets through, or those of them whose parents are open.
  rows(all = false) {
    if (!this.parent) return this.sorted.filter((row) => this.kept[row]);
    const inside = new Map();
    for (const row of this.sorted) {
      const parent = this.parent[row];
      if (inside.has(parent)) inside.get(parent).push(row);
      else inside.set(parent, [row]);
    }
    const found = [];
    const waiting = (inside.get(-1) ?? []).slice().reverse();
    while (waiting.length) {
      const row = waiting.pop();
      if (!this.kept[row]) continue;
      found.push(row);
      if ((all || this.isOpen(row)) && inside.has(row)) waiting.push(...inside.get(row).slice().reverse());
    }
    return Uint32Array.from(found);
  }

  isOpen(row) {
    return this.isFiltered ? !this.shut.has(row) : this.open.has(row);
  }

  setOpen(row, isOpen) {
    const [rows, has] = this.isFiltered ? [this.shut, !isOpen] : [this.open, isOpen];
    if (has) rows.add(row);
    else rows.delete(row);
  }

  openAll(isOpen) {
    for (let row = 0; row < this.count; row++) if (this.inside[row]) this.setOpen(row, isOpen);
  }

  // The row that each is inside: the last one before it that is less deep; -1 for none.
  static #parents(level) {
    const path = [];
    return Int32Array.from(level, (depth, row) => {
      while (path.length && level[path.at(-1)] >= depth) path.pop();
      return path.push(row) > 1 ? path.at(-2) : -1;
    });
  }

  #inside() {
    const counts = new Uint32Array(this.count);
    for (const parent of this.parent) if (parent >= 0) counts[parent]++;
    return counts;
  }

  // Open as many levels as show about as many rows as a table prints.
  #firstOpen() {
    const depth = new Uint32Array(this.count);
    const counts = [];
    this.parent.forEach((parent, row) => {
      depth[row] = parent < 0 ? 0 : depth[parent] + 1;
      counts[depth[row]] = (counts[depth[row]] ?? 0) + 1;
    });
    let shown = 0;
    const most = counts.findIndex((count) => (shown += count) > TableModel.FIRST_ROWS);
    const deepest = most < 0 ? counts.length : Math.max(most - 1, 0);
    return new Set(Array.from(this.natural).filter((row) => this.inside[row] && depth[row] < deepest));
  }
}
