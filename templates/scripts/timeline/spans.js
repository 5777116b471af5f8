// The panel of a selected span: where the time of GPUs went, and the command that makes a report about the span.

import { nameElement, newElement, toolButton } from "../dom.js";
import { durationText, shareText } from "./text.js";

/**
 * @import { TimelineData } from "./data.js"
 * @import { Category, Span } from "./types.js"
 */

const MOST_EXACT = 2n ** 53n; // ns: the command reads ms as a number of this size

/** @param {Category} category */
export function categoryText([name, , isBusy]) {
  return isBusy ? name : `idle: ${name}`;
}

/**
 * A sample of a category's color: solid if the GPU is busy, else pale.
 * @param {Category} category
 */
export function swatch([, series, isBusy]) {
  return newElement("span", { className: `timeline-swatch${isBusy ? "" : " is-idle"}`, "data-series": series, "aria-hidden": "true" });
}

/**
 * A bar and a list for each GPU.
 * @param {TimelineData} data
 * @param {Span} span
 */
export function splitParts(data, span) {
  return data.activity.groups.map((group, device) => {
    const { from, to, step, times } = data.activity.during(device, span);
    const parts = data.categories.map((category, at) => ({ category, time: times[at] })).filter(({ time }) => time > 0);
    parts.sort((one, other) => Number(other.category[2]) - Number(one.category[2]) || other.time - one.time);
    const total = parts.reduce((sum, { time }) => sum + time, 0);
    const bar = newElement("div", { className: "timeline-split", "aria-hidden": "true" });
    const items = parts.map(({ category, time }) => {
      const piece = swatch(category);
      piece.style.flexGrow = String(time);
      bar.append(piece);
      const amount = newElement("span", { className: "amount" }, shareText(time / total));
      return newElement("li", {}, swatch(category), `${categoryText(category)} `, amount, ` ${durationText(time)}`);
    });
    const title = newElement("h4", {}, nameElement(data.groups[group].label), ": where the time went");
    const [first, last] = data.instants(from, to);
    const remark = `In whole steps of ${durationText(step)}: from ${first} to ${last}.`;
    const isWider = step > 0 && (from !== span[0] || to !== span[1]);
    const note = isWider ? [newElement("p", { className: "note" }, remark)] : [];
    return newElement("div", { className: "timeline-of-gpu" }, title, bar, newElement("ul", {}, ...items), ...note);
  });
}

/**
 * The tools of a span, and among them the one that makes it the window of a report. A page cannot do that by itself.
 * @param {TimelineData} data
 * @param {Span} span
 * @param {HTMLElement} tools
 */
export function windowParts(data, [from, to], tools) {
  const { begin } = data;
  if (begin === null) return [tools];
  const inCapture = (/** @type {number} */ time) => timeOption(begin + BigInt(Math.round(time)));
  const command = `nightsight report CAPTURE --window ${inCapture(from)}/${inCapture(to)}`;
  const place = newElement("div", { className: "timeline-command", role: "status" });
  const button = toolButton("Use as window", () => showCommand(place, command));
  tools.insertBefore(button, tools.lastChild);
  return [tools, place];
}

/**
 * A time in the capture as `--window` takes it.
 * @param {bigint} ns
 */
function timeOption(ns) {
  if (ns < 0n || ns > MOST_EXACT) return `${ns}ns`;
  const decimals = String(ns % 1_000_000n).padStart(6, "0").replace(/0+$/, "");
  return `${ns / 1_000_000n}${decimals ? `.${decimals}` : ""}ms`;
}

/**
 * Copies the command and shows it, selected, because some frames do not let a page write to the clipboard.
 * @param {HTMLElement} place
 * @param {string} command
 */
async function showCommand(place, command) {
  const properties = { readonly: "", value: command, "aria-label": "Command for a report about this span" };
  const field = newElement("input", properties);
  const note = newElement("p", { className: "note" });
  place.replaceChildren(note, field);
  field.select();
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(command);
  } catch {
    isCopied = false; // no permission, or no clipboard
  }
  const what = "The numbers of this page cover its window. This command makes a report about the selected span";
  note.textContent = `${what}${isCopied ? "; it is on the clipboard" : ""}. CAPTURE is the file that this page was made from.`;
}
