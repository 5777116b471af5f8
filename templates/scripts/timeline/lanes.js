// Layout of the timeline: lanes from top to bottom, and the visible time span from left to right.

import { SPLIT_LABEL, countText } from "./text.js";

/**
 * @import { TimelineData } from "./data.js"
 * @import { Lane } from "./types.js"
 */

const LANE_HEIGHT = { group: 26, split: 20, row: 20, curve: 38, empty: 20, fold: 20 };
const LEAST_VIEW = 50; // ns: no use in zooming in further

/**
 * What the reader chose: groups that are collapsed or show their empty rows, ranks that show similar ones, the keys of
 * pinned lanes, and a test of the names of rows.
 * @typedef {{ collapsed: Set<number>, unfolded: Set<number>, spread: Set<number>, pinned: string[], filter: ((name: string) => boolean) | null }} Choices
 */

/**
 * A short name of a row, a curve or the activity of a GPU, for addresses; empty for other lanes, which cannot be pinned.
 * @param {Pick<Lane, "kind" | "index">} lane
 */
export function laneKey({ kind, index }) {
  return ["row", "curve", "split"].includes(kind) ? `${kind[0]}${index}` : "";
}

// Pinned lanes, then group headings and the lanes of expanded groups, with their positions in px: the activity of a GPU,
// rows, and curves. Rows without events in the window and curves that are always 0 are folded, and so are ranks that are
// similar to another. A filter shows all that it accepts, and nothing else.
export class TimelineLanes {
  /**
   * @param {TimelineData} data
   * @param {Choices} choices
   */
  constructor(data, { collapsed, unfolded, spread, pinned, filter }) {
    this.data = data;
    this.pinned = new Set(pinned);
    this.filter = filter;
    /** @type {Lane[]} */
    this.all = [];
    this.height = 0;
    this.ofRow = new Int32Array(data.rows.length).fill(-1);
    this.ofGroup = new Int32Array(data.groups.length).fill(-1); // its heading, or where it is folded
    /** @type {Map<number, { rows: number[], curves: number[] }>} */
    this.empty = new Map(); // by expanded group: its empty rows and curves, which are folded
    const rows = numbersByGroup(data.rows, data.groups.length);
    const curves = numbersByGroup(data.curves, data.groups.length);
    for (const key of this.pinned) this.#pin(key);
    this.pinnedHeight = this.height;
    this.#inOrder(spread, (group) => {
      if (filter && !this.#accepts(group, rows[group], curves[group])) return;
      this.ofGroup[group] = this.all.length;
      this.#add("group", group, group);
      if (collapsed.has(group)) return;
      const device = data.activity.groups.indexOf(group);
      if (device >= 0) this.#addAll("split", [device], group);
      if (filter) {
        this.#addAll("row", rows[group], group);
        this.#addAll("curve", curves[group], group);
        return;
      }
      const zeros = curves[group].filter((curve) => data.curves[curve].max === 0);
      const idle = rows[group].filter((row) => !hasEvents(data, row));
      // a folded row takes as much room as a row
      const empty = { rows: idle.length + zeros.length > 1 ? idle : [], curves: zeros };
      this.empty.set(group, empty);
      this.#addAll("row", rows[group].filter((row) => !empty.rows.includes(row)), group);
      this.#addAll("curve", curves[group].filter((curve) => !zeros.includes(curve)), group);
      if (!empty.rows.length && !zeros.length) return;
      this.#add("empty", group, group);
      if (!unfolded.has(group)) return;
      this.#addAll("row", empty.rows, group);
      this.#addAll("curve", zeros, group);
    });
  }

  /** @param {string} key */
  #pin(key) {
    const { rows, curves, activity } = this.data;
    const index = Number(key.slice(1));
    const kind = /** @type {const} */ (["row", "curve", "split"]).find(([letter]) => letter === key[0]);
    const group = kind === "split" ? activity.groups[index] : (kind === "row" ? rows : curves)[index]?.group;
    if (!kind || group === undefined) return;
    if (kind === "row") this.ofRow[index] = this.all.length;
    this.#add(kind, index, group, true);
  }

  /**
   * The name of a row, a curve or the activity of a GPU, with that of its group.
   * @param {"row" | "curve" | "split"} kind
   * @param {number} index
   * @param {number} group
   */
  #name(kind, index, group) {
    if (kind === "row") return this.data.rowName(index);
    return `${this.data.groupName(group)}, ${kind === "curve" ? this.data.curves[index].label : SPLIT_LABEL}`;
  }

  /**
   * Whether the filter accepts any lane of a group that is not pinned.
   * @param {number} group
   * @param {number[]} rows
   * @param {number[]} curves
   */
  #accepts(group, rows, curves) {
    const device = this.data.activity.groups.indexOf(group);
    const isShown = (/** @type {"row" | "curve" | "split"} */ kind) => (/** @type {number} */ index) => this.#isShown(kind, index, group);
    return rows.some(isShown("row")) || curves.some(isShown("curve")) || (device >= 0 && isShown("split")(device));
  }

  /**
   * @param {"row" | "curve" | "split"} kind
   * @param {number} index
   * @param {number} group
   */
  #isShown(kind, index, group) {
    return !this.pinned.has(laneKey({ kind, index })) && (!this.filter || this.filter(this.#name(kind, index, group)));
  }

  /**
   * Adds the groups in their order; ranks that are similar to another one follow it, or are folded behind it.
   * @param {Set<number>} spread
   * @param {(group: number) => void} add
   */
  #inOrder(spread, add) {
    const { ranks, groups } = this.data;
    const order = [...groups.keys()];
    // GPUs, then processes: each in the order of ranks, and without a rank at the end
    const key = (/** @type {number} */ group) => {
      const place = ranks ? ranks.of[group] : -1;
      const isFirst = place < 0 ? /^(?:GPU|CPU)/.test(groups[group].label) : ranks?.list[place].groups[0] === group;
      return (isFirst ? 0 : 2 * groups.length) + (place < 0 ? groups.length : place);
    };
    if (ranks) order.sort((a, b) => key(a) - key(b));
    order.forEach((group) => {
      const place = ranks ? ranks.of[group] : -1;
      if (!ranks || place < 0) return add(group);
      const { like, groups: numbers } = ranks.list[place];
      if (this.filter) return add(group);
      if (like !== place && ranks.list[like].groups.length) return;
      add(group);
      const similar = ranks.like(place);
      const index = numbers.indexOf(group);
      const fold = this.all.length;
      if (similar.length && !index) this.#add("fold", place, group);
      for (const rank of similar) {
        const similarGroups = rank.groups.slice(index, index + 1 < numbers.length ? index + 1 : undefined);
        if (spread.has(place)) similarGroups.forEach(add);
        else if (!index) for (const folded of rank.groups) this.ofGroup[folded] = fold;
      }
    });
  }

  /**
   * Where a row is: its lane, else the heading that it is folded behind.
   * @param {number} row
   */
  forRow(row) {
    const lane = this.ofRow[row] >= 0 ? this.ofRow[row] : this.ofGroup[this.data.rows[row].group];
    return lane < 0 ? null : this.all[lane];
  }

  /**
   * @param {Lane["kind"]} kind
   * @param {number} index
   * @param {number} group
   * @param {boolean} [isPinned]
   */
  #add(kind, index, group, isPinned = false) {
    this.all.push({ kind, index, group, isPinned, top: this.height, height: LANE_HEIGHT[kind] });
    this.height += LANE_HEIGHT[kind];
  }

  /**
   * Adds those that are not pinned, and that the filter accepts.
   * @param {"row" | "curve" | "split"} kind
   * @param {number[]} indexes
   * @param {number} group
   */
  #addAll(kind, indexes, group) {
    for (const index of indexes) {
      if (!this.#isShown(kind, index, group)) continue;
      if (kind === "row") this.ofRow[index] = this.all.length;
      this.#add(kind, index, group);
    }
  }

  /**
   * The names of the empty rows and curves of a group, and texts about them.
   * @param {number} group
   */
  emptyOf(group) {
    const { rows, curves } = this.empty.get(group) ?? { rows: [], curves: [] };
    const [idle, zeros] = [rows.map((row) => this.data.rows[row].label), curves.map((curve) => this.data.curves[curve].label)];
    const [noEvents, always] = [this.data.window ? "empty in the window" : "empty", "always 0"];
    return {
      names: [...idle, ...zeros],
      // short, because it is written left of the plot
      counted: idle.length ? countText(idle.length + zeros.length, "empty row") : `${countText(zeros.length, "counter")} ${always}`,
      named: [idle.length && `${noEvents}: ${idle.join(", ")}`, zeros.length && `${always}: ${zeros.join(", ")}`]
        .filter(Boolean).join("; "),
    };
  }

  /**
   * The index of the lane at `y`, or of the nearest one.
   * @param {number} y
   */
  indexAt(y) {
    let low = 0;
    let high = this.all.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.all[middle].top <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /**
   * @param {number} top
   * @param {number} bottom
   */
  between(top, bottom) {
    if (!this.all.length) return [];
    return this.all.slice(this.indexAt(top), this.indexAt(bottom) + 1);
  }
}

