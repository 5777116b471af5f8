// The view of the timeline as the fragment of an address: `#timeline=from,to`, then fields in any order. Times are whole
// ns since the start of the window, like those in tables and on the axis.

/** @import { TimelineView } from "./types.js" */

export const MOST_PINNED = 30;
export const MOST_NOTES = 20;
export const MOST_LETTERS = 80; // of a text

/**
 * @param {TimelineView} view
 * @param {number} origin
 */
export function timelineAddress({ view, span, event, anchor, alignment, filter, pinned, notes }, origin) {
  const times = (/** @type {number[]} */ ...all) => all.map((time) => Math.round(time - origin)).join(",");
  const parts = [times(...view)];
  if (span) parts.push(`span=${times(...span)}`);
  if (event) parts.push(`event=${event[0]},${times(event[1])}`);
  if (anchor) parts.push(`anchor=${anchor[0]},${times(anchor[1])}`);
  if (alignment) parts.push(`step=${alignment.step},${alignment.rank}`);
  if (pinned.length) parts.push(`pin=${pinned.join(",")}`);
  if (filter) parts.push(`rows=${encoded(filter)}`);
  for (const { from, to, text } of notes) parts.push(`note=${times(from, to)},${encoded(text)}`);
  return `#timeline=${parts.join("&")}`;
}

/**
 * The view of an address; null for links to sections, and for what is not the address of a view.
 * @param {string} hash
 * @param {number} origin
 * @returns {TimelineView | null}
 */
export function timelineView(hash, origin) {
  if (!hash.startsWith("#timeline=")) return null;
  const [first, ...rest] = hash.slice("#timeline=".length).split("&");
  const view = pair(first);
  const fields = rest.map((part) => [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)]);
  const values = (/** @type {string} */ name) => fields.filter(([field]) => field === name).map(([, value]) => value);
  const pairOf = (/** @type {string} */ name) => pair(values(name)[0] ?? "");
  if (!view) return null;
  const [span, event, anchor, step] = ["span", "event", "anchor", "step"].map(pairOf);
  return {
    view: [view[0] + origin, view[1] + origin],
    span: span && [span[0] + origin, span[1] + origin],
    event: event && [event[0], event[1] + origin],
    anchor: anchor && [anchor[0], anchor[1] + origin],
    query: null,
    alignment: step && { step: step[0], rank: step[1] },
    filter: decoded(values("rows")[0] ?? ""),
    pinned: [...new Set((values("pin")[0] ?? "").split(",").filter((key) => /^[rcs]\d{1,6}$/.test(key)))].slice(0, MOST_PINNED),
    notes: values("note").flatMap((value) => noteIn(value, origin)).slice(0, MOST_NOTES),
  };
}

/**
 * The note of a field; none if it has no text or no times.
 * @param {string} field
 * @param {number} origin
 */
function noteIn(field, origin) {
  const [from, to, ...rest] = field.split(",");
  const times = pair(`${from},${to}`);
  const text = decoded(rest.join(",")).trim();
  return times && text ? [{ from: times[0] + origin, to: Math.max(...times) + origin, text }] : [];
}

/**
 * A text that is short enough for an address, and can be in one: half a character cannot.
 * @param {string} text
 */
export function bounded(text) {
  return Array.from(text).slice(0, MOST_LETTERS).join("").replace(/\p{Cs}/gu, "\uFFFD");
}

/**
 * A text for the address, also without the characters that mail programs take for the end of a link.
 * @param {string} text
 */
function encoded(text) {
  return encodeURIComponent(bounded(text)).replace(/[!'()*.]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
}

/**
 * The text of an address; empty if someone cut it.
 * @param {string} text
 */
function decoded(text) {
  try {
    return bounded(decodeURIComponent(text));
  } catch {
    return "";
  }
}

/**
 * Two whole numbers; null for any other text.
 * @param {string} text
 * @returns {[number, number] | null}
 */
function pair(text) {
  const numbers = /^(-?\d{1,19}),(-?\d{1,19})$/.exec(text);
  return numbers && [Number(numbers[1]), Number(numbers[2])];
}
