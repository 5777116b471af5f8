// Links between tables: from a kernel to its replay by ncu, to the ranges and operators that launch it, and back.

import { literally } from "../matching.js";

/**
 * @import { TableGroups } from "./groups.js"
 * @import { TableModel } from "./model.js"
 * @import { TableTools } from "./tools.js"
 * @import { RowLink } from "./types.js"
 */

const KERNELS = "cuda_gpu_kern_sum";
const REPLAYS = "ncu_kernels";
const RANGES = "nvtx_ranges";
const OPERATORS = "cpu_ops";
const OF_KERNELS = [KERNELS, "launch_overhead", "kernel_operators"];
const OF_RANGES = [RANGES, "range_iterations"];

export class LinkedTables {
  /** @type {Map<string, { tools: TableTools, model: TableModel }>} */
  static tables = new Map();
  /** @type {TableGroups | null} */
  static groups = null;
  static number = /$^/g; // the numbers that differ between names of repetitions
  /** @type {WeakMap<TableModel, Map<string, number>>} */
  static rows = new WeakMap(); // by name

  /**
   * The rows of a table by their names: in full and in short, without the number of a replay; the first one counts.
   * @param {TableModel} model
   */
  static #rows(model) {
    const rows = LinkedTables.rows.get(model) ?? new Map();
    LinkedTables.rows.set(model, rows);
    for (let row = rows.size ? model.count : 0; row < model.count; row++) {
      for (const name of [model.name(row), model.short[row], LinkedTables.#path(model, row)]) {
        const plain = model.numbered === 0 ? name.replace(/^\d+\. /, "") : name;
        if (!rows.has(plain)) rows.set(plain, row);
      }
    }
    return rows;
  }

