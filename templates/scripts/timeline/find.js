// Finds what another part of the page asks for: the matching labels, and the event or curve to go to.

import { literally } from "../matching.js";

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
 * Rows to search, and a test whether an event is in the right place there.
 * @typedef {[rows: number[], isThere: (row: number, event: number) => boolean]} Place
 */

export class TimelineFinder {
  static SIZE = /(?:^|, )([\d.,]+) ([kMGT]?B)$/;
  /** @type {Record<string, number>} */
  static SIZES = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
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
   * @param {EventQuery} asked
   */
  labels({ name = "", names, details = "", bytes }) {
    const [text, test] = names ? TimelineFinder.#anyOf(names) : this.#like(name);
    const all = this.data.labelsWith(test);
    const fits = (/** @type {string} */ said) => said.includes(details) && (!bytes || TimelineFinder.#isWithin(said, bytes));
    const some = all.map((isWanted, label) => isWanted && Number(fits(this.data.labels[label][1])));
    return { text, isWanted: some.includes(1) ? some : all };
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
    if (names.includes(name)) return [name, (other) => other === name];
    const isRepetition = (/** @type {string} */ other) => other.replace(number, "#") === name;
    if (names.some(isRepetition)) return [`/^${literally(name).replaceAll("#", "\\d+")}$/`, isRepetition];
    const part = names.some((other) => other.includes(name)) ? name : name.split(/[<(]/)[0];
    return [part, (other) => other.includes(part)];
  }

  /**
   * @param {string} details
   * @param {Span} span
   */
  static #isWithin(details, [from, below]) {
    const [, number, unit] = TimelineFinder.SIZE.exec(details) ?? [];
    const size = Number(number?.replaceAll(",", "")) * TimelineFinder.SIZES[unit] * (1 + TimelineFinder.ROUNDING);
    return size >= from && size < below * (1 + TimelineFinder.ROUNDING);
  }

  /**
   * The event to go to among those that run in a span, -1 if there is none: in the right place and of the right kind
   * if possible, else of that name. Among several, the longest one, or the one whose duration is closest to `near_ns`.
   * @param {EventLayer} layer
   * @param {Uint8Array} isWanted
   * @param {EventQuery} asked
   * @param {Span} span
   */
  event(layer, isWanted, asked, [from, to]) {
    const isIn = (/** @type {number} */ event) => layer.end[event] >= from && layer.start[event] <= to;
    for (const [rows, isThere] of this.#places(layer, asked)) {
      const isRight = (/** @type {number} */ row, /** @type {number} */ event) => isIn(event) && isThere(row, event);
      const event = TimelineFinder.#best(layer, isWanted, rows, isRight, asked.near_ns);
      if (event >= 0) return event;
    }
    return -1;
  }

  /**
   * @param {EventLayer} layer
   * @param {Uint8Array} isWanted
   * @param {number[]} rows
   * @param {(row: number, event: number) => boolean} isThere
   * @param {number | undefined} near
   */
  static #best(layer, isWanted, rows, isThere, near) {
    let best = -1;
    let least = Infinity;
    for (const row of rows) {
      for (let event = layer.begin[row]; event < layer.begin[row + 1]; event++) {
        if (!isWanted[layer.label[event]]) continue;
        // of a block, the average of its events: an outlier would be a separate entry
        const length = (layer.end[event] - layer.start[event]) / (layer.events?.[event] ?? 1);
        const distance = near === undefined ? -length : Math.abs(length - near);
        if (distance >= least || !isThere(row, event)) continue;
        best = event;
        least = distance;
      }
    }
    return best;
  }

  /**
   * Rows to search with a test of the place, from the strictest to the most lenient.
   * @param {EventLayer} layer
   * @param {EventQuery} asked
   * @returns {Generator<Place>}
   */
  *#places(layer, { kind, group, within, outside, work }) {
    const launchers = work && this.#launchers(layer, work);
    const isRight = (/** @type {number} */ event) => !launchers?.size || launchers.has(event);
    const anywhere = (/** @type {number} */ _, /** @type {number} */ event) => isRight(event);
    const all = [...this.data.rows.keys()];
    const own = all.filter((row) => (!kind || this.data.rows[row].kind === kind) && this.#isIn(row, group));
    const path = outside ? [] : within?.map((name) => this.labels({ name }).isWanted);
    if (path) yield [own, (row, event) => isRight(event) && this.#isAt(layer, row, event, path)];
    yield [own, anywhere];
    yield [all, () => true];
  }

  /**
   * The calls that launched the work that is asked for.
   * @param {EventLayer} layer
   * @param {EventQuery} asked
   */
  #launchers(layer, asked) {
    const { isWanted } = this.labels(asked);
    const calls = new Set();
    for (const row of this.data.rows.keys()) {
      if (!this.#isIn(row, asked.group)) continue;
      for (let event = layer.begin[row]; event < layer.begin[row + 1]; event++) {
        if (layer.launch[event] >= 0 && isWanted[layer.label[event]]) calls.add(layer.launch[event]);
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
   * Whether the ranges around an event match a path, from the innermost outwards; an empty path means no range at all.
   * @param {EventLayer} layer
   * @param {number} row
   * @param {number} event
   * @param {Uint8Array[]} path
   */
  #isAt(layer, row, event, path) {
    let around = this.#around(layer, row, layer.start[event]);
    if (!path.length) return !around;
    for (let at = path.length - 1; at >= 0; at--) {
      if (!around || !path[at][layer.label[around.event]]) return false;
      around = this.#around(layer, around.row, layer.start[around.event]);
    }
    return true;
  }

  /**
   * The ranges (or operators) around the call that launched an event, or around an event of the CPU: outermost first.
   * @param {EventLayer} layer
   * @param {number} event
   * @param {RowKind} [kind]
   */
  around(layer, event, kind = "range") {
    const begun = layer.launch[event] >= 0 ? layer.launch[event] : event;
    /** @type {number[]} */
    const found = [];
    if (this.data.rows[layer.rowOf(begun)].kind === "kernel") return found;
    let inner = this.#around(layer, layer.rowOf(begun), layer.start[begun], kind);
    while (inner) {
      found.unshift(inner.event);
      inner = this.#around(layer, inner.row, layer.start[inner.event], kind);
    }
    return found;
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
    let own = null;
    /** @type {Around | null} */
    let other = null;
    for (const outer of this.#rows(rows[row].group, kind)) {
      if (isSame && outer >= row) continue;
      const event = layer.lastStartingBy(outer, time + layer.grain);
      if (event < layer.begin[outer] || layer.end[event] + layer.grain <= time) continue;
      const found = { row: outer, event };
      const isInner = (/** @type {Around | null} */ one) => !one || layer.start[event] >= layer.start[one.event];
      if (threadOf(rows[outer]) === threadOf(rows[row])) own = isInner(own) ? found : own;
      else if (!isSame && kind === "range") other = isInner(other) ? found : other;
    }
    return own ?? other;
  }

  /**
   * @param {number} group
   * @param {RowKind} kind
   */
  #rows(group, kind) {
    const { rows } = this.data;
    const key = `${group} ${kind}`;
    const known = this.rowsOf.get(key);
    const numbers = known ?? [...rows.keys()].filter((row) => rows[row].group === group && rows[row].kind === kind);
    this.rowsOf.set(key, numbers);
    return numbers;
  }

  /**
   * The index of a curve, -1 if it is not drawn.
   * @param {CurveTarget} asked
   */
  curve({ curve, group }) {
    return this.data.curves.findIndex(({ label, group: own }) => {
      const { label: place } = this.data.groups[own];
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
