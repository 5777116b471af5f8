// The texts below the timeline: the selected event, statistics of a span, and the list of visible events.

import { nameElement, newElement, part, toolButton } from "../dom.js";
import { formatCount } from "../numbers.js";
import { LinkedTables } from "../tables/linked.js";
import { timelineTable } from "./elements.js";
import { measureParts } from "./measure.js";
import { splitParts, windowParts } from "./spans.js";
import { KIND_WORDS, NO_STATISTICS, eventsWithin, layerRemark, spanRemark } from "./statistics.js";
import { countText, durationText, rateText, shareText, sizeIn } from "./text.js";

/**
 * @import { EventLayer } from "./data.js"
 * @import { Alignment } from "./ranks.js"
 * @import { KindSums, Statistics } from "./statistics.js"
 * @import { Timeline } from "./timeline.js"
 * @import { Selected, Span } from "./types.js"
 */

const MOST_LISTED = 100;
const MOST_PARTNERS = 12;
const MOST_MOVED = 7;

export class TimelinePanel {
  /**
   * @param {HTMLElement} section
   * @param {Timeline} timeline
   */
  constructor(section, timeline) {
    this.timeline = timeline;
    this.data = timeline.data;
    this.event = part(section, ".timeline-event", HTMLElement);
    this.measure = part(section, ".timeline-measure", HTMLElement);
    this.span = part(section, ".timeline-span", HTMLElement);
    this.list = part(section, ".timeline-list", HTMLElement);
  }

