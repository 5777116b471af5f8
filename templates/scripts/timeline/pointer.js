// Mouse, touchpad and touch input of the timeline.

import { nameElement, newElement, part } from "../dom.js";
import { PIN_ROOM, curveIndex, foldText } from "./draw.js";
import { laneKey } from "./lanes.js";
import { categoryText } from "./spans.js";
import { SPLIT_LABEL, amountText, countText, durationText, shareText } from "./text.js";

/**
 * @import { Timeline } from "./timeline.js"
 * @import { Hit, Lane, Point } from "./types.js"
 */

const CLICK_DISTANCE = 4; // px
const HIT_DISTANCE = 4;
const SNAP_DISTANCE = 6; // from the end of a selected span to the edge of an event
const HINT_MS = 2500; // as long as the style takes to fade it

/**
 * The state at the start of a drag.
 * `isAtEdge`: whether each end of a span is the edge of an event.
 * @typedef {{ place: Point, isSpan: boolean, from: number, to: number, scrollTop: number, isAtEdge: boolean[], isMoved: boolean }} Drag
 */

export class TimelinePointer {
  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.canvas = timeline.canvas;
    this.tooltip = part(timeline.section, ".timeline-tooltip", HTMLElement);
    this.hint = part(timeline.section, ".timeline-hint", HTMLElement);
    this.isHinted = false;
    this.isSelecting = false; // if true, a drag selects a span even without Shift
    /** @type {Map<number, Point>} */
    this.pointers = new Map();
    /** @type {Drag | null} */
    this.drag = null;
    /** @type {<K extends keyof HTMLElementEventMap>(name: K, action: (event: HTMLElementEventMap[K]) => void) => void} */
    const listen = (name, action) => this.canvas.addEventListener(name, action.bind(this), { passive: false });
    listen("wheel", this.#wheel);
    listen("pointerdown", this.#down);
    listen("pointermove", this.#move);
    listen("pointerup", this.#up);
    listen("pointercancel", this.#cancel);
    listen("pointerleave", this.#leave);
    listen("dblclick", this.#doubleClick);
  }

  /** @param {MouseEvent} event */
  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /**
   * With Ctrl or Cmd (browsers also report a touchpad pinch as Ctrl): zoom. Sideways: pan. Otherwise the page scrolls.
   * @param {WheelEvent} event
   */
  #wheel(event) {
    const { timeline } = this;
    const unit = event.deltaMode === 1 ? 16 : 1;
    const sideways = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      const steps = Math.max(Math.min(event.deltaY * unit, 120), -120);
      timeline.view.zoom(Math.exp(steps * 0.004), timeline.painter.timeAt(this.#place(event).x));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      timeline.view.pan((sideways * unit) / timeline.painter.scale);
    } else {
      this.#showHint(`${/Mac|iP/.test(navigator.platform) ? "⌘" : "Ctrl"} + wheel zooms`);
      return;
    }
    event.preventDefault();
    this.#hideTooltip();
    timeline.draw();
  }

  /**
   * Shows once how to zoom, after a first attempt that did something else.
   * @param {string} text
   */
  #showHint(text) {
    if (this.isHinted) return;
    this.isHinted = true;
    this.hint.textContent = text;
    this.hint.hidden = false;
    setTimeout(() => (this.hint.hidden = true), HINT_MS);
  }

  /** @param {PointerEvent} event */
  #down(event) {
    if (event.button !== 0) return;
    const place = this.#place(event);
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, place);
    this.#hideTooltip();
    if (this.pointers.size > 1) {
      this.drag = null;
      return;
    }
    const { painter, view, box } = this.timeline;
    const isSpan = event.shiftKey || this.isSelecting || place.y < painter.axis;
    const { from, to } = view;
    this.drag = { place, isSpan, from, to, scrollTop: box.scrollTop, isAtEdge: [false, false], isMoved: false };
  }

  /** @param {PointerEvent} event */
  #move(event) {
    const place = this.#place(event);
    const before = this.pointers.get(event.pointerId);
    if (before) this.pointers.set(event.pointerId, place);
    if (this.pointers.size > 1 && before) this.#pinch(event.pointerId, before, place);
    else if (this.drag && before) this.#dragTo(this.drag, place, event.pointerType);
    else if (event.pointerType === "mouse") this.#hover(place);
  }

  /**
   * Zooms and pans with two fingers; the other finger stays where it is.
   * @param {number} id
   * @param {Point} before
   * @param {Point} place
   */
  #pinch(id, before, place) {
    const { timeline } = this;
    const [, fixed] = [...this.pointers].find(([pointer]) => pointer !== id) ?? [id, before];
    const distance = (/** @type {Point} */ point) => Math.max(Math.abs(point.x - fixed.x), 20);
    const middle = (before.x + fixed.x) / 2;
    const time = timeline.painter.timeAt(middle);
    timeline.view.pan(-(place.x - before.x) / 2 / timeline.painter.scale);
    timeline.view.zoom(distance(before) / distance(place), time);
    timeline.draw();
  }

  /**
   * @param {Drag} drag
   * @param {Point} place
   * @param {string} kind
   */
  #dragTo(drag, place, kind) {
    const { timeline } = this;
    const [x, y] = [place.x - drag.place.x, place.y - drag.place.y];
    drag.isMoved ||= Math.hypot(x, y) > CLICK_DISTANCE;
    if (!drag.isMoved) return;
    if (drag.isSpan) {
      const ends = [drag.place, place].map((point) => this.#edgeAt(point));
      if (ends[0].time > ends[1].time) ends.reverse();
      drag.isAtEdge = [ends[0].isEdge, ends[1].isEdge];
      timeline.markSpan(ends[0].time, ends[1].time);
      return;
    }
    this.canvas.classList.add("is-dragged");
    const ns = x / timeline.painter.scale;
    timeline.view.set(drag.from - ns, drag.to - ns);
    if (kind === "mouse") timeline.box.scrollTop = drag.scrollTop - y; // on touch screens the browser scrolls
    timeline.draw();
  }

  /** @param {PointerEvent} event */
  #up(event) {
    const { drag, timeline } = this;
    this.#release(event);
    if (!drag || this.pointers.size) return;
    if (drag.isMoved && drag.isSpan && timeline.span) timeline.chooseShown(timeline.span, drag.isAtEdge);
    else if (!drag.isMoved) this.#click(drag.place, event.shiftKey);
  }

