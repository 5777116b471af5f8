// Tables of the timeline as HTML.

import { newElement, shadeLowerEdge } from "../dom.js";

/**
 * A table with a heading row; the first cell of each row is its header. Columns from number `texts` on are numeric.
 * @param {string} caption
 * @param {string[]} heads
 * @param {(Node | string)[][]} rows
 * @param {number} texts
 */
export function timelineTable(caption, heads, rows, texts) {
  const place = (/** @type {number} */ at) => (at < texts ? {} : { className: "number" });
  const cell = (/** @type {Node | string} */ content, /** @type {number} */ at) =>
    newElement(at ? "td" : "th", at ? place(at) : { ...place(at), scope: "row" }, content);
  const head = heads.map((text, at) => newElement("th", { scope: "col", ...place(at) }, text));
  const table = newElement(
    "table",
    {},
    newElement("caption", {}, caption),
    newElement("thead", {}, newElement("tr", {}, ...head)),
    newElement("tbody", {}, ...rows.map((cells) => newElement("tr", {}, ...cells.map(cell)))),
  );
  const scroll = newElement("div", { className: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
  shadeLowerEdge(scroll);
  return scroll;
}
