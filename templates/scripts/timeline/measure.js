// The measurement from one event to another: the distances between their edges, and what runs between them.

import { nameElement, newElement, toolButton } from "../dom.js";
import { formatCount } from "../numbers.js";
import { timelineTable } from "./elements.js";
import { eventsWithin, layerRemark } from "./statistics.js";
import { durationText, shareText } from "./text.js";

/**
 * @import { TimelineData } from "./data.js"
 * @import { Timeline } from "./timeline.js"
 * @import { Hit, Span } from "./types.js"
 */

/**
 * One end of a measurement: an event, with its row and its times.
 * @typedef {{ row: number, start: number, end: number, name: string }} End
 */

/**
 * @param {TimelineData} data
 * @param {Hit} hit
 * @returns {End}
 */
function endOf(data, { layer, event }) {
  return { row: layer.rowOf(event), start: layer.start[event], end: layer.end[event], name: data.shortName(layer, event) };
}

/**
 * Two events in the order of their starts. `gap`: the time from the end of the first to the start of the second, empty if
 * they overlap; the others are the distances of their edges, in ns.
 * @param {TimelineData} data
 * @param {Hit} one
 * @param {Hit} other
 */
export function measurement(data, one, other) {
  const [first, second] = [endOf(data, one), endOf(data, other)].sort((a, b) => a.start - b.start || a.end - b.end);
  /** @type {Span | null} */
  const gap = second.start > first.end ? [first.end, second.start] : null;
  return {
    first,
    second,
    gap,
    overlap: Math.max(Math.min(first.end, second.end) - second.start, 0),
    starts: second.start - first.start,
    ends: second.end - first.end,
    whole: Math.max(first.end, second.end) - first.start,
    /** The span that the timeline draws: between the nearest edges, else between the starts. */
    drawn: gap ?? /** @type {Span} */ ([first.start, second.start]),
  };
}

/** @typedef {ReturnType<typeof measurement>} Measurement */

/**
 * What a row does in a span.
 * @param {TimelineData} data
 * @param {number} row
 * @param {Span} span
 */
export function rowActivity(data, row, [from, to]) {
  const layer = data.layerFor(from, to);
  const [first, end] = eventsWithin(layer, row, from, to);
  let [busy, events] = [0, 0];
  for (let event = first; event < end; event++) {
    busy += Math.max(Math.min(layer.end[event], to) - Math.max(layer.start[event], from), 0);
    events += layer.events?.[event] ?? 1;
  }
  return { busy, idle: to - from - busy, events, remark: layerRemark(layer) };
}

/**
 * The panel of a measurement; it asks for a second event while there is none.
 * @param {Timeline} timeline
 */
export function measureParts(timeline) {
  const { data, anchor, selected } = timeline;
  if (!anchor || !selected) return [];
  const close = toolButton("Close", () => timeline.measureFrom(null));
  const isSame = anchor.layer === selected.layer && anchor.event === selected.event;
  if (isSame) {
    const text = "Measure to another event: click it, step with [ and ], or find it with the search.";
    return [newElement("h3", {}, "Measure from ", nameElement(data.shortName(anchor.layer, anchor.event))), text, actions(close)];
  }
  const measured = measurement(data, anchor, selected);
  const { first, second, gap, drawn } = measured;
  const title = gap
    ? [`${durationText(gap[1] - gap[0])} from the end of `, nameElement(first.name), " to the start of ", nameElement(second.name)]
    : measured.overlap
      ? [nameElement(first.name), " and ", nameElement(second.name), ` overlap by ${durationText(measured.overlap)}`]
      : [nameElement(second.name), " begins as ", nameElement(first.name), " ends"];
  const pairs = [
    ["Start to start", durationText(measured.starts)],
    ["End to end", durationText(measured.ends)],
    ["Both, whole", durationText(measured.whole)],
  ];
  const items = pairs.map(([term, text]) => newElement("div", {}, newElement("dt", {}, term), newElement("dd", {}, text)));
  return [
    newElement("h3", {}, ...title),
    newElement("dl", {}, ...items),
    ...(gap ? between(data, [first.row, second.row], gap) : []),
    actions(
      toolButton("Zoom to it", () => timeline.show(first.start, Math.max(first.end, second.end))),
      ...(drawn[1] > drawn[0] ? [toolButton("Statistics for this time", () => timeline.chooseSpan(...drawn))] : []),
      close,
    ),
  ];
}

/** @param {...HTMLElement} buttons */
function actions(...buttons) {
  return newElement("div", { className: "timeline-actions" }, ...buttons);
}

/**
 * @param {TimelineData} data
 * @param {number[]} ends
 * @param {Span} span
 */
function between(data, ends, span) {
  const length = span[1] - span[0];
  const rows = [...new Set(ends)].filter((row) => data.rows[row].kind !== "mark");
  const activities = rows.map((row) => ({ row, ...rowActivity(data, row, span) }));
  const cells = activities.map(({ row, busy, idle, events }) => [
    nameElement(data.rowName(row)),
    durationText(busy),
    shareText(busy / length),
    durationText(idle),
    formatCount(events),
  ]);
  const remark = activities.find(({ remark: text }) => text)?.remark;
  return [
    ...(cells.length ? [timelineTable("Between them", ["Row", "Busy", "Busy share", "Idle", "Events"], cells, 1)] : []),
    ...(remark ? [newElement("p", { className: "note" }, remark)] : []),
  ];
}
