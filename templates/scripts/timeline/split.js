// Draws the activity of a GPU as columns of pixels: busy parts solid, idle parts pale, as in *Where the time went*.

import { context2d } from "../dom.js";
import { EVENT_HEIGHT } from "./canvas.js";

/**
 * @import { TimelineCanvas } from "./canvas.js"
 * @import { TimelineActivity } from "./activity.js"
 * @import { Category } from "./types.js"
 */

const LEAST_LABEL = 44; // px
const PALE = 0.38; // as .idle in series.css

/**
 * Fills an image with the time of each category in each column, from the bottom up. Returns the category of columns that
 * have only one, -1 for others.
 * @param {{ pixels: Uint32Array, width: number, height: number }} image
 * @param {TimelineActivity} activity
 * @param {number} device
 * @param {{ from: number, to: number }} view
 * @param {number[]} paints of each category
 */
export function paintSplit({ pixels, width, height }, activity, device, view, paints) {
  const account = activity.accountFor(view.from, view.to);
  const step = (view.to - view.from) / width;
  const { times } = activity;
  const only = new Int8Array(width).fill(-1);
  pixels.fill(0);
  for (let column = 0; column < width; column++) {
    const from = Math.max(view.from + column * step, account.from);
    const to = Math.min(view.from + (column + 1) * step, account.to);
    if (to <= from) continue;
    times.fill(0);
    account.add(device, from, to, times);
    let [below, total] = [0, 0];
    for (const time of times) total += time;
    for (let category = 0; total > 0 && category < times.length; category++) {
      if (!times[category]) continue;
      const bottom = Math.round((below / total) * height);
      below += times[category];
      const top = Math.round((below / total) * height);
      if (top - bottom === height) only[column] = category;
      for (let row = bottom; row < top; row++) pixels[(height - 1 - row) * width + column] = paints[category];
    }
  }
  return only;
}

/**
 * The paints of categories as 32-bit pixels.
 * @param {string[]} paints
 * @param {Category[]} categories
 * @param {(paint: string, opacity: number) => number} pixel
 */
export function splitPaints(paints, categories, pixel) {
  return categories.map(([, , isBusy], at) => pixel(paints[at], isBusy ? 1 : PALE));
}

// The lane of a GPU in the timeline.
export class SplitPainter {
  /** @type {{ pixels: Uint32Array, width: number, height: number }} */
  image;
  /** @type {ImageData} */
  data;

  /**
   * @param {TimelineCanvas} canvas
   * @param {TimelineActivity} activity
   */
  constructor(canvas, activity) {
    this.canvas = canvas;
    this.activity = activity;
    this.picture = document.createElement("canvas");
    this.context = context2d(this.picture);
  }

  resize() {
    const { plotWidth, ratio } = this.canvas;
    const width = (this.picture.width = Math.max(Math.round(plotWidth * ratio), 1));
    const height = (this.picture.height = Math.max(Math.round(EVENT_HEIGHT * ratio), 1));
    this.data = this.context.createImageData(width, height);
    this.image = { pixels: new Uint32Array(this.data.data.buffer), width, height };
  }

  /**
   * @param {number} device
   * @param {number} y
   * @param {number[]} paints
   * @param {{ from: number, to: number }} view
   */
  draw(device, y, paints, view) {
    const { context, gutter, ratio } = this.canvas;
    const only = paintSplit(this.image, this.activity, device, view, paints);
    this.context.putImageData(this.data, 0, 0);
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0); // device pixels, so that the image is not resampled
    context.drawImage(this.picture, Math.round(gutter * ratio), Math.round(y * ratio));
    context.restore();
    this.#writeNames(only, y + EVENT_HEIGHT / 2 + 0.5);
  }

  /**
   * Writes the names of categories that have a separate piece, if there is room.
   * @param {Int8Array} only
   * @param {number} y
   */
  #writeNames(only, y) {
    const { canvas } = this;
    const { context, gutter, ratio, paints } = canvas;
    canvas.font(11);
    for (let first = 0, end = 0; first < only.length; first = end) {
      while (end < only.length && only[end] === only[first]) end++;
      const room = (end - first) / ratio - 10;
      if (only[first] < 0 || room < LEAST_LABEL) continue;
      const [name, , isBusy] = this.activity.categories[only[first]];
      if (context.measureText(name).width > room) continue;
      context.fillStyle = isBusy ? paints["event-text"] : paints.text;
      context.fillText(name, gutter + first / ratio + 5, y);
    }
  }
}
