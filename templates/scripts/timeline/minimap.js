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
// a start-up longer than this share of the capture gets a smaller one, so that the rest can be seen
const LONG_START = 0.5;
const FOLDED_START = 0.12;
const MARGIN = 0.01;
const SEAM = 3;

/**
 * A drag of the whole part in view, or of one end of it; `offset`: from the pointer to it, in ns.
 * @typedef {{ target: "view" | "from" | "to", offset: number }} Drag
 *
 * A time span and its place, as shares of the width.
 * @typedef {{ from: number, to: number, left: number, right: number }} Piece
 */

/**
 * The pieces of an overview from `lowest` to `highest`, each with one scale: if the start-up, before the window, is long,
 * it is one, then the rest up to the end of the capture, then the margin.
 * @param {{ lowest: number, highest: number }} limits
 * @param {number} end
 * @param {number | undefined} begin of the window
 * @returns {Piece[]}
 */
export function overviewPieces({ lowest, highest }, end, begin) {
  const isLong = begin !== undefined && begin < end && end < highest && begin - lowest > LONG_START * (highest - lowest);
  if (!isLong) return [{ from: lowest, to: highest, left: 0, right: 1 }];
  return [
    { from: lowest, to: begin, left: 0, right: FOLDED_START },
    { from: begin, to: end, left: FOLDED_START, right: 1 - MARGIN },
    { from: end, to: highest, left: 1 - MARGIN, right: 1 },
  ];
}

/**
 * The place of a time, as a share of the width.
 * @param {Piece[]} pieces
 * @param {number} time
 */
export function placeOf(pieces, time) {
  const { from, to, left, right } = pieces.findLast((piece) => time >= piece.from) ?? pieces[0];
  return left + ((time - from) / (to - from)) * (right - left);
}

/**
 * The time at a place.
 * @param {Piece[]} pieces
 * @param {number} place
 */
export function timeOf(pieces, place) {
  const { from, to, left, right } = pieces.findLast((piece) => place >= piece.left) ?? pieces[0];
  return from + ((place - left) / (right - left)) * (to - from);
}

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
    this.isFolded = true; // a long start-up
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

  // The overview has the limits of the view.
  get #pieces() {
    const { view, data } = this.timeline;
    return overviewPieces(view, data.span, this.isFolded ? data.window?.[0] : undefined);
  }

  /** @param {number} time */
  #x(time) {
    const { gutter, plotWidth } = this.timeline.painter;
    return gutter + placeOf(this.#pieces, time) * plotWidth;
  }

  /** @param {MouseEvent} event */
  #time(event) {
    const { gutter, plotWidth } = this.timeline.painter;
    return timeOf(this.#pieces, (event.clientX - this.canvas.getBoundingClientRect().left - gutter) / plotWidth);
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
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    if (x < this.timeline.painter.gutter) {
      this.isFolded = !this.isFolded; // where that changes anything
      this.timeline.draw();
      return;
    }
    this.canvas.setPointerCapture(event.pointerId);
    const time = this.#time(event);
    const target = this.#targetAt(x);
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
    const pieces = this.#pieces;
    const state = [width, gutter, ratio, pieces.length, paints.page, ...eventPaints, ...this.timeline.shifts].join();
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
    // the seam between two scales
    for (const { left } of pieces.slice(1, 2)) {
      context.fillStyle = paints.page;
      context.fillRect(gutter + left * plotWidth - SEAM, 0, SEAM, height);
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
    context.fillText(pieces.length > 1 ? "Overview, start-up folded" : "Overview", 20, height / 2, gutter - 24);
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
    const pixel = painter.events.pixel.bind(painter.events);
    const colors = splitPaints(eventPaints.slice(EVENT_COLORS), data.categories, pixel);
    const groups = this.#kernelGroups();
    for (const { left, right, ...span } of this.#pieces) {
      const [first, end] = [Math.round(left * width), Math.max(Math.round(right * width), Math.round(left * width) + 1)];
      const imageData = this.pictureContext.createImageData(end - first, height - gap);
      const image = { pixels: new Uint32Array(imageData.data.buffer), width: end - first, height: height - gap };
      for (let strip = 0; strip < this.strips; strip++) {
        if (data.activity.groups.length) {
          const shift = this.timeline.shifts[data.activity.groups[strip]] || 0; // NaN: not at all
          paintSplit(image, data.activity, strip, { from: span.from - shift, to: span.to - shift }, colors);
        } else this.#paintBusy(image, span, groups[strip], pixel(paints["event-dense"], 1));
        this.pictureContext.putImageData(imageData, first, strip * height);
      }
    }
  }

  /**
   * Without known causes: in each column, the busy share of the busiest row of a group, else of all rows.
   * @param {{ pixels: Uint32Array, width: number, height: number }} image
   * @param {{ from: number, to: number }} span
   * @param {number | undefined} group
   * @param {number} paint
   */
  #paintBusy({ pixels, width, height }, { from, to }, group, paint) {
    const { rows, layers } = this.timeline.data;
    const [layer] = layers;
    const step = (to - from) / width;
    const kernelRows = [...rows.keys()].filter((row) => group === undefined || (rows[row].group === group && rows[row].kind === "kernel"));
    pixels.fill(0);
    const most = new Float64Array(width);
    for (const row of kernelRows) {
      let before = busyUntil(layer, row, from);
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