/**
 * Whether a row has events in the window, or may have: of blocks of merged events, only the beginning is known.
 * @param {TimelineData} data
 * @param {number} row
 */
function hasEvents({ window, span, layers }, row) {
  const [from, to] = window ?? [0, span];
  return layers.some((layer) => {
    const event = layer.firstEndingFrom(row, from - layer.grain);
    return event < layer.begin[row + 1] && layer.start[event] <= to;
  });
}

/**
 * @param {{ group: number }[]} items
 * @param {number} groups
 */
function numbersByGroup(items, groups) {
  /** @type {number[][]} */
  const numbers = Array.from({ length: groups }, () => []);
  items.forEach((item, number) => numbers[item.group].push(number));
  return numbers;
}

// The visible time span; it never extends more than a small margin past the ends of the capture.
export class TimeView {
  /** @type {number} */
  from;
  /** @type {number} */
  to;

  /** @param {number} span */
  constructor(span) {
    const margin = Math.max(span * 0.01, LEAST_VIEW / 2);
    this.lowest = -margin;
    this.highest = span + margin;
    this.fit();
  }

  get width() {
    return this.to - this.from;
  }

  /**
   * Moves the view, within the limits of its width and of the capture.
   * @param {number} from
   * @param {number} to
   */
  set(from, to) {
    const width = Math.min(Math.max(to - from, LEAST_VIEW), this.highest - this.lowest);
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(middle - width / 2, this.lowest), this.highest - width);
    this.to = this.from + width;
  }

  fit() {
    this.from = this.lowest;
    this.to = this.highest;
  }

  /**
   * Scales the width by `factor` while `time` stays where it is on the screen.
   * @param {number} factor
   * @param {number} time
   */
  zoom(factor, time) {
    const width = Math.min(Math.max(this.width * factor, LEAST_VIEW), this.highest - this.lowest);
    const from = time - ((time - this.from) * width) / this.width;
    this.set(from, from + width);
  }

  /** @param {number} ns */
  pan(ns) {
    this.set(this.from + ns, this.to + ns);
  }

  /** @param {number} time */
  center(time) {
    this.pan(time - (this.from + this.to) / 2);
  }

  /**
   * Shows a span with room on both sides; the span takes `share` of the width.
   * @param {number} from
   * @param {number} to
   * @param {number} [share]
   */
  show(from, to, share = 0.9) {
    const room = ((to - from) * (1 / share - 1)) / 2;
    this.set(from - room, to + room);
  }
}
