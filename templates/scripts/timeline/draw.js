// Draws the timeline: the visible lanes, the selections on top of them, the row names, and the time axis.

import { firstAbove } from "../searching.js";
import { EVENT_HEIGHT, TimelineCanvas } from "./canvas.js";
import { EventPainter } from "./events.js";
import { laneKey } from "./lanes.js";
import { SplitPainter, splitPaints } from "./split.js";
import { EVENT_COLORS, SPLIT_LABEL, amountText, durationText, timeTicks } from "./text.js";

/**
 * @import { EventLayer, EventMatches, TimelineData } from "./data.js"
 * @import { TimeView, TimelineLanes } from "./lanes.js"
 * @import { Alignment } from "./ranks.js"
 * @import { Measurement } from "./measure.js"
 * @import { Curve, Hit, Lane, Note, Point, Selected, Span, Tick } from "./types.js"
 */

const STRIP_HEIGHT = 14; // px, as all lengths here
const TICKS_HEIGHT = 22;
const NOTE_HEIGHT = 18;
const LEAST_TAG = 8;
const MOST_TAG = 260;
const TICK_DISTANCE = 96;
const LEAST_STEPS = 8; // a step can be up to 2.5 times as long as requested, so this gives at least three ticks
const MOST_ARROWS = 50;
const PIN_X = 9;
export const PIN_ROOM = 18; // from the left edge: a click there pins a row
const LEAST_GROUP_NAME = 40;

/**
 * The state to draw; `matchesOf`: the search matches of a layer.
 * @typedef {{ view: TimeView, lanes: TimelineLanes, scrollTop: number, stuck: number, isCollapsed: (group: number) => boolean, unfolded: Set<number>, spread: Set<number>, shifts: Float64Array, alignment: Alignment | null, chosen: Lane | null, pointed: Lane | null, selected: Selected | null, measured: Measurement | null, hovered: Hit | null, span: Span | null, matchesOf: (layer: EventLayer) => EventMatches | null }} Scene
 * @typedef {{ text: string, paint: string, span: Span, isAlways?: boolean }} Strip
 */

export class TimelinePainter extends TimelineCanvas {
  /** @type {Scene} */
  scene;
  /** @type {number[]} of each category, as 32-bit pixels */
  splitColors;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {TimelineData} data
   */
  constructor(canvas, data) {
    super(canvas, data.categories.map(([, series]) => series));
    this.data = data;
    this.events = new EventPainter(this, data);
    this.split = new SplitPainter(this, data.activity);
    /** @type {Strip[]} */
    this.strips = [];
    if (data.window) this.strips.push({ text: `Window: ${data.windowName}`, paint: "link", span: data.window });
    const [, exact] = data.layers;
    if (exact) this.strips.push({ text: "exact", paint: "green", span: [exact.from, exact.to] });
    const strips = Math.max(this.strips.length, data.ranks ? 1 : 0);
    this.scales = TICKS_HEIGHT + strips * STRIP_HEIGHT; // the height of strips and ticks
    /** @type {Note[]} */
    this.notes = [];
    /** @type {{ note: Note, left: number, right: number }[]} */
    this.tags = []; // of the notes, as drawn
  }

  // The height of everything above the lanes.
  get axis() {
    return this.scales + this.#noteHeight;
  }

