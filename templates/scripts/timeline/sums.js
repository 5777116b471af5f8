// Sums of all events in equal time steps, for statistics of spans that no layer has exactly.

import { firstAtLeast } from "../searching.js";
import { readColumns, runningSums } from "./columns.js";
import { kindSummary } from "./statistics.js";

/**
 * @import { ColumnsHeader } from "./columns.js"
 * @import { Statistics } from "./statistics.js"
 * @import { RowKind } from "./types.js"
 */

/**
 * `slots`: the number of names with their own sums; if `others` is not 0, the last slot is that many names merged.
 * @typedef {{ group: string, kind: RowKind, slots: number, others: number }} Section
 * @typedef {ColumnsHeader & { from_ns: number, width_ns: number, bins: number, sections: Section[] }} SumsHeader
 * @typedef {{ section: number, name: string | null, time: number, events: number }} SlotSum
 */

// A place is the number of a slot, row or section times `bins`, plus the number of a step: for cells, the step in which
// events begin; for crossings, the first step that starts during an event; for overlaps, the step of the overlap.
export class TimelineSums {
  /**
   * @param {SumsHeader} header
   * @param {string[]} names
   * @param {number} span
   * @param {Uint8Array} binary
   */
  constructor(header, names, span, binary) {
    const columns = readColumns(header, binary);
    this.from = header.from_ns;
    this.step = header.width_ns;
    this.bins = header.bins;
    this.sections = header.sections;
    this.span = span;
    /** @type {{ section: number, name: string | null }[]} */
    this.slots = [];
    header.sections.forEach(({ slots, others }, section) => {
      for (let at = 1; at <= slots; at++) {
        const isOthers = others > 0 && at === slots;
        this.slots.push({ section, name: isOthers ? null : names[columns.name[this.slots.length]] });
      }
    });
    this.cell = runningSums(columns.cell);
    this.events = columns.events;
    this.time = columns.time;
    this.crossing = runningSums(columns.crossing);
    this.crossingSlot = columns.slot;
    this.remainder = columns.remainder;
    this.rows = new Set(this.crossing.map((place) => Math.floor(place / this.bins)));
    this.overlap = runningSums(columns.overlap);
    this.surplus = columns.surplus;
  }

  /**
   * Statistics of the whole steps that contain a span: the events that begin in them, plus those that are running at
   * the first edge, minus the parts that continue after the last edge.
   * @param {number} from
   * @param {number} to
   * @returns {Statistics}
   */
  statistics(from, to) {
    const first = Math.min(Math.floor((from - this.from) / this.step), this.bins - 1);
    const end = Math.min(Math.max(Math.ceil((to - this.from) / this.step), first + 1), this.bins);
    const sums = this.slots.map(({ section, name }, slot) => this.#begun(section, name, slot, first, end));
    for (const row of this.rows) {
      this.#addCrossing(sums, row, first, 1);
      this.#addCrossing(sums, row, end, -1);
    }
    const [start, stop] = [first, end].map((edge) => this.from + edge * this.step);
    const kinds = this.sections.map(({ group, kind }, section) => {
      const all = sums.filter((sum) => sum.section === section);
      const others = all.find(({ name }) => name === null);
      const names = all.flatMap(({ name, time, events }) => (name === null ? [] : [{ name, time, events }]));
      return kindSummary({ group, kind, names, others, less: this.#overlapping(section, first, end) });
    });
    const begin = Math.max(start, 0);
    return {
      from: begin,
      to: Math.max(Math.min(stop, this.span), begin + 1),
      step: this.step,
      kinds: kinds.filter(({ events }) => events > 0),
    };
  }

  /**
   * Sums up the events of a slot that begin in steps `first` to `end` - 1.
   * @param {number} section
   * @param {string | null} name
   * @param {number} slot
   * @param {number} first
   * @param {number} end
   * @returns {SlotSum}
   */
  #begun(section, name, slot, first, end) {
    let [time, events] = [0, 0];
    const [low, high] = this.#between(this.cell, slot, first, end);
    for (let at = low; at < high; at++) {
      time += this.time[at];
      events += this.events[at];
    }
    return { section, name, time, events };
  }

  /**
   * The index range of the places of an owner in steps `first` to `end` - 1.
   * @param {Float64Array} places
   * @param {number} owner
   * @param {number} first
   * @param {number} end
   */
  #between(places, owner, first, end) {
    return [first, end].map((step) => firstAtLeast(places, owner * this.bins + step));
  }

  /**
   * Adds (sign 1, at the first edge) or subtracts (sign -1, at the last edge) the remaining part of the event that is
   * running in a row at an edge.
   * @param {SlotSum[]} sums
   * @param {number} row
   * @param {number} edge
   * @param {number} sign
   */
  #addCrossing(sums, row, edge, sign) {
    const begin = row * this.bins;
    const at = firstAtLeast(this.crossing, begin + edge + 1) - 1;
    if (at < 0 || this.crossing[at] < begin) return;
    const left = this.remainder[at] - (begin + edge - this.crossing[at]) * this.step;
    if (left <= 0) return;
    const sum = sums[this.crossingSlot[at]];
    sum.time += sign * left;
    if (sign > 0) sum.events++;
  }

  /**
   * The total time of a section's events minus the time in which at least one runs, in steps `first` to `end` - 1.
   * @param {number} section
   * @param {number} first
   * @param {number} end
   */
  #overlapping(section, first, end) {
    let sum = 0;
    const [low, high] = this.#between(this.overlap, section, first, end);
    for (let at = low; at < high; at++) sum += this.surplus[at];
    return sum;
  }
}
