// Formats times, counts and names for the timeline.

import { formatCount, formatFixed, formatValue, MINUS, scaleFor } from "../numbers.js";

export const EVENT_COLORS = 8; // --event-1 to --event-8
export const NEUTRAL_COLORS = 2; // --neutral-1 and --neutral-2
export const SPLIT_LABEL = "Where the time went";

/**
 * @param {number} count
 * @param {string} noun
 */
export function countText(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * A duration: 832 ns, 12.35 µs, 1.205 s.
 * @param {number} ns
 */
export function durationText(ns) {
  return formatValue(ns, "ns");
}

/**
 * A point in time, exact to the nanosecond: 1,204.345678 ms.
 * @param {number} ns
 */
export function instantText(ns) {
  return `${formatFixed(ns / 1e6, 6)} ms`;
}

/**
 * Points in time with as many decimals as the one that needs most of them: 1,204.3 ms and 1,300.0 ms.
 * @param {...number} times
 */
export function instantTexts(...times) {
  const zeros = times.map((time) => (/0*$/.exec(String(Math.abs(Math.round(time))))?.[0].length ?? 0) || 0);
  const needed = times.map((time, at) => (Math.round(time) === 0 ? 0 : Math.max(6 - zeros[at], 0)));
  return times.map((time) => `${formatFixed(time / 1e6, Math.max(...needed))} ms`);
}

/**
 * Both ends and the length of a view, with as many decimals as its zoom needs.
 * @param {number} from
 * @param {number} to
 */
export function rangeText(from, to) {
  const [size, unit] = scaleFor(Math.max(Math.abs(from), Math.abs(to)), "ns");
  const decimals = Math.min(decimalsFor((to - from) / 10_000, size), Math.log10(size));
  const [first, last] = [from, to].map((time) => `${timeText(time, size, decimals)} ${unit}`);
  return `${first} to ${last} (${durationText(Math.round(to - from))})`;
}

/**
 * A time without its unit; `−0` becomes `0`.
 * @param {number} ns
 * @param {number} size
 * @param {number} decimals
 */
function timeText(ns, size, decimals) {
  const text = formatFixed(ns / size, decimals);
  return /[1-9]/.test(text) ? text : text.replace(MINUS, "");
}

/** @param {number} share */
export function shareText(share) {
  return formatValue(100 * share, "pct");
}

/**
 * A value of a curve.
 * @param {number | null | undefined} value
 * @param {string} unit
 */
export function amountText(value, unit) {
  return formatValue(value, unit === "count" ? "" : unit);
}

/**
 * The smallest of 1, 2, 5, 10, 20 ... that is at least `least`.
 * @param {number} least
 */
function tickStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? 10 * power;
}

/**
 * The number of decimals that distinguishes multiples of `step` in units of `size`.
 * @param {number} step
 * @param {number} size
 */
function decimalsFor(step, size) {
  return Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
}

/**
 * The ticks of a view as [time, text], relative to `origin`. If that needs many digits, ticks are relative to a round
 * time near the view instead, which is `baseText`.
 * @param {{ from: number, to: number }} view
 * @param {number} origin
 * @param {number} least
 */
export function timeTicks(view, origin, least) {
  const step = tickStep(least);
  const [from, to] = [view.from - origin, view.to - origin];
  let [size, unit] = scaleFor(Math.max(Math.abs(from), Math.abs(to)), "ns");
  let base = 0;
  let baseText = "";
  if (decimalsFor(step, size) > 3) {
    const grain = 10 ** Math.ceil(Math.log10(to - from));
    base = Math.floor(from / grain) * grain;
    baseText = `${timeText(base, size, decimalsFor(grain, size))} ${unit}`;
    [size, unit] = scaleFor(to - base, "ns");
  }
  /** @type {[number, string][]} */
  const ticks = [];
  for (let tick = Math.ceil(from / step); tick * step <= to; tick++) {
    const text = `${timeText(tick * step - base, size, decimalsFor(step, size))} ${unit}`;
    ticks.push([tick * step + origin, baseText ? `+${text}` : text]);
  }
  return { ticks, baseText };
}

/** @type {Record<string, number>} */
const SIZES = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };

/**
 * The size at the end of the details of a copy or a set, as text and in bytes; null if there is none.
 * @param {string} details
 */
export function sizeIn(details) {
  const [, text, number, unit] = /(?:^|, )(([\d.,]+) ([kMGT]?B))$/.exec(details) ?? [];
  return text ? { text, bytes: Number(number.replaceAll(",", "")) * SIZES[unit] } : null;
}

/**
 * The rate of a copy; empty if it took no time.
 * @param {number} bytes
 * @param {number} ns
 */
export function rateText(bytes, ns) {
  return ns > 0 && bytes > 0 ? formatValue((bytes / ns) * 1e9, "bytes_per_s") : "";
}

/**
 * The color of a name, the same on every page: a hash of the name (FNV-1a).
 * @param {string} name
 */
export function eventColor(name) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < name.length; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193);
  return ((hash ^ (hash >>> 15)) >>> 0) % EVENT_COLORS;
}