  /**
   * The path of a row in a tree: the names of the rows around it, and its name.
   * @param {TableModel} model
   * @param {number} row
   */
  static #path(model, row) {
    const path = [model.name(row)];
    for (let at = model.parent?.[row] ?? -1; at >= 0; at = model.parent?.[at] ?? -1) path.unshift(model.name(at));
    return path.join(" / ");
  }

  /**
   * The row of a table with one of several names.
   * @param {string} table
   * @param {string[]} names
   */
  static #place(table, names) {
    const linked = LinkedTables.tables.get(table);
    const row = linked && names.map((name) => LinkedTables.#rows(linked.model).get(name)).find((number) => number !== undefined);
    return linked && row !== undefined ? { ...linked, row } : null;
  }

  /**
   * The row of a kernel in the table of kernel time, as a link; null if there is none.
   * @param {string[]} names
   * @returns {RowLink | null}
   */
  static kernel(names) {
    const place = LinkedTables.#place(KERNELS, names);
    return place && { does: "kernel", text: "Kernel time", label: `Kernel time of ${place.model.short[place.row]}`,
      go: () => (LinkedTables.groups?.choose("") ?? place.tools).reveal(place.row) };
  }

  /**
   * The replay of a kernel, with its limiter.
   * @param {string[]} names
   * @returns {RowLink | null}
   */
  static replay(names) {
    const place = LinkedTables.#place(REPLAYS, names);
    if (!place) return null;
    const { model, row, tools } = place;
    const figure = (/** @type {string} */ name) => {
      const at = tools.headings.findIndex((heading) => heading.name === name);
      const text = at > 0 ? model.columns[at - 1].text(row) : "–";
      return text === "–" || !text ? null : `${tools.headings[at].title.replace(/\s*\(.*/, "")} ${text}${tools.headings[at].isNumber ? " %" : ""}`;
    };
    const figures = ["sm_pct", "dram_pct", "limiter"].map(figure).filter(Boolean).join(", ");
    return { does: "replay", text: figures || "Replay", label: `Replay of ${model.short[row]} by Nsight Compute`, go: () => tools.reveal(row) };
  }

  /**
   * The longest kernel or path of ranges that a text names, as a link; null if it names none.
   * @param {string} text
   * @returns {RowLink | null}
   */
  static named(text) {
    const kernels = LinkedTables.tables.get(KERNELS)?.model.short ?? [];
    const ranges = OF_RANGES.map((table) => LinkedTables.tables.get(table)?.model);
    const paths = ranges.flatMap((model) => (model ? Array.from(model.natural, (row) => LinkedTables.#path(model, row)) : []));
    const repeated = paths.map((path) => path.replace(LinkedTables.number, "#"));
    const [longest] = [...kernels, ...new Set([...paths, ...repeated])]
      .filter((name) => LinkedTables.#says(text, name))
      .sort((a, b) => b.length - a.length);
    if (!longest) return null;
    if (kernels.includes(longest)) return LinkedTables.kernel([longest]);
    const names = longest.split(" / ");
    const within = names.length > 1 ? { within: names.slice(0, -1) } : {};
    const detail = { name: names.at(-1), kind: "range", ...within };
    return { does: "show", text: "Show in timeline", label: `Show ${longest} in the timeline`,
      go: () => document.dispatchEvent(new CustomEvent("timeline:show", { detail })) };
  }

  /**
   * Whether a text contains a name as separate words.
   * @param {string} text
   * @param {string} name
   */
  static #says(text, name) {
    const at = text.indexOf(name);
    return at >= 0 && !/\w/.test(text[at - 1] ?? "") && !/\w/.test(text[at + name.length] ?? "");
  }

  /**
   * The first advice that names a kernel, in its title or its evidence.
   * @param {string[]} names
   */
  static cause(names) {
    return LinkedTables.#advice((item) => {
      const text = item.textContent?.replaceAll("\u00a0", " ") ?? "";
      return names.some((name) => LinkedTables.#says(text, name));
    });
  }

  /**
   * The first advice whose title is about a range.
   * @param {string} name
   */
  static causeIn(name) {
    const names = [name, name.replace(LinkedTables.number, "#")];
    return LinkedTables.#advice((item) =>
      [...item.querySelectorAll("strong code")].some(({ textContent }) => names.includes(textContent ?? "")),
    );
  }

  /**
   * @param {(item: Element) => boolean} isAbout
   * @returns {RowLink | null}
   */
  static #advice(isAbout) {
    const items = [...document.querySelectorAll(".advice > li")].filter((item) => !item.closest("[hidden]"));
    const item = items.find(isAbout);
    const title = item?.querySelector("strong")?.textContent;
    if (!item || !title) return null;
    return { does: "cause", text: `Cause: ${title}`, label: "The cause that names it",
      go: () => LinkedTables.#focus(item) };
  }

  /** @param {Element} item */
  static #focus(item) {
    if (!(item instanceof HTMLElement)) return;
    item.tabIndex = -1;
    item.scrollIntoView({ behavior: "instant", block: "center" });
    item.focus({ preventScroll: true });
  }

  /**
   * The ranges that launch a kernel.
   * @param {string} name
   * @returns {RowLink | null}
   */
  static rangesOf(name) {
    const { groups } = LinkedTables;
    const place = LinkedTables.#place(KERNELS, [name]);
    if (!place || !groups?.has("range")) return null;
    const short = place.model.short[place.row];
    return { does: "ranges", text: "Its ranges", label: `Ranges that launch ${short}`,
      go: () => groups.choose("range").find(`/^${literally(short)}$/`) };
  }

  /**
   * The kernels of a range, given by its path.
   * @param {string} path
   * @returns {RowLink | null}
   */
  static kernelsOf(path) {
    return LinkedTables.#group("range", path.replace(LinkedTables.number, "#"), path);
  }

  /**
   * The kernels of an operator.
   * @param {string} name
   * @returns {RowLink | null}
   */
  static kernelsOfOperator(name) {
    return LinkedTables.#group("operator", name, name);
  }

  /**
   * @param {string} by
   * @param {string} name
   * @param {string} label
   * @returns {RowLink | null}
   */
  static #group(by, name, label) {
    const { groups } = LinkedTables;
    const row = groups?.has(by) ? LinkedTables.#rows(groups.model(by)).get(name) : undefined;
    if (!groups || row === undefined) return null;
    return { does: "kernels", text: "Its kernels", label: `Kernels of ${label}`, go: () => groups.choose(by).reveal(row, true) };
  }

  /**
   * The row of a range in the table of ranges.
   * @param {string} path
   * @returns {RowLink | null}
   */
  static range(path) {
    const general = (/** @type {string} */ name) => name.replace(LinkedTables.number, "#");
    const names = path.split(" / ");
    // one part of a path is the name of repetitions; of modules, all parts may have numbers in other tables
    const ofRepetitions = names.map((_, at) => names.map((name, other) => (other === at ? general(name) : name)).join(" / "));
    const place = LinkedTables.#place(RANGES, [path, ...ofRepetitions, general(path)]);
    return place && { does: "range", text: "Range table", label: `${path} in the table of ranges`, go: () => place.tools.reveal(place.row) };
  }

  /**
   * The other places of a row on the page.
   * @param {string} table
   * @param {TableModel} model
   * @param {number} row
   */
  static of(table, model, row) {
    const [result, by] = table.split("/");
    const names = [model.name(row), model.short[row]];
    const isKernel = !by || !model.hasInside(row);
    if (OF_KERNELS.includes(result) && isKernel) {
      const ranges = by === "range" ? null : LinkedTables.rangesOf(names[0]);
      const kernel = result === KERNELS && !by ? null : LinkedTables.kernel(names);
      return [kernel, LinkedTables.replay(names), ranges].filter((link) => link !== null);
    }
    if (by === "range") return [LinkedTables.range(LinkedTables.#path(model, row))].filter((link) => link !== null);
    if (OF_RANGES.includes(result)) return [LinkedTables.kernelsOf(LinkedTables.#path(model, row))].filter((link) => link !== null);
    if (result === OPERATORS) return [LinkedTables.kernelsOfOperator(names[0])].filter((link) => link !== null);
    const plain = model.numbered === 0 ? names.map((name) => name.replace(/^\d+\. /, "")) : [];
    return plain.length ? [LinkedTables.kernel(plain)].filter((link) => link !== null) : [];
  }
}
