// The events of the timeline, unpacked once into flat arrays, and queries on them.

import { firstAbove, firstAtLeast } from "../searching.js";
import { readColumns, runningSums } from "./columns.js";
import { TimelineRanks } from "./ranks.js";
import { TimelineActivity } from "./activity.js";
import { TimelineSums } from "./sums.js";
import { EVENT_COLORS, NEUTRAL_COLORS, durationText, eventColor, instantText, instantTexts, sizeIn } from "./text.js";

/**
 * @import { Numbers } from "./columns.js"
 * @import { Header, LayerHeader } from "./types.js"
 */

// One level of detail: the events of all rows in flat arrays, times in ns. An event is an index into these.
export class EventLayer {
  /**
   * @param {LayerHeader} header
   * @param {Uint8Array} binary
   */
  constructor(header, binary) {
    const { quantum_ns, from_ns, to_ns, is_merged, merge_ns, counts } = header;
    const columns = readColumns(header, binary);
    this.from = from_ns;
    this.to = to_ns;
    this.isMerged = is_merged;
    this.grain = is_merged ? merge_ns : quantum_ns; // anything shorter is not exact
    this.begin = new Int32Array(counts.length + 1);
    counts.forEach((count, row) => (this.begin[row + 1] = this.begin[row] + count));
    this.count = this.begin[counts.length];
    this.start = new Float64Array(this.count);
    this.end = new Float64Array(this.count);
    this.sum = new Float64Array(this.count + 1); // running sum of the durations before each event
    this.label = columns.label;
    this.events = columns.events ?? null; // number of events in each block; null if not merged
    this.launch = new Int32Array(this.count).fill(-1); // the call that launched each event, or -1
    this.member = runningSums(columns.member ?? []); // the events that several ranks take part in, ascending
    this.collective = runningSums(columns.collective ?? []); // of each of these
    /** @type {Map<number, number[]> | null} */
    this.members = null;
    this.#addTimes(columns.gap, columns.duration, quantum_ns);
    if (columns.call) this.#addLaunches(columns.is_launched, columns.call);
  }

  /**
   * Adds up the packed differences; `gap` is the time from the end of the previous event in the row.
   * @param {Numbers} gap
   * @param {Numbers} duration
   * @param {number} quantum
   */
  #addTimes(gap, duration, quantum) {
    const { begin, start, end, sum, from } = this;
    for (let row = 0; row + 1 < begin.length; row++) {
      let time = 0;
      for (let at = begin[row]; at < begin[row + 1]; at++) {
        time += gap[at];
        start[at] = from + time * quantum;
        time += duration[at];
        end[at] = from + time * quantum;
        sum[at + 1] = sum[at] + end[at] - start[at];
      }
    }
  }

  /**
   * @param {Numbers} isLaunched
   * @param {Numbers} steps
   */
  #addLaunches(isLaunched, steps) {
    let [call, next] = [0, 0];
    for (let at = 0; at < this.count; at++) if (isLaunched[at]) this.launch[at] = call += steps[next++];
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  covers(from, to) {
    return this.from <= from && to <= this.to;
  }

  /**
   * The number of events in a row, including the events merged into blocks.
   * @param {number} row
   */
  countOf(row) {
    const [first, end] = [this.begin[row], this.begin[row + 1]];
    if (!this.events) return end - first;
    let count = 0;
    for (let event = first; event < end; event++) count += this.events[event];
    return count;
  }

  /**
   * The last event of `row` that starts at or before `time`; the index before its first event if there is none.
   * @param {number} row
   * @param {number} time
   */
  lastStartingBy(row, time) {
    return firstAbove(this.start, time, this.begin[row], this.begin[row + 1]) - 1;
  }

  /**
   * The first event of `row` that ends at or after `time`; the index after its last event if there is none.
   * @param {number} row
   * @param {number} time
   */
  firstEndingFrom(row, time) {
    return firstAtLeast(this.end, time, this.begin[row], this.begin[row + 1]);
  }

  /**
   * The event of `row` that runs at `time`, else the nearest one within `slack` ns; -1 if there is none.
   * @param {number} row
   * @param {number} time
   * @param {number} slack
   */
  eventAt(row, time, slack) {
    const last = this.lastStartingBy(row, time);
    const before = last >= this.begin[row] ? time - this.end[last] : Infinity;
    if (before <= 0) return last;
    const after = last + 1 < this.begin[row + 1] ? this.start[last + 1] - time : Infinity;
    if (Math.min(before, after) > slack) return -1;
    return before <= after ? last : last + 1;
  }

  /** @param {number} event */
  rowOf(event) {
    return firstAbove(this.begin, event) - 1;
  }

  /**
   * The events connected to an event by a launch: its call, or the GPU work that it launched.
   * @param {number} event
   */
  partners(event) {
    if (this.launch[event] >= 0) return [this.launch[event]];
    const launched = [];
    for (let at = this.launch.indexOf(event); at >= 0; at = this.launch.indexOf(event, at + 1)) launched.push(at);
    return launched;
  }

  /**
   * The number of the collective that an event is part of; -1 for none.
   * @param {number} event
   */
  collectiveOf(event) {
    const index = firstAtLeast(this.member, event);
    return this.member[index] === event ? this.collective[index] : -1;
  }

  /**
   * All events of the collective that an event is part of; none if there is no collective.
   * @param {number} event
   */
  together(event) {
    const collective = this.collectiveOf(event);
    if (collective < 0) return [];
    this.members ??= this.#byCollective();
    return this.members.get(collective) ?? [];
  }

  #byCollective() {
    /** @type {Map<number, number[]>} */
    const members = new Map();
    this.member.forEach((event, index) => {
      const events = members.get(this.collective[index]);
      if (events) events.push(event);
      else members.set(this.collective[index], [event]);
    });
    return members;
  }
}

