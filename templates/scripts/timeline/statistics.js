// Statistics of a time span: busy time, events and names for each kind of row.

import { durationText } from "./text.js";

/**
 * @import { EventLayer, TimelineData } from "./data.js"
 * @import { RowKind, Span } from "./types.js"
 */

/**
 * Total time (ns) and number of events of a name.
 * @typedef {{ name: string, time: number, events: number }} NameSum
 */

/**
 * The names in a kind of row; `less`: the total time minus the time in which at least one event runs (ns).
 * @typedef {{ group: string, kind: RowKind, names: NameSum[], others?: { time: number, events: number }, less: number }} KindNames
 * @typedef {ReturnType<typeof kindSummary>} KindSums
 */

/**
 * Statistics and the span they cover; `step`: set if they count in steps of this length (ns); `kinds`: null if there
 * are none.
 * @typedef {{ from: number, to: number, step?: number, kinds: KindSums[] | null }} Statistics
 */

/**
 * The events of a kind of row, as index ranges in a layer.
 * @typedef {{ group: string, kind: RowKind, pieces: Span[] }} Pieces
 */

export const KIND_WORDS = {
  layer: "ranges in graphs",
  kernel: "GPU work",
  fault: "page faults",
  range: "ranges",
  python: "Python functions",
  api: "CUDA API",
  op: "operators",
  mark: "marks",
  os: "OS runtime",
};
const TOP_NAMES = 8;
export const NO_STATISTICS =
  "No statistics for this span: it is not drawn exactly, and the sums of all events do not fit the page size limit " +
  "(--max-bytes).";

/**
 * The time in which at least one of these spans runs, in ns. Sorts both arrays in place.
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
 * The events [first, end) of `row` that run in [from, to]; zero-length events count if they start inside.
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
 * Exact statistics from `from` to `to`: of a layer that has all events, else of the whole steps that contain the span;
 * `kinds` is null if there is neither.
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
 * Sums per group and kind of row, in the order of the rows.
 * @param {TimelineData} data
 * @param {EventLayer} layer
 * @param {number} from
 * @param {number} to
 */
function layerStatistics(data, layer, from, to) {
  const kinds = new Map();
  const after = to === data.span ? to + 1 : to; // so that events at the very end of the capture count
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
 * Sums up a kind of row. `names` and `others`: time and events of each name, and of names without their own sums.
 * `less`: the total time minus the time in which at least one event runs.
 * @param {KindNames} kind
 */
export function kindSummary({ group, kind, names, others = { time: 0, events: 0 }, less }) {
  /** @type {(sums: { time: number, events: number }[], field: "time" | "events") => number} */
  const total = (sums, field) => sums.reduce((sum, item) => sum + item[field], 0);
  const all = [...names, others];
  const [time, events] = [total(all, "time"), total(all, "events")];
  const occurring = names.filter((name) => name.events > 0);
  occurring.sort((a, b) => b.time - a.time || b.events - a.events);
  const top = occurring.slice(0, TOP_NAMES);
  const rest = { time: time - total(top, "time"), events: events - total(top, "events") };
  return { group, kind, events, time, busy: time - less, names: occurring.length, top, rest, hasMore: others.events > 0 };
}

/**
 * A remark on statistics that count in steps; empty if they cover exactly the selected span.
 * @param {number | undefined} step
 * @param {number} length
 * @param {Span} span
 */
export function spanRemark(step, length, [from, to]) {
  if (!step) return "";
  const marked = to - from < length ? ` Only ${durationText(to - from)} of this time are selected.` : "";
  return `All events are counted, in whole steps of ${durationText(step)}: the timeline is thinned here.${marked}`;
}

/**
 * A remark on the precision of a layer; empty if it is exact.
 * @param {EventLayer} layer
 */
export function layerRemark(layer) {
  const grain = durationText(layer.grain);
  if (layer.isMerged) {
    return (
      `Events shorter than ${grain} that start in the same interval of that length are one block here. It starts ` +
      "with the first event, is as long as all its events added up, and has the name of the longest."
    );
  }
  return layer.grain > 1 ? `Times are rounded to ${grain} here.` : "";
}
