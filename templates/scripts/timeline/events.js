// Draws the events of a row: as rectangles if there are enough pixels, else as the busy share of each pixel column.
// A row is painted into an image pixel by pixel, which takes 1 ms; thousands of canvas rectangles would take 20 ms.

import { context2d } from "../dom.js";
import { formatCount } from "../numbers.js";
import { EVENT_HEIGHT } from "./canvas.js";

/**
 * @import { TimelineCanvas } from "./canvas.js"
 * @import { EventLayer, EventMatches, TimelineData } from "./data.js"
 * @import { TimeView } from "./lanes.js"
 */

const LEAST_LABEL = 26; // px
const LEAST_GAPPED = 4; // px: wider events leave a gap of one pixel before the next
const MOST_LINES = 50_000; // marks have no busy time, and are painted one by one up to this limit
const FADED = 0.22;

export class EventPainter {
  /** @type {number} */
  width;
  /** @type {number} */
  height;
  /** @type {ImageData} */
  image;
  /** @type {Uint32Array} */
  pixels;
  /** @type {Uint32Array} */
  line;
  /** @type {{ from: number, to: number, width: number }} */
  view;
  /** @type {EventLayer} */
  layer;
  /** @type {EventMatches | null} */
  matches;
  /** @type {number} */
  scale;
  /** @type {number[]} */
  paints;
  /** @type {number[]} */
  fadedPaints;
  /** @type {number} */
  densePaint;
  /** @type {number} */
  matchPaint;
  /** @type {boolean} */
  isMark;

  /**
   * @param {TimelineCanvas} canvas
   * @param {TimelineData} data
   */
  constructor(canvas, data) {
    this.canvas = canvas;
    this.data = data;
    /** @type {[event: number, x: number, room: number, isBeside: boolean][]} */
    this.texts = [];
    this.picture = document.createElement("canvas");
    this.pictureContext = context2d(this.picture);
  }

  // Sets up the image of one row, in device pixels.
  resize() {
    const { plotWidth, ratio } = this.canvas;
    this.width = this.picture.width = Math.max(Math.round(plotWidth * ratio), 1);
    this.height = this.picture.height = Math.max(Math.round(EVENT_HEIGHT * ratio), 1);
    this.image = this.pictureContext.createImageData(this.width, this.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.line = new Uint32Array(this.width);
  }

  /**
   * @param {TimeView} view
   * @param {EventLayer} layer
   * @param {EventMatches | null} matches
   */
  begin(view, layer, matches) {
    const { eventPaints, paints } = this.canvas;
    this.view = view;
    this.layer = layer;
    this.matches = matches;
    this.scale = this.width / view.width; // pixels per ns
    this.paints = eventPaints.map((paint) => this.pixel(paint, 1));
    this.fadedPaints = eventPaints.map((paint) => this.pixel(paint, FADED));
    this.densePaint = this.pixel(paints["event-dense"], matches ? FADED : 1);
    this.matchPaint = this.pixel(paints.orange, 1);
  }

  /**
   * Draws the following rows of another time span of the same width.
   * @param {{ from: number, to: number, width: number }} view
   * @param {EventLayer} layer
   * @param {EventMatches | null} matches
   */
  use(view, layer, matches) {
    this.view = view;
    this.layer = layer;
    this.matches = matches;
  }

  /**
   * A color as a 32-bit pixel: red in the lowest byte, opacity in the highest.
   * @param {string} paint
   * @param {number} opacity
   */
  pixel(paint, opacity) {
    this.pictureContext.fillStyle = paint;
    const color = parseInt(this.pictureContext.fillStyle.slice(1), 16); // the canvas normalizes any color to #rrggbb
    const [red, green, blue] = [color >> 16, (color >> 8) & 255, color & 255];
    return ((Math.round(opacity * 255) << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }

  /**
   * @param {number} row
   * @param {number} y
   */
  drawRow(row, y) {
    const { layer, view } = this;
    const first = layer.firstEndingFrom(row, view.from);
    const last = layer.lastStartingBy(row, view.to);
    if (last < first) return;
    this.texts.length = 0;
    this.isMark = this.data.rows[row].kind === "mark";
    const most = this.isMark ? MOST_LINES : 2 * this.canvas.plotWidth;
    if (last - first < most) this.#paintEvents(first, last);
    else this.#paintDensity(row, first, last);
    this.#place(y);
    this.#drawTexts(y + EVENT_HEIGHT / 2 + 0.5);
  }

  /** @param {number} y */
  #place(y) {
    const { context, gutter, ratio } = this.canvas;
    this.pictureContext.putImageData(this.image, 0, 0);
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0); // device pixels, so that the image is not resampled
    context.drawImage(this.picture, Math.round(gutter * ratio), Math.round(y * ratio));
    context.restore();
  }

  /** @param {number} time */
  #column(time) {
    return Math.min(Math.max(Math.round((time - this.view.from) * this.scale), 0), this.width);
  }

  /**
   * @param {number} first
   * @param {number} last
   */
  #paintEvents(first, last) {
    const { layer, isMark } = this;
    const least = isMark ? Math.round(2 * this.canvas.ratio) : 1;
    let painted = 0;
    this.line.fill(0);
    for (let at = first; at <= last; at++) {
      const left = this.#column(layer.start[at]);
      const right = Math.max(this.#column(layer.end[at]), left + least);
      if (right <= painted && !this.#isMatch(at)) continue; // its pixel is taken; matches are drawn anyway
      this.#paintEvent(this.line, this.#isMatch(at) ? left : Math.max(left, painted), right, at);
      if (isMark) this.#writeBeside(at, right, at < last ? this.#column(layer.start[at + 1]) : this.width);
      painted = Math.max(painted, right);
    }
    for (let at = 0; at < this.height; at++) this.pixels.set(this.line, at * this.width);
  }

  /** @param {number} event */
  #isMatch(event) {
    return this.matches !== null && this.matches.count[event + 1] > this.matches.count[event];
  }