// The matching events of a layer as running sums, so that queries on any span are fast.
export class EventMatches {
  /**
   * @param {EventLayer} layer
   * @param {Uint8Array} isMatch
   */
  constructor(layer, isMatch) {
    this.layer = layer;
    this.sum = new Float64Array(layer.count + 1);
    this.count = new Uint32Array(layer.count + 1);
    for (let at = 0; at < layer.count; at++) {
      const match = isMatch[layer.label[at]];
      this.sum[at + 1] = this.sum[at] + match * (layer.end[at] - layer.start[at]);
      this.count[at + 1] = this.count[at] + match;
    }
    this.total = this.count[layer.count];
  }

  /**
   * The first match of `row` at or after `event`; -1 if there is none.
   * @param {number} row
   * @param {number} event
   */
  next(row, event) {
    const { count } = this;
    const end = this.layer.begin[row + 1];
    return count[end] === count[event] ? -1 : firstAbove(count, count[event], event + 1, end + 1) - 1;
  }

  /**
   * The last match of `row` before `event`; -1 if there is none.
   * @param {number} row
   * @param {number} event
   */
  previous(row, event) {
    const { count } = this;
    const begin = this.layer.begin[row];
    return count[begin] === count[event] ? -1 : firstAtLeast(count, count[event], begin + 1, event + 1) - 1;
  }

  /**
   * The number of matches that start before `start`, or at `start` in rows up to `row`.
   * @param {number} start
   * @param {number} row
   */
  rank(start, row) {
    let rank = 0;
    for (let lane = 0; lane + 1 < this.layer.begin.length; lane++) {
      const first = this.layer.begin[lane];
      const end = this.#startingBefore(lane, start, lane <= row);
      rank += this.count[end] - this.count[first];
    }
    return rank;
  }

