// What went on in a span: busy time, events and names of each kind of row.

import { durationText } from "./text.js";

/**
 * @import { EventLayer, TimelineData } from "./data.js"
 * @import { RowKind, Span } from "./types.js"
 */

/**
 * Time and events of a name.
 * @typedef {{ name: string, time: number, events: number }} NameSum
 */

/**
 * Names of a kind of rows, and how much less than all of them together the time is in which any of them runs.
 * @typedef {{ group: string, kind: RowKind, names: NameSum[], others?: { time: number, events: number }, less: number }} KindNames
 * @typedef {ReturnType<typeof kindSummary>} KindSums
 */

/**
 * What statistics are of; `step` if in steps of that length; `kinds` null if there are none.
 * @typedef {{ from: number, to: number, step?: number, kinds: KindSums[] | null }} Statistics
 */

/**
 * Events of a kind of rows, as pieces of a layer.
 * @typedef {{ group: string, kind: RowKind, pieces: Span[] }} Pieces
 */

export const KIND_WORDS = { kernel: "GPU work", range: "ranges", api: "CUDA API", op: "operators", mark: "marks" };
const TOP_NAMES = 8;
export const NO_STATISTICS =
  "There are no statistics of this span: it is not drawn exactly, and the page has no room for sums of all its " +
  "events (--max-bytes).";

/**
 * Time in which at least one of these spans runs, in ns. Both arrays are sorted in place.
 * @param {Float64Array} starts
 * @param {Float64Array} ends
 */
function unionLength(starts, ends) {
  starts.sort();
  ends.sort();
  let total = 0;
  let begun = 0;
  for (let opened = 0, closed = 0; closed < ends.length; closed++) {
    if (opened === closed) begun = starts[opened];
    while (opened < starts.length && starts[opened] <= ends[closed]) opened++;
    if (opened === closed + 1) total += ends[closed] - begun;
  }
  return total;
}

/**
 * [first, end) of the events of `row` that run in [from, to]; events of no length count where they begin inside.
 * @param {EventLayer} layer
 * @param {number} row
 * @param {number} from
 * @param {number} to
 */
export function eventsWithin(layer, row, from, to) {
  let first = layer.firstEndingFrom(row, from);
  let end = layer.lastStartingBy(row, to) + 1;
  while (first < end && layer.end[first] === from && layer.start[first] < from) first++;
  while (end > first && layer.start[end - 1] === to) end--;
  return [first, Math.max(first, end)];
}

/**
 * What went on from `from` to `to`, exactly: of a layer, or else of the steps that hold the span; without `kinds` where
 * there is neither.
 * @param {TimelineData} data
 * @param {number} from
 * @param {number} to
 */
export function spanStatistics(data, from, to) {
  const layer = data.exactLayer(from, to);
  if (layer) return { from, to, kinds: layerStatistics(data, layer, from, to) };
  return data.sums ? data.sums.statistics(from, to) : { from, to, kinds: null };
}

/**
 * Sums per group and kind, in the order of the rows.
 * @param {TimelineData} data
 * @param {EventLayer} layer
 * @param {number} from
 * @param {number} to
 */
function layerStatistics(data, layer, from, to) {
  const kinds = new Map();
  const after = to === data.span ? to + 1 : to; // so that what begins with the last moment counts
  data.rows.forEach((row, number) => {
    const [first, end] = eventsWithin(layer, number, from, after);
    const key = `${row.group} ${row.kind}`;
    if (!kinds.has(key)) kinds.set(key, { group: data.groups[row.group].label, kind: row.kind, pieces: [] });
    if (end > first) kinds.get(key).pieces.push([first, end]);
  });
  const sums = [...kinds.values()].map((kind) => kindStatistics(data, layer, kind, from, to));
  return sums.filter((kind) => kind.events > 0);
}

/**
 * @param {TimelineData} data
 * @param {EventLayer} layer
 * @param {Pieces} kind
 * @param {number} from
 * @param {number} to
 */
function kindStatistics(data, layer, { group, kind, pieces }, from, to) {
  const size = pieces.reduce((sum, [first, end]) => sum + end - first, 0);
  const starts = new Float64Array(size);
  const ends = new Float64Array(size);
  const names = new Map();
  let [at, time] = [0, 0];
  for (const [first, end] of pieces) {
    for (let event = first; event < end; event++, at++) {
      starts[at] = Math.max(layer.start[event], from);
      ends[at] = Math.min(layer.end[event], to);
      const name = data.labels[layer.label[event]][0];
      const sum = names.get(name) ?? names.set(name, { name: data.names[name], time: 0, events: 0 }).get(name);
      sum.time += ends[at] - starts[at];
      sum.events++;
      time += ends[at] - starts[at];
    }
  }
  return kindSummary({ group, kind, names: [...names.values()], less: time - unionLength(starts, ends) });
}

/**
 * `names` and `others`: time and events of each name, and of names that have no sums of their own. `less`: by how much
 * the time in which anything runs is less than all of it together.
 * @param {KindNames} kind
 */
export function kindSummary({ group, kind, names, others = { time: 0, events: 0 }, less }) {
  /** @type {(sums: { time: number, events: number }[], field: "time" | "events") => number} */
  const total = (sums, field) => sums.reduce((sum, one) => sum + one[field], 0);
  const all = [...names, others];
  const [time, events] = [total(all, "time"), total(all, "events")];
  const found = names.filter((name) => name.events > 0);
  found.sort((one, other) => other.time - one.time || other.events - one.events);
  const top = found.slice(0, TOP_NAMES);
  const rest = { time: time - total(top, "time"), events: events - total(top, "events") };
  return { group, kind, events, time, busy: time - less, names: found.length, top, rest, hasMore: others.events > 0 };
}

/**
 * What statistics are of that count in steps, in words; empty if they are of the very span that is marked.
 * @param {number | undefined} step
 * @param {number} length
 * @param {Span} span
 */
export function spanRemark(step, length, [from, to]) {
  if (!step) return "";
  const marked = to - from < length ? ` What is marked is ${durationText(to - from)} of it.` : "";
  return `All events are counted, in whole steps of ${durationText(step)}: the picture is thinned here.${marked}`;
}

/**
 * How far a layer can be trusted, in words; empty if it is exact.
 * @param {EventLayer} layer
 */
export function layerRemark(layer) {
  const grain = durationText(layer.grain);
  if (layer.isMerged) {
    return (
      `Shorter events that begin in the same ${grain} are one block here. It begins with the first of them, is as ` +
      "long as all of them together, and counts them under the name of the longest."
    );
  }
  return layer.grain > 1 ? `Times are rounded to ${grain} here.` : "";
}
