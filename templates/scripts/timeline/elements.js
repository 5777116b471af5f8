// Creates the HTML elements of the timeline. Names are untrusted data, so they are only ever inserted as text.

import { shadeWhatFollows } from "../dom.js";

/** @typedef {{ className?: string, onclick?: () => void, [attribute: string]: string | (() => void) | undefined }} Properties */

/**
 * An element with attributes and children.
 * @param {string} tag
 * @param {Properties} [properties]
 * @param {...(Node | string)} children
 */
export function timelineElement(tag, properties = {}, ...children) {
  const { className, onclick, ...attributes } = properties;
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (onclick) element.addEventListener("click", onclick);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * @param {Node | string} text
 * @param {() => void} onclick
 */
export function timelineButton(text, onclick) {
  return timelineElement("button", { type: "button", className: "tool", onclick }, text);
}

/** @param {string} name */
export function timelineName(name) {
  return timelineElement("bdi", {}, name);
}

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
    timelineElement(at ? "td" : "th", at ? place(at) : { ...place(at), scope: "row" }, content);
  const head = heads.map((text, at) => timelineElement("th", { scope: "col", ...place(at) }, text));
  const table = timelineElement(
    "table",
    {},
    timelineElement("caption", {}, caption),
    timelineElement("thead", {}, timelineElement("tr", {}, ...head)),
    timelineElement("tbody", {}, ...rows.map((cells) => timelineElement("tr", {}, ...cells.map(cell)))),
  );
  const scroll = timelineElement("div", { className: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
  shadeWhatFollows(scroll);
  return scroll;
}