  get #noteHeight() {
    return this.notes.length ? NOTE_HEIGHT : 0;
  }

  /**
   * The note whose tag is at a point.
   * @param {Point} point
   */
  noteAt({ x, y }) {
    return y < this.#noteHeight ? (this.tags.findLast(({ left, right }) => x >= left && x <= right)?.note ?? null) : null;
  }

  /**
   * @param {number} width
   * @param {number} height
   * @param {number} ratio
   * @override
   */
  resize(width, height, ratio) {
    super.resize(width, height, ratio);
    const labels = new Set([...this.data.rows.slice(0, 500), ...this.data.curves].map(({ label }) => label));
    this.setGutter([...labels, ...(this.data.activity.groups.length ? [SPLIT_LABEL] : [])]);
    this.events.resize();
    this.split.resize();
  }

  /** @param {Scene} scene */
  paint(scene) {
    this.begin(scene.view);
    this.scene = scene;
    const { stuck, view } = scene;
    const layer = this.data.layerFor(view.from, view.to);
    this.events.begin(view, layer, scene.matchesOf(layer));
    this.splitColors = splitPaints(this.eventPaints.slice(EVENT_COLORS), this.data.categories, this.events.pixel.bind(this.events));
    const below = this.axis + stuck; // pinned lanes
    const isStuck = (/** @type {Lane} */ { isPinned }) => isPinned && stuck > 0;
    const visible = this.visible(scene);
    /** @type {[Lane[], number, number][]} */
    const areas = [
      [visible.filter((lane) => !isStuck(lane)), below, this.height],
      [visible.filter(isStuck), this.axis, stuck],
    ];
    const distance = Math.min(TICK_DISTANCE, this.plotWidth / LEAST_STEPS);
    const aligned = this.#aligned();
    const { ticks, baseText } = timeTicks(view, aligned ? aligned.span[0] : this.data.origin, distance / this.scale);
    this.within(this.gutter, this.axis, this.plotWidth, this.height, () => {
      this.#drawBackdrop(ticks);
      for (const [lanes, top, height] of areas) {
        this.within(this.gutter, top, this.plotWidth, height, () => {
          for (const lane of lanes) this.#drawLane(lane, this.#topOf(lane));
        });
      }
      this.#drawMarkings();
    });
    this.fill(this.paints.rule, this.gutter - 1, this.axis, 1, this.height);
    for (const [lanes, top, height] of areas) {
      this.within(0, top, this.width, height, () => {
        for (const lane of lanes) this.#drawGutter(lane, this.#topOf(lane));
      });
    }
    if (stuck) this.fill(this.paints.muted, 0, below - 1, this.width, 1);
    const since = aligned && [`since ${aligned.name}`, baseText].filter(Boolean).join(": ");
    this.#drawAxis(ticks, since ?? baseText, aligned);
  }

  /**
   * The lanes in view: pinned ones, unless they scroll, and those that the place of the scroll bar shows.
   * @param {{ lanes: TimelineLanes, scrollTop: number, stuck: number }} scene
   */
  visible({ lanes, scrollTop, stuck }) {
    const pinned = stuck ? lanes.all.filter(({ isPinned }) => isPinned) : [];
    const others = lanes.between(scrollTop + stuck, scrollTop + this.height - this.axis);
    return [...pinned, ...others.filter((lane) => !pinned.includes(lane))];
  }

  // The name of the aligned step, and its span on the rank whose times are not shifted; null if there is none.
  #aligned() {
    const { ranks } = this.data;
    const { alignment } = this.scene;
    const span = ranks && alignment && ranks.span(alignment.rank, alignment.step);
    return span && { name: ranks.stepName(alignment.step), span, step: alignment.step };
  }

  /**
   * The shift of the times of a group.
   * @param {number} group
   */
  shiftOf(group) {
    return this.scene.shifts[group] || 0; // NaN: not at all
  }

  /**
   * The times of a group that are in view.
   * @param {number} group
   */
  viewOf(group) {
    const { view } = this.scene;
    const shift = this.shiftOf(group);
    return { from: view.from - shift, to: view.to - shift, width: view.width };
  }

  /** @param {Lane} lane */
  #topOf(lane) {
    const { stuck, scrollTop } = this.scene;
    return this.axis + lane.top - (lane.isPinned && stuck ? 0 : scrollTop);
  }

  /** @param {Tick[]} ticks */
  #drawBackdrop(ticks) {
    if (this.data.window && !this.scene.alignment) {
      const [left, right] = this.data.window.map((time) => this.x(time));
      this.fill(this.paints["info-surface"], left, this.axis, right - left, this.height);
    }
    for (const [time] of ticks) this.fill(this.paints.rule, this.x(time), this.axis, 1, this.height);
  }

  /**
   * @param {Lane} lane
   * @param {number} y
   */
  #drawLane(lane, y) {
    if (lane.kind === "group") this.fill(this.paints.surface, this.gutter, y, this.plotWidth, lane.height);
    else if (lane.kind === "fold") this.fill(this.paints.page, this.gutter, y, this.plotWidth, lane.height);
    else if (lane.kind === "curve") this.#drawCurve(this.data.curves[lane.index], y, lane.height, this.shiftOf(lane.group));
    else if (lane.kind === "split") this.split.draw(lane.index, y + 2, this.splitColors, this.viewOf(lane.group));
    else if (lane.kind === "row") this.#drawRow(lane, y + 2);
    if (this.scene.alignment && lane.kind !== "fold") this.#drawStep(lane, y);
    if (this.scene.chosen === lane) {
      this.outline(this.paints.link, this.gutter + 0.5, y + 0.5, this.plotWidth - 1, lane.height - 1, 1);
    }
  }

  /**
   * @param {Lane} lane
   * @param {number} y
   */
  #drawRow({ index, group }, y) {
    const view = this.viewOf(group);
    const layer = this.data.layerFor(view.from, view.to);
    this.events.use(view, layer, this.scene.matchesOf(layer));
    this.events.drawRow(index, y);
  }

  /**
   * Marks the beginning and the end of the aligned step of a rank; lanes without it are faded.
   * @param {Lane} lane
   * @param {number} y
   */
  #drawStep({ group, height }, y) {
    const { ranks } = this.data;
    const aligned = this.#aligned();
    const shift = this.scene.shifts[group];
    const span = ranks && aligned && !Number.isNaN(shift) ? ranks.span(ranks.of[group], aligned.step) : null;
    if (!span) {
      this.context.globalAlpha = 0.6;
      this.fill(this.paints.page, this.gutter, y, this.plotWidth, height);
      this.context.globalAlpha = 1;
      return;
    }
    for (const time of span) this.fill(this.paints.orange, this.x(time + shift) - 1, y, 2, height);
  }

  /**
   * @param {Curve} curve
   * @param {number} y
   * @param {number} height
   * @param {number} shift
   */
  #drawCurve(curve, y, height, shift) {
    const { context } = this;
    const base = this.snap(y + height - 5);
    this.fill(this.paints.rule, this.gutter, base, this.plotWidth, 1);
    context.beginPath();
    this.#traceCurve(curve, base, (height - 12) / (curve.max > 0 ? curve.max : 1), shift);
    context.lineWidth = 1.5;
    context.strokeStyle = this.paints.link;
    context.stroke();
  }

  /**
   * Each value holds until the next one; null values interrupt the line.
   * @param {Curve} curve
   * @param {number} base
   * @param {number} scale
   * @param {number} shift
   */
  #traceCurve({ time_ns: times, value: values }, base, scale, shift) {
    let isOpen = false;
    const first = Math.max(curveIndex(times, this.view.from - shift), 0);
    for (let at = first; at < times.length && times[at] <= this.view.to - shift; at++) {
      const value = values[at];
      if (value === null) isOpen = false;
      else {
        const top = base - value * scale;
        if (isOpen) this.context.lineTo(this.x(times[at] + shift), top);
        else this.context.moveTo(this.x(times[at] + shift), top);
        this.context.lineTo(this.x((at + 1 < times.length ? times[at + 1] : this.data.span) + shift), top);
        isOpen = true;
      }
    }
  }

  // Draws on top of the events: the selected span, outlines, and arrows from a call to the work that it launched.
  #drawMarkings() {
    const { span, hovered, selected } = this.scene;
    if (!this.scene.alignment) this.#drawNotes();
    if (span) this.#drawSpan(this.x(span[0]), this.x(span[1]));
    if (hovered) {
      if (hovered.layer !== selected?.layer || !selected.together.includes(hovered.event)) {
        this.#drawTogether(hovered.layer, hovered.layer.together(hovered.event), false);
      }
      this.#outlineEvent(hovered.layer, hovered.event, this.paints.muted, 1);
    }
    if (!selected) return;
    this.#drawTogether(selected.layer, selected.together, true);
    for (const event of selected.partners.slice(0, MOST_ARROWS)) {
      this.#outlineEvent(selected.layer, event, this.paints.text, 1);
      const isCall = selected.layer.launch[selected.event] !== event;
      this.#drawArrow(selected.layer, isCall ? selected.event : event, isCall ? event : selected.event);
    }
    this.#outlineEvent(selected.layer, selected.event, this.paints.text, 2);
    if (this.scene.measured) this.#drawMeasure(this.scene.measured);
  }

  /**
   * Draws a distance as in a technical drawing: a line at each edge, a line with arrows between them, and the length.
   * @param {Measurement} measured
   */
  #drawMeasure({ first, second, drawn }) {
    const { context } = this;
    const lanes = [first.row, second.row].map((row) => this.scene.lanes.forRow(row));
    if (!lanes[0] || !lanes[1]) return;
    const [from, to] = lanes.map((lane) => lane && this.#topOf(lane));
    const [left, right] = drawn.map((time) => this.x(time) + 0.5);
    const middle = this.snap((Number(from) + Number(to) + lanes[1].height) / 2) + 0.5;
    const [top, bottom] = [Math.min(Number(from), Number(to)) - 1, Math.max(Number(from) + lanes[0].height, Number(to) + lanes[1].height) + 1];
    context.strokeStyle = context.fillStyle = this.paints.link;
    context.lineWidth = 1.5;
    context.beginPath();
    for (const x of [left, right]) {
      context.moveTo(x, top);
      context.lineTo(x, bottom);
    }
    context.moveTo(left, middle);
    context.lineTo(right, middle);
    context.stroke();
    this.font(11, 600);
    const text = durationText(drawn[1] - drawn[0]);
    const width = context.measureText(text).width + 12;
    const isInside = right - left > width + 16;
    if (right - left > 12) {
      this.#drawTip(left, middle, 6);
      this.#drawTip(right, middle, -6);
    }
    const inView = (Math.max(left, this.gutter) + Math.min(right, this.width) - width) / 2;
    const beside = right + 6 + width < this.width ? right + 6 : left - 6 - width;
    const x = isInside ? inView : beside;
    this.fill(this.paints.link, x, middle - 8, width, 16);
    context.fillStyle = this.paints.page;
    context.fillText(text, x + 6, middle + 0.5);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} length
   */
  #drawTip(x, y, length) {
    const { context } = this;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + length, y - 3.5);
    context.lineTo(x + length, y + 3.5);
    context.fill();
  }

  /**
   * @param {number} left
   * @param {number} right
   */
  #drawSpan(left, right) {
    this.context.globalAlpha = 0.14;
    this.fill(this.paints.link, left, this.axis, right - left, this.height);
    this.context.globalAlpha = 1;
    for (const x of [left, right - 1]) this.fill(this.paints.link, x, this.axis, 1, this.height);
  }

  /**
   * Connects the events of a collective: a line through their begins, from rank to rank, and one through their ends. The
   * last one to begin, for which the others wait, has a special dot.
   * @param {EventLayer} layer
   * @param {number[]} events
   * @param {boolean} isSelected
   */
  #drawTogether(layer, events, isSelected) {
    const points = events.flatMap((event) => {
      const row = layer.rowOf(event);
      const lane = this.scene.lanes.forRow(row);
      const shift = this.shiftOf(this.data.rows[row].group);
      if (!lane) return [];
      const [start, end] = [layer.start[event], layer.end[event]];
      return [{ event, start, left: this.x(start + shift), right: this.x(end + shift), y: this.#topOf(lane) + lane.height / 2 }];
    });
    if (points.length < 2) return;
    points.sort((a, b) => a.y - b.y);
    const latest = points.reduce((a, b) => (b.start > a.start ? b : a));
    const { context } = this;
    const trace = (/** @type {"left" | "right"} */ side) => {
      context.beginPath();
      points.forEach((point, at) => (at ? context.lineTo(point[side], point.y) : context.moveTo(point[side], point.y)));
      context.stroke();
    };
    context.lineJoin = "round";
    context.strokeStyle = isSelected ? this.paints.text : this.paints.muted;
    context.lineWidth = isSelected ? 2 : 1;
    trace("left");
    context.setLineDash([3, 3]);
    context.lineWidth = 1;
    trace("right");
    context.setLineDash([]);
    for (const point of points) {
      const isLast = point === latest && isSelected;
      context.fillStyle = isLast ? this.paints.orange : context.strokeStyle;
      context.strokeStyle = isSelected ? this.paints.text : this.paints.muted;
      context.beginPath();
      context.arc(point.left, point.y, isLast ? 5 : 3, 0, 2 * Math.PI);
      context.fill();
      if (isLast) context.stroke();
      if (isSelected) this.#outlineEvent(layer, point.event, this.paints.text, 1);
    }
  }

  /**
   * The top of an event in px; null if its row is not shown, or behind pinned ones.
   * @param {EventLayer} layer
   * @param {number} event
   */
  #topOfEvent(layer, event) {
    const { lanes, stuck } = this.scene;
    const lane = lanes.all[lanes.ofRow[layer.rowOf(event)]];
    const isHidden = !lane || (stuck > 0 && !lane.isPinned && this.#topOf(lane) < this.axis + stuck - lane.height / 2);
    return isHidden ? null : this.#topOf(lane) + 2;
  }

  /**
   * @param {EventLayer} layer
   * @param {number} event
   * @param {string} style
   * @param {number} thickness
   */
  #outlineEvent(layer, event, style, thickness) {
    const top = this.#topOfEvent(layer, event);
    const shift = this.shiftOf(this.data.rows[layer.rowOf(event)].group);
    const [left, right] = [this.x(layer.start[event] + shift), this.x(layer.end[event] + shift)];
    if (top === null || right < this.gutter || left > this.width) return;
    this.outline(style, left - 0.5, top - 0.5, Math.max(right - left, 2), EVENT_HEIGHT + 1, thickness);
  }

  /**
   * @param {EventLayer} layer
   * @param {number} call
   * @param {number} work
   */
  #drawArrow(layer, call, work) {
    const [callTop, workTop] = [this.#topOfEvent(layer, call), this.#topOfEvent(layer, work)];
    if (callTop === null || workTop === null) return;
    const isDown = workTop > callTop;
    const begin = isDown ? callTop + EVENT_HEIGHT : callTop;
    const end = isDown ? workTop : workTop + EVENT_HEIGHT;
    const x = (/** @type {number} */ event) =>
      this.x(layer.start[event] + this.shiftOf(this.data.rows[layer.rowOf(event)].group));
    this.#traceArrow([x(call), begin], [x(work), end], isDown ? -6 : 6);
  }

  /**
   * @param {Span} span
   * @param {Span} span
   * @param {number} tip
   */
  #traceArrow([x1, y1], [x2, y2], tip) {
    const { context } = this;
    const bend = (y2 - y1) / 2;
    context.strokeStyle = context.fillStyle = this.paints.text;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2 + tip);
    context.stroke();
    context.beginPath();
    context.moveTo(x2, y2);
    context.lineTo(x2 - 4, y2 + tip);
    context.lineTo(x2 + 4, y2 + tip);
    context.fill();
  }

  /**
   * @param {Lane} lane
   * @param {number} y
   */
  #drawGutter(lane, y) {
    const middle = y + lane.height / 2 + 0.5;
    const room = this.gutter - 24;
    if (laneKey(lane)) this.#drawPin(lane, lane.kind === "curve" ? y + 12 : middle);
    if (lane.kind === "group") {
      this.fill(this.paints.surface, 0, y, this.gutter, lane.height);
      this.#drawTriangle(9, middle, this.scene.isCollapsed(lane.index));
      this.#drawName(headingText(this.data, lane.index), 20, middle, this.width - 30, 600);
    } else if (lane.kind === "fold") {
      this.#drawTriangle(29, middle, !this.scene.spread.has(lane.index));
      this.#drawName(foldText(this.data, lane.index), 40, middle, this.width - 50, 400, this.paints.muted);
    } else if (lane.kind === "row") {
      this.#drawRowName(lane, this.data.rows[lane.index].label, middle);
    } else if (lane.kind === "split") {
      this.#drawRowName(lane, SPLIT_LABEL, middle);
    } else if (lane.kind === "empty") {
      const { counted } = this.scene.lanes.emptyOf(lane.index);
      this.#drawTriangle(29, middle, !this.scene.unfolded.has(lane.index));
      this.#drawName(counted, 40, middle, this.gutter - 44, 400, this.paints.muted);
    } else {
      const curve = this.data.curves[lane.index];
      this.#drawRowName(lane, curve.label, y + 12);
      this.#drawName(`max ${amountText(curve.max, curve.unit)}`, 20, y + 26, room, 400, this.paints.muted);
    }
  }

  /**
   * The name of a row; of a pinned one also the name of its group, as far as there is room.
   * @param {Lane} lane
   * @param {string} label
   * @param {number} y
   */
  #drawRowName(lane, label, y) {
    const room = this.gutter - 24;
    this.#drawName(label, 20, y, room, this.scene.chosen === lane ? 600 : 400);
    const left = this.context.measureText(label).width + 8;
    const group = this.data.groupName(lane.group).replace(/ \(.*\)$/, ""); // without the kind of GPU
    if (lane.isPinned && room - left > LEAST_GROUP_NAME) this.#drawName(group, 20 + left, y, room - left, 400, this.paints.muted);
  }

  /**
   * The pin of a lane: pinned, or offered where the pointer or the keyboard is.
   * @param {Lane} lane
   * @param {number} y
   */
  #drawPin(lane, y) {
    const { context, scene } = this;
    if (!lane.isPinned && scene.pointed !== lane && scene.chosen !== lane) return;
    context.fillStyle = context.strokeStyle = lane.isPinned ? this.paints.link : this.paints.muted;
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(PIN_X, y - 3, 3, 0, 2 * Math.PI);
    if (lane.isPinned) context.fill();
    else context.stroke();
    context.beginPath();
    context.moveTo(PIN_X, y);
    context.lineTo(PIN_X, y + 6);
    context.stroke();
  }

  /**
   * @param {string} text
   * @param {number} x
   * @param {number} y
   * @param {number} room
   * @param {number} weight
   * @param {string} [paint]
   */
  #drawName(text, x, y, room, weight, paint = this.paints.text) {
    const { context } = this;
    this.font(12, weight);
    context.fillStyle = paint;
    const width = context.measureText(text).width;
    const letters = Math.max(Math.floor((text.length * room) / width) - 1, 2);
    const tail = Math.ceil(letters * 0.6); // more of the end, because row names differ there
    const cut = () => `${text.slice(0, letters - tail)}…${text.slice(-tail)}`;
    context.fillText(width <= room ? text : cut(), x, y, room);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {boolean} isCollapsed
   */
  #drawTriangle(x, y, isCollapsed) {
    const { context } = this;
    context.fillStyle = this.paints.muted;
    context.beginPath();
    if (isCollapsed) {
      context.moveTo(x - 2, y - 4);
      context.lineTo(x + 3, y);
      context.lineTo(x - 2, y + 4);
    } else {
      context.moveTo(x - 4, y - 2);
      context.lineTo(x + 4, y - 2);
      context.lineTo(x, y + 3);
    }
    context.fill();
  }

  /**
   * @param {Tick[]} ticks
   * @param {string} baseText
   * @param {{ name: string, span: Span } | null} aligned
   */
  #drawAxis(ticks, baseText, aligned) {
    const { context } = this;
    this.fill(this.paints.page, 0, 0, this.width, this.axis);
    const text = aligned && `Aligned: each rank since its ${aligned.name}`;
    const strips = text ? [{ text, paint: "orange", span: aligned.span, isAlways: true }] : this.strips;
    strips.forEach((strip, number) => this.#drawStrip(strip, this.#noteHeight + number * STRIP_HEIGHT));
    this.tags = aligned ? [] : this.#placeTags();
    this.within(this.gutter, 0, this.plotWidth, this.axis, () => this.tags.forEach((tag) => this.#drawTag(tag)));
    const middle = this.axis - TICKS_HEIGHT / 2;
    this.#drawName(baseText, 20, middle, this.gutter - 24, 400, this.paints.muted);
    this.font(11);
    context.fillStyle = this.paints.muted;
    const origin = aligned ? aligned.span[0] : this.data.origin;
    this.within(this.gutter, 0, this.plotWidth, this.axis, () => this.#writeTicks(ticks, middle, origin));
    for (const [time] of ticks) this.fill(this.paints.muted, this.x(time), this.axis - 5, 1, 5);
    this.fill(this.paints.rule, 0, this.axis - 1, this.width, 1);
  }

  // The tags of notes in view, from left to right: as wide as the text, or up to the next one.
  #placeTags() {
    this.font(11);
    const { from, to } = this.view;
    const seen = this.notes.filter((note) => note.from <= to && note.to >= from);
    const lefts = seen.map((note) => Math.max(this.x(note.from), this.gutter));
    return seen.map((note, at) => {
      const width = Math.min(this.context.measureText(note.text).width + 10, MOST_TAG);
      const end = at + 1 < seen.length ? lefts[at + 1] - 2 : this.width;
      return { note, left: lefts[at], right: Math.max(Math.min(lefts[at] + width, end), lefts[at] + LEAST_TAG) };
    });
  }

  /** @param {{ note: Note, left: number, right: number }} tag */
  #drawTag({ note, left, right }) {
    const { context, paints } = this;
    this.fill(paints.text, left, 1, right - left, NOTE_HEIGHT - 3);
    context.fillStyle = paints.page;
    if (right - left > 2 * LEAST_TAG) this.text(note.text, left + 5, (NOTE_HEIGHT - 1) / 2 + 0.5, right - left - 8);
    const [first, last] = [note.from, note.to].map((time) => this.x(time));
    if (last > first + 1) this.fill(paints.text, first, NOTE_HEIGHT - 2, last - first, 2);
  }

  // A line through the rows at each end of a note.
  #drawNotes() {
    const { context } = this;
    context.globalAlpha = 0.55;
    for (const { from, to } of this.notes) {
      for (const time of from === to ? [from] : [from, to]) {
        if (time >= this.view.from && time <= this.view.to) this.fill(this.paints.text, this.x(time), this.axis, 1, this.height);
      }
    }
    context.globalAlpha = 1;
  }

  /**
   * Writes tick labels to the right of every n-th tick, so that they do not touch; the last one can go to the left.
   * @param {Tick[]} ticks
   * @param {number} y
   * @param {number} origin
   */
  #writeTicks(ticks, y, origin) {
    const widths = ticks.map(([, text]) => this.context.measureText(text).width);
    const step = ticks.length > 1 ? ticks[1][0] - ticks[0][0] : Infinity;
    const stride = Math.ceil((Math.max(...widths) + 8) / (step * this.scale)) || 1;
    const first = ticks.length < 3 * stride ? 0 : Math.round((ticks[0][0] - origin) / step);
    let free = this.gutter;
    ticks.forEach(([time, text], place) => {
      const right = this.x(time) + 4;
      const x = right + widths[place] <= this.width ? right : right - 8 - widths[place];
      if ((first + place) % stride || x < free) return;
      this.context.fillText(text, x, y);
      free = x + widths[place] + 4;
    });
  }

  /**
   * @param {Strip} strip
   * @param {number} y
   */
  #drawStrip({ text, paint, span, isAlways = false }, y) {
    const left = Math.max(this.x(span[0]), this.gutter);
    const right = Math.min(this.x(span[1]), this.width);
    this.font(10);
    if (isAlways) {
      this.context.fillStyle = this.paints[paint];
      this.context.fillText(text, this.gutter + 3, y + 5.5, this.plotWidth - 6);
    }
    if (right < left) return;
    const room = right - left - 6;
    const isWritten = !isAlways && this.context.measureText(text).width <= room;
    this.fill(this.paints[paint], left, y + STRIP_HEIGHT - 3, Math.max(right - left, 2), 2);
    this.context.fillStyle = this.paints[paint];
    if (isWritten) this.context.fillText(text, left + 3, y + 5.5);
  }
}

/**
 * The last point of a curve at or before `time`; -1 before the first.
 * @param {number[]} times
 * @param {number} time
 */
export function curveIndex(times, time) {
  return firstAbove(times, time) - 1;
}

/**
 * The heading of a group: of a rank, with remarks.
 * @param {TimelineData} data
 * @param {number} group
 */
export function headingText(data, group) {
  const { ranks } = data;
  const place = ranks ? ranks.of[group] : -1;
  if (!ranks || place < 0) return data.groupName(group);
  const absent = ranks.absent(place);
  return [
    data.groupName(group),
    ...(place === ranks.awaited ? ["the others wait for it"] : []),
    ...(absent && ranks.list[place].groups[0] === group ? [`like ${absent} more that ${absent > 1 ? "are" : "is"} not drawn`] : []),
  ].join(", ");
}

/**
 * The heading of folded ranks.
 * @param {TimelineData} data
 * @param {number} place
 */
export function foldText({ ranks }, place) {
  return ranks ? `Like ${ranks.named([ranks.list[place]])}: ${ranks.named(ranks.like(place))}` : "";
}
