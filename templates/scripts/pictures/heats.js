// Heat maps of ranks: pointer and arrow keys reach each cell, which leads to that step in the timeline.

import { newElement, partAround, parts } from "../dom.js";
import { formatValue } from "../numbers.js";

const LARGEST = 36 ** 2 - 1; // each cell has two digits
/** @type {Record<string, [number, number]>} */
const KEYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

class HeatMap {
  /** @param {HTMLElement} panels */
  constructor(panels) {
    this.panels = panels;
    const { longest, size, first, steps, own } = panels.dataset;
    this.longest = Number(longest);
    this.size = Number(size); // steps in a cell
    this.first = Number(first); // the program's number of the first step
    this.steps = Number(steps);
    this.isOwn = own !== undefined; // whether each rank counts its steps from its own first one
    this.rows = parts(panels, "svg[data-cells]", SVGElement);
    this.place = { row: 0, cell: 0 };
    this.canShow = document.getElementById("timeline") !== null;
    this.cursor = newElement("span", { className: "heat-cursor", hidden: "" });
    this.reading = newElement("p", { className: "reading", role: "status" });
    panels.append(this.cursor);
    panels.after(this.reading);
    panels.setAttribute("role", "application");
    panels.setAttribute("aria-roledescription", "heat map");
    panels.tabIndex = 0;
    panels.classList.toggle("is-live", this.canShow);
    this.#listen();
  }

  #listen() {
    const { panels } = this;
    panels.addEventListener("keydown", (event) => this.#key(event));
    panels.addEventListener("focus", () => this.#go(this.place));
    panels.addEventListener("blur", () => this.#leave());
    panels.addEventListener("pointermove", (event) => {
      const place = this.#placeAt(event);
      if (place) this.#go(place);
    });
    panels.addEventListener("pointerleave", () => document.activeElement !== panels && this.#leave());
    panels.addEventListener("click", (event) => {
      const place = this.#placeAt(event);
      if (!place) return;
      this.#go(place);
      this.#show();
    });
  }

  #leave() {
    this.cursor.hidden = true;
    this.reading.textContent = "";
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { row, cell } = this.place;
    if (event.key === "Enter" || event.key === " ") this.#show();
    else if (event.key === "Home") this.#go({ row, cell: 0 });
    else if (event.key === "End") this.#go({ row, cell: Infinity });
    else if (Object.hasOwn(KEYS, event.key)) this.#go({ row: row + KEYS[event.key][0], cell: cell + KEYS[event.key][1] });
    else return;
    event.preventDefault();
  }

  /** @param {MouseEvent} event */
  #placeAt({ target, clientX }) {
    const svg = partAround(target, "svg[data-cells]", SVGElement);
    const row = svg ? this.rows.indexOf(svg) : -1;
    if (!svg || row < 0) return null;
    const { left, width } = svg.getBoundingClientRect();
    return { row, cell: Math.floor((((clientX - left) / width) * this.steps) / this.size) };
  }

  /**
   * Goes to a cell, or the nearest one.
   * @param {{ row: number, cell: number }} place
   */
  #go(place) {
    const row = Math.min(Math.max(place.row, 0), this.rows.length - 1);
    const cell = Math.min(Math.max(place.cell, 0), Math.ceil(this.steps / this.size) - 1);
    this.place = { row, cell };
    const [box, around] = [this.rows[row].getBoundingClientRect(), this.panels.getBoundingClientRect()];
    const scale = box.width / this.steps;
    const [from, to] = [cell * this.size, Math.min((cell + 1) * this.size, this.steps)];
    const { style } = this.cursor;
    style.left = `${box.left - around.left + from * scale}px`;
    style.top = `${box.top - around.top}px`;
    style.width = `${(to - from) * scale}px`;
    style.height = `${box.height}px`;
    this.cursor.hidden = false;
    this.reading.textContent = this.#text(from, to);
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  #text(from, to) {
    const { row, cell } = this.place;
    const { rank, cells = "" } = this.rows[row].dataset;
    const value = parseInt(cells.slice(2 * cell, 2 * cell + 2), 36);
    const number = `#${from + this.first}${to - from > 1 ? ` to #${to - 1 + this.first}` : ""}`;
    const time = Number.isNaN(value) ? "no such step" : formatValue((value / LARGEST) * this.longest, "ns");
    return `Rank ${rank}, ${number}: ${time}${to - from > 1 && !Number.isNaN(value) ? " on average" : ""}`;
  }

  #show() {
    if (!this.canShow) return;
    const { row, cell } = this.place;
    const rank = Number(this.rows[row].dataset.rank);
    const detail = { rank, step: cell * this.size, steps: this.size, is_own: this.isOwn };
    document.dispatchEvent(new CustomEvent("timeline:show", { detail }));
  }
}

export function showHeatMaps() {
  for (const panels of parts(document, ".heat .panels", HTMLElement)) {
    if (panels.querySelector("svg[data-cells]")) new HeatMap(panels);
  }
}