  /** @param {number} event */
  #isFaded(event) {
    return this.matches !== null && !this.#isMatch(event);
  }

  /**
   * @param {Uint32Array} line
   * @param {number} left
   * @param {number} right
   * @param {number} event
   */
  #paintEvent(line, left, right, event) {
    const { ratio } = this.canvas;
    const paints = this.#isFaded(event) ? this.fadedPaints : this.paints;
    const gap = right - left >= LEAST_GAPPED * ratio ? Math.round(ratio) : 0;
    line.fill(paints[this.data.color[this.layer.label[event]]], left, right - gap);
    if (right - left >= LEAST_LABEL * ratio) this.texts.push([event, left / ratio, (right - left) / ratio, false]);
  }

  /**
   * A mark has no area for text: its name goes to the right of it, up to the next mark.
   * @param {number} event
   * @param {number} left
   * @param {number} right
   */
  #writeBeside(event, left, right) {
    const { ratio } = this.canvas;
    if (right - left >= LEAST_LABEL * ratio) this.texts.push([event, left / ratio, (right - left) / ratio, true]);
  }

  /** @param {number} y */
  #drawTexts(y) {
    const { context, paints, gutter } = this.canvas;
    this.canvas.font(11);
    for (const [event, x, room, isBeside] of this.texts) {
      context.fillStyle = isBeside || this.#isFaded(event) ? paints.text : paints["event-text"];
      this.canvas.text(this.#eventText(event), gutter + x + 4, y, room - 8);
    }
  }

  /** @param {number} event */
  #eventText(event) {
    const { layer, data } = this;
    const text = data.barText(layer, event);
    return layer.events && layer.events[event] > 1 ? `${formatCount(layer.events[event])} × ${text}` : text;
  }

  /**
   * Draws the busy share of each column as the height of a bar; columns with a mark are full. Events that fill whole
   * columns are drawn in their own color.
   * @param {number} row
   * @param {number} first
   * @param {number} last
   */
  #paintDensity(row, first, last) {
    const { layer, view, matches } = this;
    const step = 1 / this.scale;
    this.pixels.fill(0);
    let at = layer.lastStartingBy(row, view.from); // the last event that starts at or before the left edge
    for (let column = 0; column < this.width; column++) {
      const left = view.from + column * step;
      if (at >= first && layer.end[at] >= left + step) {
        column = this.#paintLong(at, column) - 1;
        continue;
      }
      const next = this.#advance(at, last, left + step);
      this.#paintColumn(column, this.densePaint, this.#columnHeight(layer.sum, at, next, left, step, row, null));
      if (matches && matches.count[next + 1] > matches.count[Math.max(at, first)]) {
        const height = this.#columnHeight(matches.sum, at, next, left, step, row, matches.count);
        this.#paintColumn(column, this.matchPaint, height);
      }
      at = next;
    }
  }

  /**
   * Paints an event that fills whole columns; returns the first column after it.
   * @param {number} event
   * @param {number} column
   */
  #paintLong(event, column) {
    const full = Math.floor((this.layer.end[event] - this.view.from) * this.scale + 1e-6);
    const end = Math.min(Math.max(full, column + 1), this.width);
    this.line.fill(0, column, end);
    this.#paintEvent(this.line, column, end, event);
    const piece = this.line.subarray(column, end);
    for (let at = 0; at < this.height; at++) this.pixels.set(piece, at * this.width + column);
    return end;
  }

  /**
   * The last event, between `at` and `last`, that starts by `time`: galloping search, because it is usually close.
   * @param {number} at
   * @param {number} last
   * @param {number} time
   */
  #advance(at, last, time) {
    const { start } = this.layer;
    let hop = 1;
    while (at + hop <= last && start[at + hop] <= time) {
      at += hop;
      hop *= 2;
    }
    for (; hop >= 1; hop >>= 1) if (at + hop <= last && start[at + hop] <= time) at += hop;
    return at;
  }

  /**
   * The busy time from `left` to `left + step` as a height in pixels; running sums make this independent of the number
   * of events. Any event at all is at least one pixel high.
   * @param {Float64Array} sum
   * @param {number} at
   * @param {number} next
   * @param {number} left
   * @param {number} step
   * @param {number} row
   * @param {Uint32Array | null} count
   */
  #columnHeight(sum, at, next, left, step, row, count) {
    const busy = this.#busyUntil(sum, next, left + step, row, count) - this.#busyUntil(sum, at, left, row, count);
    const isAny = busy > 0 || (count ? count[next + 1] > count[at + 1] : next > at);
    if (!isAny) return 0;
    return this.isMark ? this.height : Math.max(Math.round((busy / step) * this.height), 1);
  }

  /**
   * The running sum up to `time`, where `at` is the last event that starts by then.
   * @param {Float64Array} sum
   * @param {number} at
   * @param {number} time
   * @param {number} row
   * @param {Uint32Array | null} count
   */
  #busyUntil(sum, at, time, row, count) {
    const { layer } = this;
    if (at < layer.begin[row]) return sum[layer.begin[row]];
    const isCounted = count === null || count[at + 1] > count[at];
    return sum[at] + (isCounted ? Math.min(time, layer.end[at]) - layer.start[at] : 0);
  }

  /**
   * @param {number} column
   * @param {number} paint
   * @param {number} height
   */
  #paintColumn(column, paint, height) {
    const { pixels, width } = this;
    const end = pixels.length;
    for (let at = end - height * width + column; at < end; at += width) pixels[at] = paint;
  }
}