  /**
   * Replaces the content of a panel; if this removes the focused button, the focus moves to the timeline.
   * @param {HTMLElement} place
   * @param {(Node | string)[]} parts
   */
  #fill(place, parts) {
    const isFocused = place.contains(document.activeElement);
    place.replaceChildren(...parts);
    if (isFocused) this.timeline.canvas.focus({ preventScroll: true });
  }

  /** @param {Selected | null} selected */
  showEvent(selected) {
    this.#fill(this.event, selected ? this.#eventParts(selected) : []);
  }

  showMeasure() {
    this.#fill(this.measure, measureParts(this.timeline));
  }

  /** @param {Selected} selected */
  #eventParts(selected) {
    const { data, timeline } = this;
    const { layer, event, partners } = selected;
    const title = newElement("h3", {}, nameElement(data.shortName(layer, event)));
    const pairs = [
      ...this.#eventPairs(layer, event),
      ...this.#togetherPairs(selected),
      ...this.#partnerPairs(layer, event, partners),
      ...this.#placePairs(layer, event),
    ];
    const items = pairs.map(([term, content]) =>
      newElement("div", {}, newElement("dt", {}, term), newElement("dd", {}, content)),
    );
    const itsTime = () => timeline.chooseSpan(layer.start[event], layer.end[event]);
    const statistics = toolButton("Statistics for this time", itsTime);
    const tools = newElement(
      "div",
      { className: "timeline-actions" },
      toolButton("Zoom to it", () => timeline.zoomTo(layer, event)),
      ...(data.isMark(layer, event) ? [] : [statistics]),
      toolButton("Measure from here", () => timeline.measureFrom(selected)),
      toolButton("Close", () => timeline.select(null)),
    );
    return [title, newElement("dl", {}, ...items), tools];
  }

  /**
   * @param {EventLayer} layer
   * @param {number} event
   */
  #eventPairs(layer, event) {
    const { data } = this;
    const details = data.details(layer, event);
    const duration = data.duration(layer, event);
    const remark = layerRemark(layer);
    const name = data.name(layer, event);
    const size = layer.events?.[event] > 1 ? null : sizeIn(details);
    const rate = size && rateText(size.bytes, layer.end[event] - layer.start[event]);
    return [
      ...(name === data.shortName(layer, event) ? [] : [["Full name", nameElement(name)]]),
      ...(duration ? [["Duration", duration]] : []),
      ["Start", `${data.instant(layer.start[event])}${this.#place(layer.start[event])}${this.#inStep(layer, event)}`],
      ["Row", this.#rowName(layer.rowOf(event))],
      ...(details ? [["Details", nameElement(details)]] : []),
      ...(rate ? [["Rate", rate]] : []),
      ...(layer.events?.[event] > 1 ? [["Events", `${countText(layer.events[event], "event")} in one block`]] : []),
      ...(remark ? [["Precision", remark]] : []),
    ];
  }

  /** @param {number} time */
  #place(time) {
    const [from, to] = this.data.window ?? [time, time];
    if (time < from) return ", before the window";
    return time > to ? ", after the window" : "";
  }

  /** @param {number} row */
  #rowName(row) {
    return nameElement(this.data.rowName(row));
  }

  /**
   * Where an event is in the aligned step; empty if none is aligned.
   * @param {EventLayer} layer
   * @param {number} event
   */
  #inStep(layer, event) {
    const { alignment, shifts } = this.timeline;
    const { group } = this.data.rows[layer.rowOf(event)];
    return alignment && !Number.isNaN(shifts[group]) ? `; ${this.timeline.instant(group, layer.start[event])}` : "";
  }

  /**
   * Shows the aligned step, and the shifts of the times of ranks.
   * @param {Alignment | null} alignment
   */
  showAlignment(alignment) {
    const { ranks } = this.data;
    const { aligned: place, shifts } = this.timeline;
    if (!ranks || !alignment) {
      this.#fill(place, []);
      return;
    }
    const lengths = ranks.list.map((_, rank) => ranks.span(rank, alignment.step));
    const aligned = ranks.list.filter((rank, index) => rank.groups.length && lengths[index]);
    const without = ranks.list.filter((rank, index) => rank.groups.length && !lengths[index]);
    const shifted = aligned.map((rank) => ({ rank, by: shifts[rank.groups[0]] })).filter(({ by }) => by);
    shifted.sort((a, b) => Math.abs(b.by) - Math.abs(a.by));
    const texts = shifted.slice(0, MOST_MOVED).map(({ rank, by }) => `${rank.name} by ${by < 0 ? "−" : "+"}${durationText(Math.abs(by))}`);
    const more = shifted.length - texts.length;
    const reference = ranks.list[alignment.rank].name;
    const sentences = [
      `${ranks.stepName(alignment.step).replace("s", "S")} of ${countText(aligned.length, ranks.noun)} begins at 0, and each ends at its mark.`,
      texts.length ? `Rows are moved against ${reference}: ${texts.join(", ")}${more ? `, and ${more} more by less` : ""}.` : "No rows had to be moved.",
      without.length ? `Without this step, and not moved: ${ranks.named(without)}.` : "",
      "The overview is moved, too; details and tables have the times of the window.",
    ];
    const undo = toolButton("Undo", () => this.timeline.align(null));
    this.#fill(place, [`${sentences.filter(Boolean).join(" ")} `, undo]);
  }

  /**
   * The collective of an event: who came last, and how much sooner or later each other rank came.
   * @param {Selected} selected
   * @returns {[string, Node | string][]}
   */
  #togetherPairs(selected) {
    const { layer, event, together } = selected;
    const { data, timeline } = this;
    const { ranks } = data;
    const collective = layer.collectiveOf(event);
    if (!ranks?.together || collective < 0) return [];
    const { late } = ranks.facts(collective);
    const latest = timeline.lastOf(selected);
    const name = (/** @type {number} */ member) => data.rankOf(data.rows[layer.rowOf(member)].group)?.name ?? "";
    const isLatest = latest === event && late > 0;
    const text = `${ranks.latestText(collective)}${isLatest ? ": this one" : ""}. `;
    const to = (/** @type {string} */ label, /** @type {number} */ member) => toolButton(label, () => timeline.goTo(layer, member));
    const go = latest !== null && !isLatest && late > 0 ? [to(`Go to ${name(latest)}`, latest)] : [];
    const partners = together.filter((member) => member !== event);
    const items = partners.slice(0, MOST_PARTNERS).map((partner) => {
      const delay = layer.start[partner] - layer.start[event];
      const when = delay ? `${durationText(Math.abs(delay))} ${delay > 0 ? "later" : "earlier"}` : "at the same time";
      return newElement("li", {}, to(name(partner), partner), ` began ${when}`);
    });
    const more = partners.length - items.length;
    if (more > 0) items.push(newElement("li", {}, `and ${countText(more, "more")}`));
    /** @type {[string, Node | string][]} */
    const pairs = [["Together", newElement("span", {}, text, ...go)]];
    if (items.length) pairs.push(["The others", newElement("ul", {}, ...items)]);
    return pairs;
  }

  /**
   * The places of an event: the ranges and the operator that launched it, its rows in tables, and its advice.
   * @param {EventLayer} layer
   * @param {number} event
   * @returns {[string, Node | string][]}
   */
  #placePairs(layer, event) {
    const { data, timeline } = this;
    if (layer.events?.[event] > 1) return [];
    const { finder } = timeline.search;
    const { kind } = data.rows[layer.rowOf(event)];
    const to = (/** @type {number} */ range) => toolButton(nameElement(data.name(layer, range)), () => timeline.goTo(layer, range));
    const ranges = finder.around(layer, event);
    const operators = kind === "op" ? [] : finder.around(layer, event, "op").slice(-1);
    const names = [...ranges, ...(kind === "range" || kind === "layer" ? [event] : [])].map((range) => data.name(layer, range));
    const tables = TimelinePanel.#tableLinks(kind, data.name(layer, event), data.shortName(layer, event), names.join(" / "));
    const path = ranges.flatMap((range, at) => (at ? [" / ", to(range)] : [to(range)]));
    /** @type {[string, (Node | string)[]][]} */
    const pairs = [
      ["In the range", path],
      ["Operator", operators.map(to)],
      ["In the tables", tables],
    ];
    const filled = pairs.filter(([, parts]) => parts.length);
    return filled.map(([term, parts]) => [term, newElement("span", { className: "timeline-links" }, ...parts)]);
  }

  /**
   * @param {string} kind
   * @param {string} name
   * @param {string} short
   * @param {string} path
   */
  static #tableLinks(kind, name, short, path) {
    const links = {
      kernel: [LinkedTables.kernel([name, short]), LinkedTables.replay([name, short]), LinkedTables.cause([name, short])],
      range: [LinkedTables.range(path), LinkedTables.causeIn(name)],
      layer: [LinkedTables.range(path), LinkedTables.causeIn(name)],
      op: [LinkedTables.kernelsOfOperator(name)],
    }[kind] ?? [];
    const ofPath = path ? [LinkedTables.kernelsOf(path)] : [];
    return [...links, ...ofPath].flatMap((link) => {
      if (!link) return [];
      const text = link.does === "kernels" && kind !== "op" ? "Kernels of the range" : link.text;
      const button = toolButton(text, link.go);
      button.setAttribute("title", link.label);
      return [button, "  "];
    });
  }

  /**
   * @param {EventLayer} layer
   * @param {number} event
   * @param {number[]} partners
   */
  #partnerPairs(layer, event, partners) {
    if (!partners.length) return [];
    const isWork = layer.launch[event] >= 0;
    const items = partners.slice(0, MOST_PARTNERS).map((partner) => this.#partnerItem(layer, event, partner, isWork));
    const more = partners.length - items.length;
    if (more > 0) items.push(newElement("li", {}, `and ${countText(more, "more operation")}`));
    return [[isWork ? "Launched by" : "Launched", newElement("ul", {}, ...items)]];
  }

  /**
   * @param {EventLayer} layer
   * @param {number} event
   * @param {number} partner
   * @param {boolean} isWork
   */
  #partnerItem(layer, event, partner, isWork) {
    const name = nameElement(this.data.shortName(layer, partner));
    const button = toolButton(name, () => this.timeline.goTo(layer, partner));
    const [call, work] = isWork ? [partner, event] : [event, partner];
    const delay = layer.start[work] - layer.start[call];
    const time = `${durationText(Math.abs(delay))} ${(delay < 0) === isWork ? "later" : "earlier"}`;
    return newElement("li", {}, button, " in ", this.#rowName(layer.rowOf(partner)), `, ${time}`);
  }

  /**
   * @param {Statistics | null} statistics
   * @param {Span} marked
   * @param {number} [grain]
   */
  showSpan(statistics, marked, grain = 1) {
    this.#fill(this.span, statistics ? this.#spanParts(statistics, marked, grain) : []);
  }

  /**
   * @param {Statistics} statistics
   * @param {Span} marked
   * @param {number} grain
   */
  #spanParts({ from, to, kinds, step }, marked, grain) {
    const length = to - from;
    const [first, last] = this.data.instants(from, to, grain);
    const title = `${durationText(length)} from ${first} to ${last}`;
    const tools = newElement(
      "div",
      { className: "timeline-actions" },
      toolButton("Zoom to it", () => this.timeline.show(...marked)),
      toolButton("Close", () => this.timeline.clearSpan()),
    );
    const remark = spanRemark(step, length, marked);
    return [
      newElement("h3", {}, `${step ? "Statistics of" : "Selected span:"} ${title}`),
      ...(remark ? [newElement("p", { className: "note" }, remark)] : []),
      ...splitParts(this.data, [from, to]),
      ...(kinds ? this.#kindParts(kinds, length) : [NO_STATISTICS]),
      ...windowParts(this.data, marked, tools),
    ];
  }

  /**
   * @param {KindSums[]} kinds
   * @param {number} length
   */
  #kindParts(kinds, length) {
    const rows = kinds.map((kind) => [
      nameElement(`${kind.group}, ${KIND_WORDS[kind.kind]}`),
      durationText(kind.busy),
      shareText(kind.busy / length),
      durationText(kind.time),
      formatCount(kind.events),
    ]);
    const heads = ["What", "Busy", "Busy share", "Sum of durations", "Events"];
    return [
      rows.length ? timelineTable("Busy time in the selected span", heads, rows, 1) : "No events run in this span.",
      ...kinds.map((kind) => this.#namesPart(kind, length)),
    ];
  }

  /**
   * @param {KindSums} kind
   * @param {number} length
   */
  #namesPart(kind, length) {
    const caption = `${kind.group}, ${KIND_WORDS[kind.kind]}: names by time`;
    /** @type {(first: Node | string, sum: { time: number, events: number }) => (Node | string)[]} */
    const cells = (first, { time, events }) => [
      first,
      durationText(time),
      shareText(time / length),
      formatCount(events),
    ];
    const button = (/** @type {string} */ name) => {
      const short = this.data.short.get(name);
      const link = toolButton(nameElement(short ?? name), () => this.timeline.search.highlight(name));
      if (short) link.title = name;
      return link;
    };
    const rows = kind.top.map((sum) => cells(button(sum.name), sum));
    if (kind.rest.events) rows.push(cells("all other names", kind.rest));
    const names = `${formatCount(kind.names + Number(kind.hasMore))}${kind.hasMore ? " or more" : ""} names`;
    const count = kind.rest.events && kind.names ? ` (first ${kind.top.length} of ${names})` : "";
    return newElement(
      "details",
      kind.kind === "kernel" ? { open: "" } : {},
      newElement("summary", {}, nameElement(`${caption}${count}`)),
      timelineTable(caption, ["Name", "Time", "Share of the span", "Events"], rows, 1),
    );
  }

  /**
   * Lists the first visible events by start time, for reading and for screen readers.
   * @param {EventLayer} layer
   * @param {number} from
   * @param {number} to
   * @param {number[]} rows
   */
  showList(layer, from, to, rows) {
    const events = [];
    let total = 0;
    for (const row of rows) {
      const shift = this.timeline.shiftOfRow(row);
      const [first, end] = eventsWithin(layer, row, from - shift, to - shift);
      total += end - first;
      for (let event = first; event < Math.min(end, first + MOST_LISTED); event++) events.push([event, row]);
    }
    const when = (/** @type {number} */ event, /** @type {number} */ row) => layer.start[event] + this.timeline.shiftOfRow(row);
    events.sort(([a, row], [b, next]) => when(a, row) - when(b, next) || row - next);
    const cells = events.slice(0, MOST_LISTED).map(([event, row]) => this.#listCells(layer, event, row));
    const caption = "Events in view, by start time";
    const noun = layer.isMerged ? "block" : "event";
    const count = `${formatCount(cells.length)} of ${countText(total, noun)} in view, by start time.`;
    const heads = ["Name", "Row", "Details", "Start", "Duration"];
    const table = cells.length ? [timelineTable(caption, heads, cells, 3)] : [];
    this.#fill(this.list, [newElement("p", { className: "note" }, count), ...table]);
  }

  /**
   * @param {EventLayer} layer
   * @param {number} event
   * @param {number} row
   */
  #listCells(layer, event, row) {
    const { data, timeline } = this;
    return [
      toolButton(nameElement(data.shortName(layer, event)), () => timeline.select({ layer, event })),
      this.#rowName(row),
      nameElement(data.details(layer, event)),
      data.instant(layer.start[event]),
      data.duration(layer, event) || "–",
    ];
  }
}
