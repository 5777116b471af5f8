// Finds the targets of other parts of the page: the matching labels, and the event or curve to go to.

import { literally } from "../matching.js";
import { sizeIn } from "./text.js";

/**
 * @import { EventLayer, TimelineData } from "./data.js"
 * @import { EventQuery, CurveTarget, Row, RowKind, Span } from "./types.js"
 */

/**
 * A search: the text for the search box, and a test for names.
 * @typedef {[text: string, test: (name: string) => boolean]} Meaning
 *
 * @typedef {{ row: number, event: number }} Around
 *
 * Rows to search, and a test of the place of an event there.
 * @typedef {[rows: number[], isInPlace: (row: number, event: number) => boolean]} Place
 */

export class TimelineFinder {
  static ROUNDING = 1e-3; // sizes in details are rounded to four digits

  /** @param {TimelineData} data */
  constructor(data) {
    this.data = data;
    /** @type {Map<string, number[]>} */
    this.rowsOf = new Map(); // rows of a kind, by group and kind
  }

  /**
   * The labels (0 or 1 each) that have a name or one of several names, and the text for the search box. Details and
   * sizes narrow them down, unless no label would be left.
   * @param {EventQuery} query
   */
  labels({ name = "", names, details = "", bytes }) {
    const [text, test] = names ? TimelineFinder.#anyOf(names) : this.#like(name);
    const all = this.data.labelsWith(test);
    const fits = (/** @type {string} */ labelDetails) => labelDetails.includes(details) && (!bytes || TimelineFinder.#isWithin(labelDetails, bytes));
    const fitting = all.map((isMatch, label) => isMatch && Number(fits(this.data.labels[label][1])));
    return { text, isMatch: fitting.includes(1) ? fitting : all };
  }

  /**
   * @param {string[]} names
   * @returns {Meaning}
   */
  static #anyOf(names) {
    return [`/^(?:${names.map(literally).join("|")})$/`, (name) => names.includes(name)];
  }

  /**
   * How to search for a name: exactly if it exists; else as a repetition with # for numbers; else as a part of other
   * names; else without template arguments, which ncu spells differently.
   * @param {string} name
   * @returns {Meaning}
   */
  #like(name) {
    const { names, number } = this.data;
    if (names.includes(name)) return [name, (candidate) => candidate === name];
    const isRepetition = (/** @type {string} */ candidate) => candidate.replace(number, "#") === name;
    if (names.some(isRepetition)) return [`/^${literally(name).replaceAll("#", "\\d+")}$/`, isRepetition];
    const part = names.some((candidate) => candidate.includes(name)) ? name : name.split(/[<(]/)[0];
    return [part, (candidate) => candidate.includes(part)];
  }

