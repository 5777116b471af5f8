// The activity of each GPU at every instant, as categories of *Where the time went*.

import { firstAbove } from "../searching.js";
import { readColumns } from "./columns.js";

/**
 * @import { ColumnsHeader, Numbers } from "./columns.js"
 * @import { Category, Span } from "./types.js"
 */

/**
 * `width_ns`: 0 if piece by piece, else the width of bins; `counts`: of pieces of each GPU.
 * @typedef {ColumnsHeader & { from_ns: number, to_ns: number, width_ns: number, counts: number[] }} ActivityHeader
 */

const LEAST_SHARE = 0.01; // smaller parts have no entry in the legend

// Piece by piece: from each edge to the next, one category.
class Pieces {
  /**
   * @param {ActivityHeader} header
   * @param {Record<string, Numbers>} columns
   */
  constructor({ from_ns, to_ns, counts }, { length, category }) {
    this.from = from_ns;
    this.to = to_ns;
    this.step = 0;
    /** @type {{ edge: Float64Array, category: Numbers }[]} */
    this.devices = [];
    let at = 0;
    for (const count of counts) {
      const edge = new Float64Array(count + 1);
      edge[0] = from_ns;
      for (let piece = 0; piece < count; piece++) edge[piece + 1] = edge[piece] + length[at + piece];
      this.devices.push({ edge, category: category.subarray(at, at + count) });
      at += count;
    }
  }

  /**
   * Adds the time of each category from `from` to `to`.
   * @param {number} device
   * @param {number} from
   * @param {number} to
   * @param {Float64Array} times
   */
  add(device, from, to, times) {
    const { edge, category } = this.devices[device];
    for (let at = Math.max(firstAbove(edge, from) - 1, 0); at < category.length && edge[at] < to; at++) {
      times[category[at]] += Math.max(Math.min(edge[at + 1], to) - Math.max(edge[at], from), 0);
    }
  }

  /**
   * The piece at a time; null outside.
   * @param {number} device
   * @param {number} time
   */
  at(device, time) {
    const { edge, category } = this.devices[device];
    const at = firstAbove(edge, time) - 1;
    return at < 0 || at >= category.length ? null : { category: category[at], from: edge[at], to: edge[at + 1] };
  }

  /**
   * The span that statistics of a span are about.
   * @param {number} from
   * @param {number} to
   * @returns {Span}
   */
  around(from, to) {
    return [Math.max(from, this.from), Math.min(to, this.to)];
  }
}

// In equal bins: the time of each category in each.
class Bins {
  /**
   * @param {ActivityHeader} header
   * @param {Record<string, Numbers>} columns
   * @param {number} categories
   * @param {number} devices
   */
  constructor({ from_ns, to_ns, width_ns }, { cell, time }, categories, devices) {
    this.from = from_ns;
    this.to = to_ns;
    this.step = width_ns;
    this.bins = Math.round((to_ns - from_ns) / width_ns);
    this.categories = categories;
    this.time = new Float64Array(devices * categories * this.bins);
    let place = 0;
    cell.forEach((step, at) => (this.time[(place += step)] = time[at]));
  }

  /**
   * Adds the time of each category from `from` to `to`, as if it were spread evenly in a bin.
   * @param {number} device
   * @param {number} from
   * @param {number} to
   * @param {Float64Array} times
   */
  add(device, from, to, times) {
    const { bins, categories, step } = this;
    const first = Math.max(Math.floor((from - this.from) / step), 0);
    for (let bin = first; bin < bins && this.from + bin * step < to; bin++) {
      const left = this.from + bin * step;
      const share = (Math.min(left + step, to) - Math.max(left, from)) / step;
      for (let index = 0; index < categories; index++) {
        times[index] += share * this.time[(device * categories + index) * bins + bin];
      }
    }
  }

  at() {
    return null;
  }

  /**
   * @param {number} from
   * @param {number} to
   * @returns {Span}
   */
  around(from, to) {
    const edge = (/** @type {number} */ bin) => this.from + Math.min(Math.max(bin, 0), this.bins) * this.step;
    const first = Math.floor((from - this.from) / this.step);
    return [edge(first), edge(Math.max(Math.ceil((to - this.from) / this.step), first + 1))];
  }
}

export class TimelineActivity {
  /**
   * @param {ActivityHeader[]} headers
   * @param {number[]} groups
   * @param {Category[]} categories
   * @param {number} span
   * @param {Uint8Array} binary
   */
  constructor(headers, groups, categories, span, binary) {
    this.span = span;
    this.groups = headers.length ? groups : [];
    this.categories = categories;
    /** @type {(Pieces | Bins)[]} */
    this.accounts = headers.map((header) => {
      const columns = readColumns(header, binary);
      return header.width_ns ? new Bins(header, columns, categories.length, groups.length) : new Pieces(header, columns);
    });
    this.times = new Float64Array(categories.length);
  }

  /**
   * The finest account that covers a span.
   * @param {number} from
   * @param {number} to
   */
  accountFor(from, to) {
    return this.accounts.findLast((account) => account.from <= from && to <= account.to) ?? this.accounts[0];
  }

  /**
   * The time of each category of a GPU in a span, and the span that this is about: whole bins, `step` long, if there
   * are only bins.
   * @param {number} device
   * @param {Span} span
   */
  during(device, span) {
    const account = this.accountFor(...span);
    const around = account.around(...span);
    const [from, to] = around.map((time) => Math.min(Math.max(time, 0), this.span)); // bins reach beyond the capture
    const times = new Float64Array(this.categories.length);
    account.add(device, ...around, times);
    return { from, to, step: account.step, times };
  }

  /**
   * The categories with 1 % of a window or of the capture, the largest part of the window first.
   * @param {Span} window
   */
  occurring(window) {
    const [inWindow, inCapture] = [window, /** @type {Span} */ ([0, this.span])].map((span) => {
      const times = this.categories.map(() => 0);
      for (const device of this.groups.keys()) {
        this.during(device, span).times.forEach((time, at) => (times[at] += time));
      }
      const total = times.reduce((sum, time) => sum + time, 0);
      return times.map((time) => time / total);
    });
    const visible = [...this.categories.keys()].filter((at) => Math.max(inWindow[at], inCapture[at]) >= LEAST_SHARE);
    return visible.sort((one, other) => inWindow[other] - inWindow[one]).map((at) => this.categories[at]);
  }
}
