// The overview above the timeline: the whole capture, and the part in view, which can be dragged.

import { context2d, part } from "../dom.js";
import { EVENT_COLORS } from "./text.js";
import { paintSplit, splitPaints } from "./split.js";

/**
 * @import { EventLayer } from "./data.js"
 * @import { Timeline } from "./timeline.js"
 */

const HEIGHT = 28; // px, as all lengths here
const LEAST_STRIP = 5;
const LEAST_VIEW = 8;
const EDGE = 5;

/**
 * A drag of the whole part in view, or of one end of it; `offset`: from the pointer to it, in ns.
 * @typedef {{ target: "view" | "from" | "to", offset: number }} Drag
 */

export class TimelineMinimap {
  /** @type {string} */
  drawn;

  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.canvas = part(timeline.section, ".timeline-map", HTMLCanvasElement);
    this.context = context2d(this.canvas, { alpha: false });
    this.picture = document.createElement("canvas");
    this.pictureContext = context2d(this.picture);
    this.strips = Math.max(timeline.data.activity.groups.length || this.#kernelGroups().length, 1);
    this.height = Math.max(HEIGHT, this.strips * LEAST_STRIP);
    this.drawn = "";
    /** @type {Drag | null} */
    this.drag = null;
    this.canvas.addEventListener("pointerdown", (event) => this.#down(event));
    this.canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, () => (this.drag = null));
  }

