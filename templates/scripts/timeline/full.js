// The timeline in the whole window: the other parts of the page are then neither visible nor reachable.

import { part, partAround } from "../dom.js";

/** @import { Timeline } from "./timeline.js" */

export class FullScreen {
  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.live = part(timeline.section, ".timeline-live", HTMLElement);
    this.button = part(timeline.section, '[data-do="full"]', HTMLButtonElement);
    /** @type {HTMLElement[]} */
    this.hidden = [];
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.isOn || event.defaultPrevented) return;
      event.preventDefault();
      this.toggle();
    });
    // the target of a link is outside
    this.live.addEventListener("click", ({ target }) => {
      if (this.isOn && partAround(target, 'a[href^="#"]', HTMLAnchorElement)) this.toggle();
    });
  }

  get isOn() {
    return this.live.classList.contains("is-full");
  }

  toggle() {
    const isOn = this.live.classList.toggle("is-full");
    this.button.setAttribute("aria-pressed", String(isOn));
    document.documentElement.classList.toggle("has-full-timeline", isOn);
    if (isOn) {
      this.hidden = this.#outside();
      for (const element of this.hidden) element.inert = true;
    } else {
      for (const element of this.hidden) element.inert = false;
      this.timeline.section.scrollIntoView({ behavior: "instant", block: "nearest" });
    }
    this.timeline.resize();
    this.timeline.canvas.focus({ preventScroll: true });
  }

  /** Everything outside the timeline and its ancestors that can be reached now. */
  #outside() {
    const outside = [];
    for (let inner = this.live; inner !== document.body && inner.parentElement; inner = inner.parentElement) {
      for (const element of inner.parentElement.children) {
        if (element !== inner && element instanceof HTMLElement && !element.inert) outside.push(element);
      }
    }
    return outside;
  }
}
