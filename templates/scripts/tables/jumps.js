// Links from table rows to the timeline: the event, time span or curve that a row corresponds to.

/**
 * @import { TableModel } from "./model.js"
 * @import { Heading } from "./types.js"
 */

/**
 * @typedef {"kernel" | "operator" | "mark" | "call" | "functions" | "range" | "repetition" | "copy" | "replay" | "span"
 *   | "memory" | "counter" | "place" | "part"} Jump
 */

export class TableJumps {
  static NO_RANGE = "(no range)";
  static OTHERS = "(others)"; // parts of a step that are too small for separate rows
  static MEMORY = "Memory in use"; // the curve of memory allocated on a GPU
  static ON_GPU = ["Device", "Device Static", "Array"];
  static replayed = new Map(); // targets by replay number: ncu's kernel table sets them, all ncu tables use them

  /**
   * @param {TableModel} model
   * @param {Heading[]} headings
   * @param {string} [by]
   */
  constructor(model, headings, by = "") {
    this.model = model;
    this.by = by; // the grouping of the rows of a tree
    this.columns = new Map(headings.slice(1).map(({ name }, place) => [name, model.columns[place]]));
    if (this.columns.has("grid")) for (const row of model.natural) this.#register(row);
  }

  /**
   * A function from a row to its target in the timeline, null for none; null for tables without targets.
   * @param {HTMLTableElement} table
   * @param {TableModel} model
   * @param {Heading[]} headings
   */
  static of(table, model, headings) {
    const kind = /** @type {Jump | undefined} */ (table.dataset.timeline);
    if (!kind) return null;
    const jumps = new TableJumps(model, headings, table.dataset.table?.split("/")[1]);
    return (/** @type {number} */ row) => jumps[kind](row);
  }