  #kernelGroups() {
    const { rows } = this.timeline.data;
    return [...new Set(rows.filter(({ kind }) => kind === "kernel").map(({ group }) => group))];
  }

  // The limits of the view, which are also those of the overview.
  get #limits() {
    const { lowest, highest } = this.timeline.view;
    return { from: lowest, to: highest };
  }

  /**
   * The same limits in the times of a group.
   * @param {number} group
   */
  #limitsOf(group) {
    const { from, to } = this.#limits;
    const shift = this.timeline.shifts[group] || 0; // NaN: not at all
    return { from: from - shift, to: to - shift };
  }

  /** @param {number} time */
  #x(time) {
    const { from, to } = this.#limits;
    const { gutter, plotWidth } = this.timeline.painter;
    return gutter + ((time - from) / (to - from)) * plotWidth;
  }

  /** @param {MouseEvent} event */
  #time(event) {
    const { from, to } = this.#limits;
    const { gutter, plotWidth } = this.timeline.painter;
    return from + ((event.clientX - this.canvas.getBoundingClientRect().left - gutter) / plotWidth) * (to - from);
  }

  /** The left and right end of the part in view, wide enough to be seen and dragged. */
  get #handle() {
    const { view } = this.timeline;
    const [left, right] = [this.#x(view.from), this.#x(view.to)];
    const room = Math.max(LEAST_VIEW - (right - left), 0) / 2;
    return [left - room, right + room];
  }

  /**
   * The target of a drag from `x`; null outside of the part in view.
   * @param {number} x
   * @returns {Drag["target"] | null}
   */
  #targetAt(x) {
    const [left, right] = this.#handle;
    const isWide = right - left > 4 * EDGE;
    if (isWide && Math.abs(x - left) <= EDGE) return "from";
    if (isWide && Math.abs(x - right) <= EDGE) return "to";
    return x >= left && x <= right ? "view" : null;
  }

  /** @param {PointerEvent} event */
  #down(event) {
    const { view } = this.timeline;
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    const time = this.#time(event);
    const target = this.#targetAt(event.clientX - this.canvas.getBoundingClientRect().left);
    if (!target) view.center(time);
    this.drag = { target: target ?? "view", offset: view[target === "to" ? "to" : "from"] - time };
    this.timeline.draw();
  }

  /** @param {PointerEvent} event */
  #move(event) {
    const { view } = this.timeline;
    if (!this.drag) {
      const target = this.#targetAt(event.clientX - this.canvas.getBoundingClientRect().left);
      this.canvas.classList.toggle("is-edge", target === "from" || target === "to");
      return;
    }
    const time = this.#time(event) + this.drag.offset;
    if (this.drag.target === "view") view.pan(time - view.from);
    else if (this.drag.target === "from") view.set(Math.min(time, view.to), view.to);
    else view.set(view.from, Math.max(time, view.from));
    this.timeline.draw();
  }

  // Draws the overview; its picture is redrawn only if the size or the colors have changed.
  draw() {
    const { painter, data, view } = this.timeline;
    const { width, ratio, gutter, plotWidth, paints, eventPaints } = painter;
    const { context, canvas, height } = this;
    const state = [width, gutter, ratio, paints.page, ...eventPaints, ...this.timeline.shifts].join();
    if (state !== this.drawn) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
      this.#makePicture();
      this.drawn = state;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = paints.page;
    context.fillRect(0, 0, width, height);
    context.drawImage(this.picture, gutter, 0, plotWidth, height);
    if (data.window && !this.timeline.alignment) {
      const [left, right] = data.window.map((time) => this.#x(time));
      context.fillStyle = paints.link;
      context.fillRect(left, height - 2, Math.max(right - left, 1), 2);
    }
    const [left, right] = this.#handle;
    context.globalAlpha = 0.72;
    context.fillStyle = paints.page;
    context.fillRect(gutter, 0, left - gutter, height);
    context.fillRect(right, 0, width - right, height);
    context.globalAlpha = 1;
    context.strokeStyle = paints.text;
    context.lineWidth = 1.5;
    context.strokeRect(left + 0.75, 0.75, right - left - 1.5, height - 1.5);
    context.font = `400 12px ${painter.family}`;
    context.fillStyle = paints.muted;
    context.textBaseline = "middle";
    context.fillText("Overview", 20, height / 2, gutter - 24);
    this.canvas.dataset.view = [view.from, view.to].map(Math.round).join();
  }

  #makePicture() {
    const { painter, data } = this.timeline;
    const { ratio, eventPaints, paints } = painter;
    const width = (this.picture.width = Math.max(Math.round(painter.plotWidth * ratio), 1));
    const whole = (this.picture.height = Math.max(Math.round(this.height * ratio), 1));
    const height = Math.max(Math.floor(whole / this.strips), 1);
    // a line of the page between the strips of two GPUs
    const gap = this.strips > 1 ? Math.round(ratio) : 0;
    const image = this.pictureContext.createImageData(width, height - gap);
    const pixels = new Uint32Array(image.data.buffer);
    const pixel = painter.events.pixel.bind(painter.events);
    const colors = splitPaints(eventPaints.slice(EVENT_COLORS), data.categories, pixel);
    const groups = this.#kernelGroups();
    for (let strip = 0; strip < this.strips; strip++) {
      if (data.activity.groups.length) paintSplit({ pixels, width, height: height - gap }, data.activity, strip, this.#limitsOf(data.activity.groups[strip]), colors);
      else this.#paintBusy(pixels, width, height - gap, groups[strip], pixel(paints["event-dense"], 1));
      this.pictureContext.putImageData(image, 0, strip * height);
    }
  }

  /**
   * Without known causes: in each column, the busy share of the busiest row of a group, else of all rows.
   * @param {Uint32Array} pixels
   * @param {number} width
   * @param {number} height
   * @param {number | undefined} group
   * @param {number} paint
   */
  #paintBusy(pixels, width, height, group, paint) {
    const { rows, layers } = this.timeline.data;
    const [layer] = layers;
    const { from, to } = this.#limits;
    const step = (to - from) / width;
    const kernelRows = [...rows.keys()].filter((row) => group === undefined || (rows[row].group === group && rows[row].kind === "kernel"));
    pixels.fill(0);
    const most = new Float64Array(width);
    for (const row of kernelRows) {
      let before = 0;
      for (let column = 0; column < width; column++) {
        const until = busyUntil(layer, row, from + (column + 1) * step);
        most[column] = Math.max(most[column], until - before);
        before = until;
      }
    }
    most.forEach((busy, column) => {
      const top = busy > 0 ? Math.max(Math.round(Math.min(busy / step, 1) * height), 1) : 0;
      for (let y = height - top; y < height; y++) pixels[y * width + column] = paint;
    });
  }
}

/**
 * The total duration of the events of a row up to a time.
 * @param {EventLayer} layer
 * @param {number} row
 * @param {number} time
 */
function busyUntil(layer, row, time) {
  const at = layer.lastStartingBy(row, time);
  const before = layer.sum[layer.begin[row]];
  return at < layer.begin[row] ? 0 : layer.sum[at] - before + Math.min(time, layer.end[at]) - layer.start[at];
}
