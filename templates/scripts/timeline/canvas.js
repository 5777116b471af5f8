// The canvas of the timeline: size, conversion between times and pixels, colors and text.

import { context2d } from "../dom.js";
import { EVENT_COLORS, NEUTRAL_COLORS } from "./text.js";

/** @import { TimeView } from "./lanes.js" */

export const EVENT_HEIGHT = 16; // px, as all lengths here
const PAINTS = ["page", "surface", "text", "muted", "rule", "link", "orange", "green", "info-surface"];
const EVENT_PAINTS = ["event-dense", "event-text"];

export class TimelineCanvas {
  /** @type {TimeView} */
  view;
  /** @type {number} */
  width;
  /** @type {number} */
  height;
  /** @type {string} */
  family;
  /** @type {Record<string, string>} */
  paints;
  /** @type {string[]} */
  eventPaints;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {string[]} series
   */
  constructor(canvas, series) {
    this.canvas = canvas;
    this.series = series; // the names of the colors of categories
    this.context = context2d(canvas, { alpha: false });
    /** @type {Map<string, number>} */
    this.widths = new Map(); // cached text widths, in the font of event names
    this.gutter = 0; // width of the row names on the left
    this.ratio = 1;
  }

  /**
   * @param {number} width
   * @param {number} height
   * @param {number} ratio
   */
  resize(width, height, ratio) {
    this.width = width;
    this.height = height;
    this.ratio = ratio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    this.widths.clear();
    this.family = getComputedStyle(this.canvas).fontFamily;
  }

  /**
   * Sets the width of the left column to fit the row names, within limits.
   * @param {string[]} names
   */
  setGutter(names) {
    this.font(12);
    const widest = Math.max(...names.map((name) => this.context.measureText(name).width), 60);
    const most = Math.min(Math.max(0.2 * this.width, 150), 0.4 * this.width);
    this.gutter = Math.round(Math.min(widest + 34, most));
  }

  get plotWidth() {
    return Math.max(this.width - this.gutter, 1);
  }

  // px per ns of the current view, which can be newer than the last frame
  get scale() {
    return this.plotWidth / this.view.width;
  }

  /** @param {TimeView} view */
  begin(view) {
    const { context } = this;
    this.view = view;
    this.#readPaints();
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.globalAlpha = 1;
    context.textBaseline = "middle";
    this.fill(this.paints.page, 0, 0, this.width, this.height);
  }

  // Reads the colors for every frame, so that any change of theme shows in the next frame.
  #readPaints() {
    const style = getComputedStyle(this.canvas);
    const paint = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
    this.paints = Object.fromEntries([...PAINTS, ...EVENT_PAINTS].map((name) => [name, paint(name)]));
    const numbered = (/** @type {string} */ name, /** @type {number} */ length) =>
      Array.from({ length }, (_, at) => paint(`${name}-${at + 1}`));
    const ofSeries = this.series.map((name) => paint(`series-${name}`));
    this.eventPaints = [...numbered("event", EVENT_COLORS), ...ofSeries, ...numbered("neutral", NEUTRAL_COLORS)];
  }

  // The time of a pixel, rounded down to a power of ten: spans chosen by hand are not more exact than that.
  get grain() {
    return 10 ** Math.max(Math.floor(Math.log10(1 / this.scale)), 0);
  }

  /**
   * Rounds to whole device pixels, so that edges are sharp.
   * @param {number} value
   */
  snap(value) {
    return Math.round(value * this.ratio) / this.ratio;
  }

  /**
   * The x position of a time, clamped to just outside the plot: huge canvas coordinates would be inexact.
   * @param {number} time
   */
  x(time) {
    const x = this.gutter + (time - this.view.from) * this.scale;
    return this.snap(Math.min(Math.max(x, this.gutter - 4), this.width + 4));
  }

  /** @param {number} x */
  timeAt(x) {
    return this.view.from + (x - this.gutter) / this.scale;
  }

  /**
   * @param {number} size
   * @param {number} [weight]
   */
  font(size, weight = 400) {
    this.context.font = `${weight} ${size}px ${this.family}`;
  }

  /**
   * @param {string} style
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  fill(style, x, y, width, height) {
    this.context.fillStyle = style;
    this.context.fillRect(x, y, width, height);
  }

  /**
   * @param {string} style
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {number} thickness
   */
  outline(style, x, y, width, height, thickness) {
    this.context.strokeStyle = style;
    this.context.lineWidth = thickness;
    this.context.strokeRect(x, y, width, height);
  }

  /**
   * Runs `draw` with a clipping rectangle.
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {() => void} draw
   */
  within(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }

  /**
   * Draws text, cut to `room`; widths are cached because names repeat.
   * @param {string} text
   * @param {number} x
   * @param {number} y
   * @param {number} room
   */
  text(text, x, y, room) {
    const width = this.widths.get(text) ?? this.context.measureText(text).width;
    this.widths.set(text, width);
    if (width <= room) {
      this.context.fillText(text, x, y);
      return;
    }
    const letters = Math.floor((text.length * room) / width) - 1;
    if (letters >= 2) this.context.fillText(`${text.slice(0, letters)}…`, x, y, room);
  }
}