  /** @param {PointerEvent} event */
  #cancel(event) {
    // the browser scrolls the page
    if (event.pointerType === "touch") this.#showHint("Two fingers zoom; a drag sideways moves");
    this.#release(event);
  }

  /** @param {PointerEvent} event */
  #release(event) {
    this.pointers.delete(event.pointerId);
    this.drag = null;
    this.canvas.classList.remove("is-dragged");
  }

  /**
   * @param {Point} place
   * @param {boolean} isSecond
   */
  #click(place, isSecond) {
    const { timeline } = this;
    const lane = timeline.laneAt(place.y);
    const note = timeline.painter.noteAt(place);
    if (note) timeline.notes.edit(note);
    if (lane && place.x < PIN_ROOM && laneKey(lane)) {
      timeline.togglePin(lane);
      return;
    }
    if (lane) timeline.choose(lane);
    if (place.x >= timeline.painter.gutter && lane?.kind === "row") {
      const hit = this.#eventAt(place, lane);
      if (isSecond) timeline.measureTo(hit);
      else timeline.pick(hit);
    }
    if (lane?.kind === "group") timeline.toggle(lane.index);
    if (lane?.kind === "empty") timeline.fold(lane.index);
    if (lane?.kind === "fold") timeline.spreadOut(lane.index);
  }

  /**
   * @param {Point} point
   * @param {Lane} lane
   */
  #eventAt({ x }, lane) {
    const { painter, data } = this.timeline;
    const { from, to } = painter.viewOf(lane.group);
    const layer = data.layerFor(from, to);
    const event = layer.eventAt(lane.index, painter.timeAt(x) - painter.shiftOf(lane.group), HIT_DISTANCE / painter.scale);
    return event < 0 ? null : { layer, event };
  }

  /**
   * The time at a place: that of the edge of an event if one is near, in the row there.
   * @param {Point} point
   */
  #edgeAt(point) {
    const { painter } = this.timeline;
    const time = painter.timeAt(point.x);
    const lane = this.timeline.laneAt(point.y);
    const hit = lane?.kind === "row" ? this.#eventAt(point, lane) : null;
    const edges = hit ? [hit.layer.start[hit.event], hit.layer.end[hit.event]] : [];
    const near = edges.filter((edge) => Math.abs(edge - time) * painter.scale <= SNAP_DISTANCE);
    near.sort((a, b) => Math.abs(a - time) - Math.abs(b - time));
    return near.length ? { time: near[0], isEdge: true } : { time, isEdge: false };
  }

  /** @param {MouseEvent} event */
  #doubleClick(event) {
    const { timeline } = this;
    const { x } = this.#place(event);
    if (x < timeline.painter.gutter) return;
    timeline.view.zoom(1 / 3, timeline.painter.timeAt(x));
    timeline.draw();
  }

  #leave() {
    this.#hideTooltip();
    this.timeline.hover(null);
    this.timeline.point(null);
  }

  /** @param {Point} place */
  #hover(place) {
    const { timeline } = this;
    const lane = place.x >= timeline.painter.gutter ? timeline.laneAt(place.y) : null;
    const hit = lane?.kind === "row" ? this.#eventAt(place, lane) : null;
    const named = timeline.laneAt(place.y);
    timeline.point(place.x < timeline.painter.gutter ? named : null);
    const isPin = named && place.x < PIN_ROOM && laneKey(named);
    const note = timeline.painter.noteAt(place);
    this.canvas.classList.toggle("is-heading", Boolean(isPin || note) || ["group", "empty", "fold"].includes(named?.kind ?? ""));
    timeline.hover(hit);
    const lines = note ? [note.text] : hit ? this.#eventLines(hit) : this.#otherLines(place, lane);
    if (lines.length) this.#showTooltip(place, lines);
    else this.#hideTooltip();
  }

  /** @param {Hit} hit */
  #eventLines({ layer, event }) {
    const { data } = this.timeline;
    const count = layer.events?.[event] > 1 ? `, ${countText(layer.events[event], "event")}` : "";
    const { group } = data.rows[layer.rowOf(event)];
    const at = this.timeline.instant(group, layer.start[event]);
    const time = `${data.duration(layer, event)} at ${at}${count}`.trim();
    const collective = layer.collectiveOf(event);
    const latest = collective >= 0 ? (data.ranks?.latestText(collective) ?? "") : "";
    return [data.shortName(layer, event), time, latest, data.details(layer, event)].filter(Boolean);
  }

  /**
   * The tooltip away from events: the value of a curve, or the full name of a row or curve in the left column.
   * @param {Point} place
   * @param {Lane | null} lane
   */
  #otherLines(place, lane) {
    const { timeline } = this;
    const { data, painter } = timeline;
    const hovered = lane ?? (place.x < painter.gutter ? this.timeline.laneAt(place.y) : null);
    if (hovered && place.x < PIN_ROOM && laneKey(hovered)) return [hovered.isPinned ? "Unpin" : "Pin to the top"];
    if (hovered?.kind === "fold") return [foldText(data, hovered.index)];
    if (hovered?.kind === "empty") return timeline.lanes.emptyOf(hovered.index).names;
    if (hovered?.kind === "split") return lane ? this.#splitLines(lane, place.x) : [SPLIT_LABEL];
    if (hovered?.kind === "curve") {
      const { label, unit, time_ns: times, value } = data.curves[hovered.index];
      if (!lane) return [label];
      const at = curveIndex(times, painter.timeAt(place.x) - painter.shiftOf(hovered.group));
      return at < 0 ? [label] : [label, amountText(value[at], unit)];
    }
    if (lane || hovered?.kind !== "row") return [];
    return [data.rowName(hovered.index)];
  }

  /**
   * The activity of a GPU at a place: the piece there, else the parts of that column of pixels, the largest first.
   * @param {Lane} lane
   * @param {number} x
   */
  #splitLines({ index: device, group }, x) {
    const { data, painter } = this.timeline;
    const { activity, categories } = data;
    const [shift, view] = [painter.shiftOf(group), painter.viewOf(group)];
    const [from, to] = [painter.timeAt(x - 0.5) - shift, painter.timeAt(x + 0.5) - shift];
    const account = activity.accountFor(view.from, view.to);
    const piece = account.at(device, painter.timeAt(x) - shift);
    if (piece && piece.to - piece.from >= to - from) {
      return [categoryText(categories[piece.category]), `${durationText(piece.to - piece.from)} at ${this.timeline.instant(group, piece.from)}`];
    }
    const { times, from: begin, to: end } = activity.during(device, [from, to]);
    const parts = [...times.entries()].filter(([, time]) => time > 0).sort(([, a], [, b]) => b - a);
    const lines = parts.map(([at, time]) => `${categoryText(categories[at])} ${shareText(time / (end - begin))}`);
    return lines.length ? [...lines, `of ${durationText(end - begin)}`] : [];
  }

  /**
   * @param {Point} point
   * @param {string[]} lines
   */
  #showTooltip({ x, y }, lines) {
    const { tooltip, timeline } = this;
    const { offsetLeft, offsetTop } = timeline.box;
    tooltip.replaceChildren(...lines.map((line) => newElement("div", {}, nameElement(line))));
    tooltip.hidden = false;
    const { width, height } = timeline.painter;
    const isLow = y > height / 2;
    const left = Math.max(Math.min(x + 12, width - tooltip.offsetWidth - 4), 4);
    tooltip.style.left = `${offsetLeft + left}px`;
    const top = isLow ? y - tooltip.offsetHeight - 10 : y + 18;
    tooltip.style.top = `${offsetTop + top}px`;
  }

  #hideTooltip() {
    this.tooltip.hidden = true;
  }
}
