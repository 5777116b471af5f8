// The parts of a picture, for the pointer and for keys. A picture is one stop of the Tab key; arrow keys reach its parts.

import { newElement, partAround, parts } from "../dom.js";

/** @typedef {"ArrowLeft" | "ArrowRight" | "ArrowUp" | "ArrowDown"} Arrow */

const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];

export class PictureParts {
  /** @type {SVGElement[]} */
  all;
  /** @type {HTMLParagraphElement} */
  reading;

  /**
   * roles: of the picture and of its parts. choose: called with the part that the reader chooses.
   * @param {SVGElement} picture
   * @param {[string, string]} roles
   * @param {(part: SVGElement) => void} choose
   */
  constructor(picture, roles, choose) {
    this.picture = picture;
    this.choose = choose;
    this.all = parts(picture, "[data-part]", SVGElement);
    this.reading = newElement("p", { className: "reading", "aria-hidden": "true" }); // it repeats the labels of the parts
    const next = picture.nextElementSibling;
    (next?.classList.contains("times") ? next : picture).after(this.reading); // below the axis, if there is one
    picture.setAttribute("role", roles[0]);
    for (const part of this.all) {
      part.removeAttribute("aria-hidden");
      part.setAttribute("role", roles[1]);
      part.setAttribute("aria-label", PictureParts.text(part));
      part.setAttribute("tabindex", "-1");
    }
    this.all[0]?.setAttribute("tabindex", "0");
    this.#listen();
  }

  /** @param {Element} part */
  static text(part) {
    return part.querySelector("title")?.textContent ?? "";
  }

  /** @param {EventTarget | null} target */
  #partAt(target) {
    return partAround(target, "[data-part]", SVGElement);
  }

  #listen() {
    const { picture } = this;
    picture.addEventListener("pointerover", ({ target }) => this.#read(this.#partAt(target)));
    picture.addEventListener("pointerleave", () => this.#read(this.#partAt(document.activeElement)));
    picture.addEventListener("focusin", ({ target }) => this.#read(this.#partAt(target)));
    picture.addEventListener("focusout", () => this.#read(null));
    picture.addEventListener("click", ({ target }) => {
      const part = this.#partAt(target);
      if (!part) return;
      this.go(part);
      this.#choose(part);
    });
    picture.addEventListener("keydown", (event) => this.#key(event));
  }

  /** @param {SVGElement} part */
  #choose(part) {
    this.choose(part);
    this.#read(part);
  }

  // Shows the text of a part, except of the chosen one, which is shown elsewhere.
  /** @param {Element | null} part */
  #read(part) {
    const isShown = part && this.picture.contains(part) && part.getAttribute("aria-selected") !== "true";
    this.reading.textContent = isShown ? PictureParts.text(part) : "";
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const part = this.#partAt(event.target);
    if (!part || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") this.#choose(part);
    else if (event.key === "Home") this.go(this.all[0]);
    else if (event.key === "End") this.go(this.all[this.all.length - 1]);
    else if (ARROWS.includes(event.key)) this.go(this.neighbor(part, /** @type {Arrow} */ (event.key)) ?? part);
    else return;
    event.preventDefault();
  }

  /**
   * Moves the focus to a part, which Tab then leads to.
   * @param {SVGElement} part
   */
  go(part) {
    for (const candidate of this.all) candidate.setAttribute("tabindex", candidate === part ? "0" : "-1");
    part.focus({ preventScroll: true });
  }

  /**
   * The next part in a direction: on the same level, else the one above or below whose middle is nearest.
   * @param {SVGElement} part
   * @param {Arrow} arrow
   */
  neighbor(part, arrow) {
    const from = part.getBoundingClientRect();
    const [x, y] = [from.x + from.width / 2, from.y + from.height / 2];
    const isSideways = arrow === "ArrowLeft" || arrow === "ArrowRight";
    const sign = arrow === "ArrowLeft" || arrow === "ArrowUp" ? -1 : 1;
    let nearest = null;
    let least = Infinity;
    for (const candidate of this.all) {
      const box = candidate.getBoundingClientRect();
      const [right, down] = [sign * (box.x + box.width / 2 - x), sign * (box.y + box.height / 2 - y)];
      const isInRow = box.y < y && y < box.bottom;
      const isInColumn = box.x < from.right - 0.5 && from.x + 0.5 < box.right;
      const isBelow = sign > 0 ? box.y >= from.bottom - 1 : box.bottom <= from.y + 1;
      const isCandidate = candidate !== part && (isSideways ? isInRow && right > 0 : isInColumn && isBelow);
      // below a range, the first part of it
      const distance = isSideways ? right : down * 1e4 + box.x;
      if (!isCandidate || distance >= least) continue;
      nearest = candidate;
      least = distance;
    }
    return nearest;
  }
}
