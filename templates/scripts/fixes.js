// The code of fixes, with buttons that copy it, and links from causes to their kernels and to the timeline.

import { copyText } from "./clipboard.js";
import { part, partAround, parts } from "./dom.js";
import { LinkedTables } from "./tables/linked.js";

/** @param {HTMLElement} lines */
function showCopy(lines) {
  const button = part(lines, "button", HTMLButtonElement);
  const name = button.textContent ?? "";
  const looks = { confirm: () => (button.textContent = "Copied"), restore: () => (button.textContent = name) };
  button.hidden = false;
  button.addEventListener("click", () => copyText(part(lines, "code", HTMLElement).textContent ?? "", button, looks));
}

/**
 * The event that the timeline shows for a link.
 * @param {DOMStringMap} data
 */
function targetOf({ kernel, range }) {
  if (kernel) return { name: kernel, kind: "kernel" };
  const path = range?.split(" / ") ?? [];
  const within = path.length > 1 ? { within: path.slice(0, -1) } : {};
  return { name: path.at(-1), kind: "range", ...within };
}

/** Until the tables or the timeline are ready, or without them, the link leads to their section.
 * @param {MouseEvent} event
 */
function follow(event) {
  const link = partAround(event.target, ".whereabouts a:is([data-kernel], [data-range])", HTMLAnchorElement);
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.hash === "#timeline") {
    if (!document.querySelector("#timeline .timeline-live:not([hidden])")) return;
    document.dispatchEvent(new CustomEvent("timeline:show", { detail: targetOf(link.dataset) }));
  } else {
    const row = LinkedTables.kernel([link.dataset.kernel ?? ""]);
    if (!row) return;
    row.go();
  }
  event.preventDefault();
}

export function showFixes() {
  for (const lines of parts(document, ".lines", HTMLElement)) showCopy(lines);
  for (const list of parts(document, ".whereabouts", HTMLElement)) list.addEventListener("click", follow);
}