  /**
   * The next (or previous) match in time, -1 if there is none; matches with equal starts are in the order of rows.
   * @param {number} direction
   * @param {number} start
   * @param {number} row
   */
  step(direction, start, row) {
    let nearest = -1;
    for (let lane = 0; lane + 1 < this.layer.begin.length; lane++) {
      const isIncluded = direction > 0 ? lane <= row : lane < row;
      const border = this.#startingBefore(lane, start, isIncluded);
      const event = direction > 0 ? this.next(lane, border) : this.previous(lane, border);
      if (event >= 0 && (nearest < 0 || this.#isNearer(event, nearest, direction))) nearest = event;
    }
    return nearest;
  }

  /**
   * @param {number} row
   * @param {number} start
   * @param {boolean} isIncluded
   */
  #startingBefore(row, start, isIncluded) {
    const { layer } = this;
    let end = layer.lastStartingBy(row, start) + 1;
    while (!isIncluded && end > layer.begin[row] && layer.start[end - 1] === start) end--;
    return end;
  }

  /**
   * @param {number} event
   * @param {number} nearest
   * @param {number} direction
   */
  #isNearer(event, nearest, direction) {
    const difference = this.layer.start[event] - this.layer.start[nearest];
    return direction > 0 ? difference < 0 : difference >= 0; // rows are visited in order, so >= is right here
  }
}

