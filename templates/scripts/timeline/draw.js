// Draws the timeline: the visible lanes, the selections on top of them, the row names, and the time axis.

import { EVENT_HEIGHT, TimelineCanvas } from "./canvas.js";
import { EventPainter } from "./events.js";
import { SplitPainter, splitPaints } from "./split.js";
import { EVENT_COLORS, amountText, countText, timeTicks } from "./text.js";

/**
 * @import { EventLayer, EventMatches, TimelineData } from "./data.js"
 * @import { TimeView, TimelineLanes } from "./lanes.js"
 * @import { Curve, Hit, Lane, Selected, Span, Tick } from "./types.js"
 */

const STRIP_HEIGHT = 14; // px, as all lengths here
const TICKS_HEIGHT = 22;
const TICK_DISTANCE = 96;
const LEAST_STEPS = 8; // a step can be up to 2.5 times as long as requested, so this gives at least three ticks
const MOST_ARROWS = 50;
export const SPLIT_LABEL = "Where the time went";

/**
 * What to draw; `matchesOf`: the search matches of a layer.
 * @typedef {{ view: TimeView, lanes: TimelineLanes, scrollTop: number, collapsed: Set<number>, unfolded: Set<number>, chosen: Lane | null, selected: Selected | null, hovered: Hit | null, span: Span | null, matchesOf: (layer: EventLayer) => EventMatches | null }} Scene
 * @typedef {{ text: string, paint: string, span: Span }} Strip
 */

export class TimelinePainter extends TimelineCanvas {
  /** @type {Scene} */
  scene;
  /** @type {import("./split.js").SplitPaints} */
  splitColors;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {TimelineData} data
   */
  constructor(canvas, data) {
    super(canvas, data.categories.map(([, series]) => series));
    this.data = data;
    this.events = new EventPainter(this, data);
    this.split = new SplitPainter(this, data.spent);
    /** @type {Strip[]} */
    this.strips = [];
    if (data.window) this.strips.push({ text: `Window: ${data.windowName}`, paint: "link", span: data.window });
    const [, exact] = data.layers;
    if (exact) this.strips.push({ text: "exact", paint: "green", span: [exact.from, exact.to] });
    this.axis = TICKS_HEIGHT + this.strips.length * STRIP_HEIGHT;
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
    this.setGutter([...labels, ...(this.data.spent.groups.length ? [SPLIT_LABEL] : [])]);
    this.events.resize();
    this.split.resize();
  }

  /** @param {Scene} scene */
  paint(scene) {
    this.begin(scene.view);
    this.scene = scene;
    const { scrollTop, lanes, view } = scene;
    const layer = this.data.layerFor(view.from, view.to);
    this.events.begin(view, layer, scene.matchesOf(layer));
    const ofCategories = this.eventPaints.slice(EVENT_COLORS, EVENT_COLORS + this.series.length);
    this.splitColors = splitPaints(ofCategories, this.events.pixel.bind(this.events));
    const seen = lanes.between(scrollTop, scrollTop + this.height - this.axis);
    const distance = Math.min(TICK_DISTANCE, this.plotWidth / LEAST_STEPS);
    const { ticks, baseText } = timeTicks(view, this.data.origin, distance / this.scale);
    this.within(this.gutter, this.axis, this.plotWidth, this.height, () => {
      this.#drawBackdrop(ticks);
      for (const lane of seen) this.#drawLane(lane, this.#topOf(lane));
      this.#drawMarkings();
    });
    this.within(0, this.axis, this.width, this.height, () => {
      this.fill(this.paints.rule, this.gutter - 1, this.axis, 1, this.height);
      for (const lane of seen) this.#drawGutter(lane, this.#topOf(lane));
    });
    this.#drawAxis(ticks, baseText);
  }

