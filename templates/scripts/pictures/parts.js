// The parts of a picture: pointed at, reached with keys and chosen. A picture is one stop of the Tab key; arrow keys go on.

/** @typedef {"ArrowLeft" | "ArrowRight" | "ArrowUp" | "ArrowDown"} Arrow */

const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];

export class PictureParts {
  /** @type {SVGElement[]} */
  all;
  /** @type {HTMLParagraphElement} */
  reading;

  /**
   * roles: of the picture and of its parts. says: shows what a part says, null for none.
   * @param {SVGElement} picture
   * @param {[string, string]} roles
   * @param {(part: SVGElement) => void} choose
   */
  constructor(picture, roles, choose) {
    this.picture = picture;
    this.choose = choose;
    /** @type {SVGElement[]} */
    this.all = Array.from(picture.querySelectorAll("[data-part]"));
    this.reading = document.createElement("p");
    this.reading.className = "reading";
    this.reading.setAttribute("aria-hidden", "true"); // it repeats the labels of the parts
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
    const part = target instanceof Element ? target.closest("[data-part]") : null;
    return part instanceof SVGElement ? part : null;
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

  // What is chosen is said elsewhere.
  /** @param {Element | null} part */
  #read(part) {
    const isSaid = part && this.picture.contains(part) && part.getAttribute("aria-selected") !== "true";
    this.reading.textContent = isSaid ? PictureParts.text(part) : "";
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const part = this.#partAt(event.target);
    if (!part || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") this.#choose(part);
    else if (event.key === "Home") this.go(this.all[0]);
    else if (event.key === "End") this.go(this.all[this.all.length - 1]);
    else if (ARROWS.includes(event.key)) this.go(this.beside(part, /** @type {Arrow} */ (event.key)) ?? part);
    else return;
    event.preventDefault();
  }

  /**
   * Makes a part the one that Tab leads to, and goes there.
   * @param {SVGElement} part
   */
  go(part) {
    for (const other of this.all) other.setAttribute("tabindex", other === part ? "0" : "-1");
    part.focus({ preventScroll: true });
  }

  /**
   * The next part in a direction: on the same level, else the one above or below whose middle is nearest.
   * @param {SVGElement} part
   * @param {Arrow} arrow
   */
  beside(part, arrow) {
    const own = part.getBoundingClientRect();
    const [x, y] = [own.x + own.width / 2, own.y + own.height / 2];
    const isSideways = arrow === "ArrowLeft" || arrow === "ArrowRight";
    const sign = arrow === "ArrowLeft" || arrow === "ArrowUp" ? -1 : 1;
    let found = null;
    let least = Infinity;
    for (const other of this.all) {
      const box = other.getBoundingClientRect();
      const [right, down] = [sign * (box.x + box.width / 2 - x), sign * (box.y + box.height / 2 - y)];
      const isBeside = box.y < y && y < box.bottom;
      const isOver = box.x < own.right - 0.5 && own.x + 0.5 < box.right;
      const isThere = isSideways ? isBeside && right > 0 : isOver && (sign > 0 ? box.y >= own.bottom - 1 : box.bottom <= own.y + 1);
      // below a range, the first part of it
      const distance = isSideways ? right : down * 1e4 + box.x;
      if (other === part || !isThere || distance >= least) continue;
      found = other;
      least = distance;
    }
    return found;
  }
}
