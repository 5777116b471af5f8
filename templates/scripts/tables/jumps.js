// What the rows of a table are in the timeline: the event, span of time or curve that a row asks it for.

export class TableJumps {
  static NO_RANGE = "(no range)";
  static MEMORY = "Memory in use"; // the curve of what is allocated on a GPU
  static ON_GPU = ["Device", "Device Static", "Array"];
  static replayed = new Map(); // what ncu's table of kernels knows of each, by its number, for the other tables of ncu

  constructor(model, headings) {
    this.model = model;
    this.columns = new Map(headings.slice(1).map(({ name }, place) => [name, model.columns[place]]));
    if (this.columns.has("grid")) for (const row of model.natural) this.#register(row);
  }

  // Returns what to ask for a row, null if that has no counterpart; null for a table none of whose rows has one.
  static of(table, model, headings) {
    const kind = table.dataset.timeline;
    if (!kind) return null;
    const jumps = new TableJumps(model, headings);
    return (row) => jumps[kind](row);
  }

  #text(name, row) {
    return this.columns.get(name)?.texts?.[row] ?? "";
  }

  #value(name, row) {
    const value = this.columns.get(name)?.values?.[row];
    return Number.isFinite(value) ? value : undefined;
  }

  #group(word, column, row) {
    const number = this.#value(column, row);
    return number === undefined ? {} : { group: `${word} ${number}` };
  }

  #gpu(row) {
    return this.#group("GPU", "device", row);
  }

  kernel(row) {
    return { name: this.model.name(row), kind: "kernel", ...this.#gpu(row) };
  }

  operator(row) {
    return { name: this.model.name(row), kind: "op" };
  }

  mark(row) {
    return { name: this.model.name(row), kind: "mark" };
  }

  // A function, in the range and the process that the row is about, and for the copy that it is about.
  call(row) {
    const path = this.#text("path", row);
    const where = path === TableJumps.NO_RANGE ? { outside: true } : path ? { within: path.split(" / ") } : {};
    const operation = this.#text("operation", row);
    const copy = operation ? this.#copyOf(operation, this.#text("host_kind", row)) : null;
    const work = copy ? { work: { ...copy, ...this.#gpu(row) } } : {};
    return { name: this.model.name(row), kind: "api", ...where, ...work, ...this.#group("Process", "pid", row) };
  }

  functions(row) {
    const names = this.#text("functions", row);
    return names ? { names: names.split(", "), kind: "api" } : null;
  }

  // A range inside those that the tree has it in.
  range(row) {
    const path = [this.model.name(row)];
    for (let at = this.model.parent?.[row] ?? -1; at >= 0; at = this.model.parent[at]) path.unshift(this.model.name(at));
    return this.#range(path.join(" / "), row);
  }

  // The longest of the repetitions of a range.
  repetition(row) {
    return this.#range(this.model.name(row), row);
  }

  #range(path, row) {
    const names = path.split(" / ");
    const within = names.length > 1 ? { within: names.slice(0, -1) } : {};
    return { name: names.at(-1), kind: "range", ...within, ...this.#group("Process", "pid", row) };
  }

  // `Host-to-Device, Pageable → Device`; sizes have kind and class of size in columns. Page faults are not drawn.
  copy(row) {
    const [operation, ...kinds] = this.model.name(row).split(", ");
    if (operation.endsWith("page faults")) return null;
    const [from, below] = ["from_bytes", "below_bytes"].map((column) => this.#value(column, row));
    const bytes = below ? { bytes: [from, below] } : {};
    return { ...this.#copyOf(operation, kinds.join(", ") || this.#text("host_kind", row)), kind: "kernel", ...bytes };
  }

  #copyOf(operation, details) {
    const name = operation === "memset" ? "[CUDA memset]" : `[CUDA memcpy ${operation}]`;
    return details ? { name, details } : { name };
  }

  // A kernel that ncu replayed: in the timeline, the launch of its name and shape that took about as long as most.
  replay(row) {
    const name = this.#text("kernel", row) || this.model.name(row);
    return TableJumps.replayed.get(name.split(". ", 1)[0]) ?? null;
  }

  #register(row) {
    const [number] = this.model.name(row).split(". ", 1);
    const shape = (name) => `${name} ${this.#text(name, row).match(/\d+/g)?.join("×") ?? ""}`;
    const typical = this.#value("timeline_med_ns", row);
    TableJumps.replayed.set(number, {
      name: this.model.name(row).slice(number.length + 2),
      kind: "kernel",
      details: `${shape("grid")}, ${shape("block")}`,
      ...(typical === undefined ? {} : { near_ns: typical }),
      ...this.#gpu(row),
    });
  }

  span(row) {
    const from = this.#value("time_ns", row);
    return { from_ns: from, to_ns: from + this.#value("gap_ns", row), of_window: true };
  }

  memory(row) {
    const isOnGpu = TableJumps.ON_GPU.includes(this.model.name(row));
    return isOnGpu ? { curve: TableJumps.MEMORY, ...this.#gpu(row) } : null;
  }

  counter(row) {
    return { curve: this.model.name(row), ...this.#gpu(row) };
  }
}