  /** @param {Lane} lane */
  #topOf(lane) {
    return this.axis + lane.top - this.scene.scrollTop;
  }

  /** @param {Tick[]} ticks */
  #drawBackdrop(ticks) {
    if (this.data.window) {
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
    else if (lane.kind === "curve") this.#drawCurve(this.data.curves[lane.index], y, lane.height);
    else if (lane.kind === "split") this.split.draw(lane.index, y + 2, this.splitColors);
    else if (lane.kind === "row") this.events.drawRow(lane.index, y + 2);
    if (this.scene.chosen === lane) {
      this.outline(this.paints.link, this.gutter + 0.5, y + 0.5, this.plotWidth - 1, lane.height - 1, 1);
    }
  }

  /**
   * @param {Curve} curve
   * @param {number} y
   * @param {number} height
   */
  #drawCurve(curve, y, height) {
    const { context } = this;
    const base = this.snap(y + height - 5);
    this.fill(this.paints.rule, this.gutter, base, this.plotWidth, 1);
    context.beginPath();
    this.#traceCurve(curve, base, (height - 12) / (curve.max > 0 ? curve.max : 1));
    context.lineWidth = 1.5;
    context.strokeStyle = this.paints.link;
    context.stroke();
  }

  /**
   * Each value holds until the next one; null values interrupt the line.
   * @param {Curve} curve
   * @param {number} base
   * @param {number} scale
   */
  #traceCurve({ time_ns: times, value: values }, base, scale) {
    let isOpen = false;
    const first = Math.max(curveIndex(times, this.view.from), 0);
    for (let at = first; at < times.length && times[at] <= this.view.to; at++) {
      const value = values[at];
      if (value === null) isOpen = false;
      else {
        const top = base - value * scale;
        if (isOpen) this.context.lineTo(this.x(times[at]), top);
        else this.context.moveTo(this.x(times[at]), top);
        this.context.lineTo(this.x(at + 1 < times.length ? times[at + 1] : this.data.span), top);
        isOpen = true;
      }
    }
  }

  // Draws on top of the events: the selected span, outlines, and arrows from a call to what it launched.
  #drawMarkings() {
    const { span, hovered, selected } = this.scene;
    if (span) this.#drawSpan(this.x(span[0]), this.x(span[1]));
    if (hovered) this.#outlineEvent(hovered.layer, hovered.event, this.paints.muted, 1);
    if (!selected) return;
    for (const event of selected.partners.slice(0, MOST_ARROWS)) {
      this.#outlineEvent(selected.layer, event, this.paints.text, 1);
      const isCall = selected.layer.launch[selected.event] !== event;
      this.#drawArrow(selected.layer, isCall ? selected.event : event, isCall ? event : selected.event);
    }
    this.#outlineEvent(selected.layer, selected.event, this.paints.text, 2);
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
   * The top of an event in px; null if its group is collapsed.
   * @param {EventLayer} layer
   * @param {number} event
   */
  #topOfEvent(layer, event) {
    const lane = this.scene.lanes.ofRow[layer.rowOf(event)];
    return lane < 0 ? null : this.#topOf(this.scene.lanes.all[lane]) + 2;
  }

  /**
   * @param {EventLayer} layer
   * @param {number} event
   * @param {string} style
   * @param {number} thickness
   */
  #outlineEvent(layer, event, style, thickness) {
    const top = this.#topOfEvent(layer, event);
    const [left, right] = [this.x(layer.start[event]), this.x(layer.end[event])];
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
    this.#traceArrow([this.x(layer.start[call]), begin], [this.x(layer.start[work]), end], isDown ? -6 : 6);
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
    if (lane.kind === "group") {
      this.fill(this.paints.surface, 0, y, this.gutter, lane.height);
      this.#drawTriangle(9, middle, this.scene.collapsed.has(lane.index));
      this.#drawName(this.data.groups[lane.index].label, 20, middle, this.width - 30, 600);
    } else if (lane.kind === "row") {
      this.#drawName(this.data.rows[lane.index].label, 20, middle, room, this.scene.chosen === lane ? 600 : 400);
    } else if (lane.kind === "split") {
      this.#drawName(SPLIT_LABEL, 20, middle, room, this.scene.chosen === lane ? 600 : 400);
    } else if (lane.kind === "zeros") {
      const zeros = this.scene.lanes.zerosOf(lane.index);
      this.#drawTriangle(29, middle, !this.scene.unfolded.has(lane.index));
      this.#drawName(`${countText(zeros.length, "counter")} always 0`, 40, middle, this.width - 50, 400, this.paints.muted);
    } else {
      const curve = this.data.curves[lane.index];
      this.#drawName(curve.label, 20, y + 12, room, 400);
      this.#drawName(`max ${amountText(curve.max, curve.unit)}`, 20, y + 26, room, 400, this.paints.muted);
    }
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
    const kept = Math.max(Math.floor((text.length * room) / width) - 1, 2);
    const tail = Math.ceil(kept * 0.6); // keep more of the end, because row names differ there
    const cut = () => `${text.slice(0, kept - tail)}…${text.slice(-tail)}`;
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
   */
  #drawAxis(ticks, baseText) {
    const { context } = this;
    this.fill(this.paints.page, 0, 0, this.width, this.axis);
    this.strips.forEach((strip, number) => this.#drawStrip(strip, number * STRIP_HEIGHT));
    const middle = this.axis - TICKS_HEIGHT / 2;
    this.#drawName(baseText, 20, middle, this.gutter - 24, 400, this.paints.muted);
    this.font(11);
    context.fillStyle = this.paints.muted;
    this.within(this.gutter, 0, this.plotWidth, this.axis, () => this.#writeTicks(ticks, middle));
    for (const [time] of ticks) this.fill(this.paints.muted, this.x(time), this.axis - 5, 1, 5);
    this.fill(this.paints.rule, 0, this.axis - 1, this.width, 1);
  }

  /**
   * Writes tick labels to the right of every n-th tick, so that they do not touch; the last one can go to the left.
   * @param {Tick[]} ticks
   * @param {number} y
   */
  #writeTicks(ticks, y) {
    const widths = ticks.map(([, text]) => this.context.measureText(text).width);
    const step = ticks.length > 1 ? ticks[1][0] - ticks[0][0] : Infinity;
    const stride = Math.ceil((Math.max(...widths) + 8) / (step * this.scale)) || 1;
    const first = ticks.length < 3 * stride ? 0 : Math.round((ticks[0][0] - this.data.origin) / step);
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
  #drawStrip({ text, paint, span }, y) {
    const left = Math.max(this.x(span[0]), this.gutter);
    const right = Math.min(this.x(span[1]), this.width);
    if (right < left) return;
    this.font(10);
    const room = right - left - 6;
    const isWritten = this.context.measureText(text).width <= room;
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
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