  /**
   * @param {string} details
   * @param {Span} span
   */
  static #isWithin(details, [from, below]) {
    const size = (sizeIn(details)?.bytes ?? NaN) * (1 + TimelineFinder.ROUNDING);
    return size >= from && size < below * (1 + TimelineFinder.ROUNDING);
  }

  /**
   * The best match among the events that run in a span, -1 if there is none: in the right place and of the right kind
   * if possible, else of that name. Among several, the longest one, or the one whose duration is closest to `near_ns`.
   * @param {EventLayer} layer
   * @param {Uint8Array} isMatch
   * @param {EventQuery} query
   * @param {Span} span
   */
  event(layer, isMatch, query, [from, to]) {
    const isIn = (/** @type {number} */ event) => layer.end[event] >= from && layer.start[event] <= to;
    for (const [rows, isInPlace] of this.#places(layer, query)) {
      const isRight = (/** @type {number} */ row, /** @type {number} */ event) => isIn(event) && isInPlace(row, event);
      const event = TimelineFinder.#best(layer, isMatch, rows, isRight, query.near_ns);
      if (event >= 0) return event;
    }
    return -1;
  }

  /**
   * @param {EventLayer} layer
   * @param {Uint8Array} isMatch
   * @param {number[]} rows
   * @param {(row: number, event: number) => boolean} isInPlace
   * @param {number | undefined} near
   */
  static #best(layer, isMatch, rows, isInPlace, near) {
    let best = -1;
    let least = Infinity;
    for (const row of rows) {
      for (let event = layer.begin[row]; event < layer.begin[row + 1]; event++) {
        if (!isMatch[layer.label[event]]) continue;
        // of a block, the average of its events: an outlier would be a separate entry
        const length = (layer.end[event] - layer.start[event]) / (layer.events?.[event] ?? 1);
        const distance = near === undefined ? -length : Math.abs(length - near);
        if (distance >= least || !isInPlace(row, event)) continue;
        best = event;
        least = distance;
      }
    }
    return best;
  }

  /**
   * Rows to search with a test of the place, from the strictest to the most lenient.
   * @param {EventLayer} layer
   * @param {EventQuery} query
   * @returns {Generator<Place>}
   */
  *#places(layer, { kind, group, within, outside, work }) {
    const launchers = work && this.#launchers(layer, work);
    const isRight = (/** @type {number} */ event) => !launchers?.size || launchers.has(event);
    const anywhere = (/** @type {number} */ _, /** @type {number} */ event) => isRight(event);
    const all = [...this.data.rows.keys()];
    const fitting = all.filter((row) => this.#fits(row, kind, group));
    const path = outside ? [] : within?.map((name) => this.labels({ name }).isMatch);
    if (path) yield [fitting, (_, event) => isRight(event) && this.#isAt(layer, event, path)];
    yield [fitting, anywhere];
    yield [all, () => true];
  }

  /**
   * The calls that launched the work of a query.
   * @param {EventLayer} layer
   * @param {EventQuery} query
   */
  #launchers(layer, query) {
    const { isMatch } = this.labels(query);
    const calls = new Set();
    for (const row of this.data.rows.keys()) {
      if (!this.#isIn(row, query.group)) continue;
      for (let event = layer.begin[row]; event < layer.begin[row + 1]; event++) {
        if (layer.launch[event] >= 0 && isMatch[layer.label[event]]) calls.add(layer.launch[event]);
      }
    }
    return calls;
  }

  /**
   * @param {number} row
   * @param {string | undefined} group
   */
  #isIn(row, group) {
    const { label } = this.data.groups[this.data.rows[row].group];
    return !group || label === group || label.startsWith(`${group} (`);
  }

  /**
   * Whether a row is of a kind and in a group; a range can be in a CUDA graph, and then it is on a GPU.
   * @param {number} row
   * @param {RowKind | undefined} kind
   * @param {string | undefined} group
   */
  #fits(row, kind, group) {
    const isLayer = kind === "range" && this.data.rows[row].kind === "layer";
    return isLayer || ((!kind || this.data.rows[row].kind === kind) && this.#isIn(row, group));
  }

  /**
   * Whether the ranges around an event match a path, from the innermost outwards; an empty path means no range at all.
   * @param {EventLayer} layer
   * @param {number} event
   * @param {Uint8Array[]} path
   */
  #isAt(layer, event, path) {
    const ranges = this.around(layer, event);
    if (!path.length) return !ranges.length;
    const innermost = ranges.slice(-path.length);
    return innermost.length === path.length && path.every((isMatch, at) => isMatch[layer.label[innermost[at]]]);
  }

  /**
   * The ranges (or operators) around the call that launched an event, or around an event of the CPU: outermost first.
   * Of an event in a CUDA graph, the ranges in the graph come last.
   * @param {EventLayer} layer
   * @param {number} event
   * @param {RowKind} [kind]
   */
  around(layer, event, kind = "range") {
    const inGraph = kind === "range" ? this.#inGraph(layer, event) : [];
    return [...this.#outside(layer, event, kind), ...inGraph];
  }

  /**
   * The ranges of a CUDA graph around an event on a stream, outermost first.
   * @param {EventLayer} layer
   * @param {number} event
   */
  #inGraph(layer, event) {
    const { rows } = this.data;
    const row = layer.rowOf(event);
    const { group, kind } = rows[row];
    if (kind !== "layer" && kind !== "kernel") return [];
    const around = this.#rows(group, "layer").map((above) => {
      const isOfStream = streamOf(rows[above]) === streamOf(rows[row]) && above < row;
      const begun = isOfStream ? layer.lastStartingBy(above, layer.start[event]) : -1;
      const isAround = begun >= layer.begin[above] && layer.end[begun] >= layer.end[event] && layer.launch[begun] === layer.launch[event];
      return isAround ? begun : -1;
    });
    return around.filter((range) => range >= 0);
  }

  /**
   * The ranges (or operators) around the call that launched an event, or around an event of the CPU: outermost first.
   * @param {EventLayer} layer
   * @param {number} event
   * @param {RowKind} kind
   */
  #outside(layer, event, kind) {
    const begun = layer.launch[event] >= 0 ? layer.launch[event] : event;
    /** @type {number[]} */
    const ranges = [];
    if (["kernel", "layer"].includes(this.data.rows[layer.rowOf(begun)].kind)) return ranges;
    let inner = this.#around(layer, layer.rowOf(begun), layer.start[begun], kind);
    while (inner) {
      ranges.unshift(inner.event);
      inner = this.#around(layer, inner.row, layer.start[inner.event], kind);
    }
    return ranges;
  }

  /**
   * The innermost range that is open at `time`, on the row's thread, else anywhere in its process; an operator only on
   * its thread. The parents of a range are always in a row above it.
   * @param {EventLayer} layer
   * @param {number} row
   * @param {number} time
   * @param {RowKind} [kind]
   */
  #around(layer, row, time, kind = "range") {
    const { rows } = this.data;
    const isSame = rows[row].kind === kind;
    /** @type {Around | null} */
    let onThread = null;
    /** @type {Around | null} */
    let inProcess = null;
    for (const outer of this.#rows(rows[row].group, kind)) {
      if (isSame && outer >= row) continue;
      const event = layer.lastStartingBy(outer, time + layer.grain);
      if (event < layer.begin[outer] || layer.end[event] + layer.grain <= time) continue;
      const range = { row: outer, event };
      const isInner = (/** @type {Around | null} */ innermost) => !innermost || layer.start[event] >= layer.start[innermost.event];
      if (threadOf(rows[outer]) === threadOf(rows[row])) onThread = isInner(onThread) ? range : onThread;
      else if (!isSame && kind === "range") inProcess = isInner(inProcess) ? range : inProcess;
    }
    return onThread ?? inProcess;
  }

  /**
   * @param {number} group
   * @param {RowKind} kind
   */
  #rows(group, kind) {
    const { rows } = this.data;
    const key = `${group} ${kind}`;
    const numbers = this.rowsOf.get(key) ?? [...rows.keys()].filter((row) => rows[row].group === group && rows[row].kind === kind);
    this.rowsOf.set(key, numbers);
    return numbers;
  }

  /**
   * The index of a curve, -1 if it is not drawn.
   * @param {CurveTarget} target
   */
  curve({ curve, group }) {
    return this.data.curves.findIndex(({ label, group: number }) => {
      const { label: place } = this.data.groups[number];
      return label === curve && (!group || place === group || place.startsWith(`${group} (`));
    });
  }
}

/**
 * The thread in a row's label: `Main thread` in `Main thread, NVTX (2)`; empty for rows without a thread.
 * @param {Row} row
 */
function threadOf({ label }) {
  return label.slice(0, Math.max(label.lastIndexOf(", "), 0));
}

/**
 * The stream in the label of a row of a GPU: `Stream 7` in `Stream 7 (2)` and in `Stream 7, NVTX (2)`.
 * @param {Row} row
 */
function streamOf(row) {
  return row.kind === "layer" ? threadOf(row) : row.label.replace(/ \(\d+\)$/, "");
}