  /**
   * @param {string} name
   * @param {number} row
   */
  #text(name, row) {
    return this.columns.get(name)?.texts?.[row] ?? "";
  }

  /**
   * @param {string} name
   * @param {number} row
   */
  #value(name, row) {
    const value = this.columns.get(name)?.values?.[row];
    return Number.isFinite(value) ? value : undefined;
  }

  /**
   * @param {string} word
   * @param {string} column
   * @param {number} row
   */
  #group(word, column, row) {
    const number = this.#value(column, row);
    return number === undefined ? {} : { group: `${word} ${number}` };
  }

  /** @param {number} row */
  #gpu(row) {
    return this.#group("GPU", "device", row);
  }

  /**
   * A kernel; of a row that groups kernels, the range or operator.
   * @param {number} row
   */
  kernel(row) {
    if (this.model.hasInside(row)) return this.by === "range" ? this.range(row) : this.by === "operator" ? this.operator(row) : null;
    return { name: this.model.name(row), kind: "kernel", ...this.#gpu(row) };
  }

  /** @param {number} row */
  operator(row) {
    return { name: this.model.name(row), kind: "op" };
  }

  /** @param {number} row */
  mark(row) {
    return { name: this.model.name(row), kind: "mark" };
  }

  /**
   * A function call, in the range and process of the row, and of the copy it launched if the row names one.
   * @param {number} row
   */
  call(row) {
    const path = this.#text("path", row);
    const where = path === TableJumps.NO_RANGE ? { outside: true } : path ? { within: path.split(" / ") } : {};
    const operation = this.#text("operation", row);
    const copy = operation ? this.#copyOf(operation, this.#text("host_kind", row)) : null;
    const work = copy ? { work: { ...copy, ...this.#gpu(row) } } : {};
    return { name: this.model.name(row), kind: "api", ...where, ...work, ...this.#group("Process", "pid", row) };
  }

  /** @param {number} row */
  functions(row) {
    const names = this.#text("functions", row);
    return names ? { names: names.split(", "), kind: "api" } : null;
  }

  /**
   * A range, inside its parent ranges in the tree.
   * @param {number} row
   */
  range(row) {
    const path = [this.model.name(row)];
    const parents = this.model.parent ?? [];
    for (let at = parents[row] ?? -1; at >= 0; at = parents[at]) path.unshift(this.model.name(at));
    return this.#range(path.join(" / "), row);
  }

  /**
   * The longest repetition of a range.
   * @param {number} row
   */
  repetition(row) {
    return this.#range(this.model.name(row), row);
  }

  /**
   * The longest repetition of the range that the row is about, if it is about one.
   * @param {number} row
   */
  place(row) {
    const path = this.#text("path", row);
    return path && path !== TableJumps.NO_RANGE ? this.#range(path, row) : null;
  }

  /**
   * A part of a step: its longest event, or the longest stretch of idle time.
   * @param {number} row
   */
  part(row) {
    const [at, longest] = [this.#value("longest_at_ns", row), this.#value("longest_ns", row)];
    const family = this.#text("family", row);
    if (family === TableJumps.OTHERS || at === undefined || longest === undefined) return null;
    if (this.#text("group", row) !== "busy") return { from_ns: at, to_ns: at + longest, of_window: true };
    if (this.#text("category", row) === "operators") return { ...this.operator(row), near_ns: longest };
    const isCopy = family.includes("-to-") || family === "memset";
    return { ...(isCopy ? this.copy(row) : this.kernel(row)), ...this.#gpu(row), near_ns: longest };
  }

  /**
   * @param {string} path
   * @param {number} row
   */
  #range(path, row) {
    const names = path.split(" / ");
    const within = names.length > 1 ? { within: names.slice(0, -1) } : {};
    return { name: names.at(-1), kind: "range", ...within, ...this.#group("Process", "pid", row) };
  }

  /**
   * A copy such as `Host-to-Device, Pageable → Device`; tables by size have memory kind and size class in columns. Page
   * faults are not drawn.
   * @param {number} row
   */
  copy(row) {
    const [operation, ...kinds] = this.model.name(row).split(", ");
    if (operation.endsWith("page faults")) return null;
    const [from, below] = ["from_bytes", "below_bytes"].map((column) => this.#value(column, row));
    const bytes = below ? { bytes: [from, below] } : {};
    return { ...this.#copyOf(operation, kinds.join(", ") || this.#text("host_kind", row)), kind: "kernel", ...bytes };
  }

  /**
   * @param {string} operation
   * @param {string} details
   */
  #copyOf(operation, details) {
    const name = operation === "memset" ? "[CUDA memset]" : `[CUDA memcpy ${operation}]`;
    return details ? { name, details } : { name };
  }

  /**
   * A kernel that ncu replayed: the launch of its name and shape in the timeline whose duration is the most typical.
   * @param {number} row
   */
  replay(row) {
    const name = this.#text("kernel", row) || this.model.name(row);
    return TableJumps.replayed.get(name.split(". ", 1)[0]) ?? null;
  }

  /**
   * Remembers the timeline counterpart of a replayed kernel.
   * @param {number} row
   */
  #register(row) {
    const [number] = this.model.name(row).split(". ", 1);
    const shape = (/** @type {string} */ name) => `${name} ${this.#text(name, row).match(/\d+/g)?.join("×") ?? ""}`;
    const typical = this.#value("timeline_med_ns", row);
    TableJumps.replayed.set(number, {
      name: this.model.name(row).slice(number.length + 2),
      kind: "kernel",
      details: `${shape("grid")}, ${shape("block")}`,
      ...(typical === undefined ? {} : { near_ns: typical }),
      ...this.#gpu(row),
    });
  }

  /** @param {number} row */
  span(row) {
    const [from, length] = [this.#value("time_ns", row), this.#value("gap_ns", row)];
    return from === undefined || length === undefined ? null : { from_ns: from, to_ns: from + length, of_window: true };
  }

  /** @param {number} row */
  memory(row) {
    const isOnGpu = TableJumps.ON_GPU.includes(this.model.name(row));
    return isOnGpu ? { curve: TableJumps.MEMORY, ...this.#gpu(row) } : null;
  }

  /** @param {number} row */
  counter(row) {
    return { curve: this.model.name(row), ...this.#gpu(row) };
  }
}