// The whole payload: header, layers and sums.
export class TimelineData {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    /** @type {Header} */
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
    const binary = bytes.subarray(4 + size);
    this.begin = header.begin_ns === null ? null : BigInt(header.begin_ns); // of the capture, in its own time
    this.span = header.span_ns;
    this.window = header.window;
    this.windowName = header.window_name;
    this.origin = header.window ? header.window[0] : 0; // printed times are relative to this, as in the report's tables
    this.names = header.names;
    this.short = new Map(header.short.map(([name, label]) => [header.names[name], label])); // of kernels, by full name
    this.number = new RegExp(header.number, "g"); // the numbers that differ between names of repetitions
    this.labels = header.labels;
    /** @type {string[]} */
    this.barTexts = []; // by label, made on first use
    this.groups = header.groups;
    this.rows = header.rows;
    this.curves = header.curves;
    this.thinned = header.thinned;
    this.totals = header.totals;
    this.sums = header.sums ? new TimelineSums(header.sums, this.names, this.span, binary) : null;
    this.layers = header.layers.map((layer) => new EventLayer(layer, binary));
    this.categories = header.categories;
    this.activity = new TimelineActivity(header.activity, header.activity_groups, header.categories, this.span, binary);
    this.ranks = header.ranks ? new TimelineRanks(header.ranks, this.groups.length, this.origin, binary) : null;
    this.color = new Uint8Array(this.labels.length);
    this.colorBy("category");
  }

  /** The categories that occur in the activity of GPUs, or, if that is unknown, among events. */
  get occurring() {
    const { activity, categories, labels } = this;
    const ofEvents = new Set(labels.map(([, , category]) => category));
    return activity.groups.length ? activity.occurring(this.window ?? [0, this.span]) : categories.filter((_, category) => ofEvents.has(category));
  }

  /**
   * Chooses the colors of events: by name, or by category, neutral without one. The numbers of colors are first those of
   * names, then of categories, then of neutral ones.
   * @param {"category" | "name"} property
   */
  colorBy(property) {
    const ofName = this.names.map(eventColor);
    const neutral = EVENT_COLORS + this.categories.length;
    this.color = Uint8Array.from(this.labels, ([name, , category]) => {
      if (property === "name") return ofName[name];
      return category < 0 ? neutral + (ofName[name] % NEUTRAL_COLORS) : EVENT_COLORS + category;
    });
  }

  /**
   * The name of a group, with that of its rank.
   * @param {number} group
   */
  groupName(group) {
    const { label } = this.groups[group];
    const rank = this.rankOf(group);
    return rank && !label.startsWith(`${rank.name} `) ? `${rank.name}: ${label}` : label;
  }

  /**
   * The rank that a group is of; null if it is of none.
   * @param {number} group
   */
  rankOf(group) {
    return this.ranks?.list[this.ranks.of[group]] ?? null;
  }

  /**
   * The name of a row, with that of its group.
   * @param {number} row
   */
  rowName(row) {
    const { group, label } = this.rows[row];
    return `${this.groupName(group)}, ${label}`;
  }

  /** @param {number} time */
  instant(time) {
    return instantText(time - this.origin);
  }

  /**
   * Both ends of a span, rounded to `grain`, with as many decimals as they need.
   * @param {number} from
   * @param {number} to
   * @param {number} [grain]
   */
  instants(from, to, grain = 1) {
    return instantTexts(...[from, to].map((time) => Math.round((time - this.origin) / grain) * grain + 0)); // -0 + 0 is 0
  }

  /**
   * The finest layer that covers a span.
   * @param {number} from
   * @param {number} to
   */
  layerFor(from, to) {
    return this.layers.findLast((layer) => layer.covers(from, to)) ?? this.layers[0];
  }

  /**
   * The exact layer that covers a span; undefined if there is none or rows are left out.
   * @param {number} from
   * @param {number} to
   */
  exactLayer(from, to) {
    if (this.rows.length < this.totals.rows) return undefined;
    const [start, end] = [from, to].map((time) => Math.min(time, this.span));
    return this.layers.find((layer) => layer.grain === 1 && layer.covers(start, end));
  }

  /**
   * @param {EventLayer} layer
   * @param {number} event
   */
  name(layer, event) {
    return this.names[this.labels[layer.label[event]][0]];
  }

  /**
   * The name of an event, for small spaces: kernels have the labels that the tables of the page give them.
   * @param {EventLayer} layer
   * @param {number} event
   */
  shortName(layer, event) {
    const name = this.name(layer, event);
    return this.short.get(name) ?? name;
  }

  /**
   * The name of an event on its bar: that of a copy or a set without brackets, and with its size.
   * @param {EventLayer} layer
   * @param {number} event
   */
  barText(layer, event) {
    const label = layer.label[event];
    this.barTexts[label] ??= this.#barText(this.shortName(layer, event), this.details(layer, event));
    return this.barTexts[label];
  }

  /**
   * @param {string} name
   * @param {string} details
   */
  #barText(name, details) {
    const size = sizeIn(details);
    return size ? `${name.replace(/^\[CUDA (?:memcpy )?(.+)\]$/, "$1")} ${size.text}` : name;
  }

  /**
   * @param {EventLayer} layer
   * @param {number} event
   */
  details(layer, event) {
    return this.labels[layer.label[event]][1];
  }

  /**
   * Whether an event is a mark: it has no duration, and is visible at any zoom.
   * @param {EventLayer} layer
   * @param {number} event
   */
  isMark(layer, event) {
    return this.rows[layer.rowOf(event)].kind === "mark";
  }

  /**
   * The duration of an event as text; empty for a mark.
   * @param {EventLayer} layer
   * @param {number} event
   */
  duration(layer, event) {
    return this.isMark(layer, event) ? "" : durationText(layer.end[event] - layer.start[event]);
  }

  /**
   * The same event in the finest layer that contains it.
   * @param {EventLayer} layer
   * @param {number} event
   */
  finest(layer, event) {
    const fine = this.layerFor(layer.start[event], layer.end[event]);
    if (fine === layer) return { layer, event };
    const row = layer.rowOf(event);
    const same = fine.eventAt(row, (layer.start[event] + layer.end[event]) / 2, layer.grain);
    const isSame = same >= 0 && this.name(fine, same) === this.name(layer, event);
    return isSame ? { layer: fine, event: same } : { layer, event };
  }

  /**
   * The event of `row` that starts at `start`, in the finest layer that has it; null if there is none.
   * @param {number} row
   * @param {number} start
   */
  find(row, start) {
    for (const layer of [...this.layers].reverse()) {
      const event = row < this.rows.length && layer.covers(start, start) ? layer.eventAt(row, start, layer.grain) : -1;
      if (event >= 0 && Math.abs(layer.start[event] - start) <= layer.grain) return { layer, event };
    }
    return null;
  }

  /**
   * The labels whose name `test` accepts, as 0 or 1 each.
   * @param {(name: string) => boolean} test
   */
  labelsWith(test) {
    const isMatch = this.names.map(test);
    return Uint8Array.from(this.labels, ([name]) => Number(isMatch[name]));
  }
}
