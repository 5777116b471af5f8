// Other ways to group the rows of a table: a tree for each, in a separate table that is created when it is chosen.

import { newElement } from "../dom.js";
import { TableTools } from "./tools.js";

/**
 * @import { TableModel } from "./model.js"
 */

export class TableGroups {
  /** @type {Map<string, TableTools>} */
  tools = new Map();
  /** @type {Map<string, HTMLElement>} */
  places = new Map();

  /**
   * @param {TableTools} plain
   * @param {Map<string, TableModel>} models
   * @param {boolean} hasTimeline
   */
  constructor(plain, models, hasTimeline) {
    this.plain = plain;
    this.models = models;
    this.hasTimeline = hasTimeline;
    this.tools.set("", plain);
    const buttons = ["", ...models.keys()].map((by) => {
      const properties = { type: "button", "aria-pressed": String(!by), onclick: () => void this.choose(by) };
      const button = newElement("button", properties, `By ${by || "kernel"}`);
      return /** @type {[string, HTMLButtonElement]} */ ([by, button]);
    });
    this.buttons = new Map(buttons);
    const properties = { className: "segments groups", role: "group", "aria-label": "Group the rows" };
    plain.bar.before(newElement("div", properties, ...this.buttons.values()));
  }

  /** @param {string} by */
  has(by) {
    return this.models.has(by);
  }

  /** @param {string} by */
  model(by) {
    return /** @type {TableModel} */ (this.models.get(by));
  }

  /**
   * Shows the rows by family, range or operator; ungrouped for "".
   * @param {string} by
   */
  choose(by) {
    const tools = this.tools.get(by) ?? this.#newTable(by);
    for (const [grouping, button] of this.buttons) button.setAttribute("aria-pressed", String(grouping === by));
    for (const [grouping, place] of this.places) place.hidden = grouping !== by;
    this.plain.bar.hidden = this.plain.scroll.hidden = by !== "";
    tools.box.forgetHeights();
    return tools;
  }

  /** @param {string} by */
  #newTable(by) {
    const { plain } = this;
    const scroll = /** @type {HTMLElement} */ (plain.scroll.cloneNode(true));
    const table = /** @type {HTMLTableElement} */ (scroll.querySelector("table"));
    table.dataset.table = `${plain.table.dataset.table}/${by}`;
    table.className = table.className.replace(/\b(?:virtual|all-columns|few-columns|full-names|tree)\b/g, "");
    scroll.classList.remove("box");
    scroll.hidden = false; // another group may be shown
    for (const body of [...table.tBodies].slice(1)) body.remove();
    table.tBodies[0].classList.remove("printed");
    table.tBodies[0].replaceChildren();
    for (const button of table.querySelectorAll(".sort")) button.replaceWith(...button.childNodes);
    table.caption?.append(`, by ${by}`);
    scroll.setAttribute("aria-label", `${table.caption?.textContent}, table`);
    const place = newElement("div", { className: "group-of-rows" }, scroll);
    plain.scroll.after(place);
    this.places.set(by, place);
    const tools = new TableTools(table);
    this.tools.set(by, tools);
    tools.show(this.model(by), "", this.hasTimeline);
    return tools;
  }
}
