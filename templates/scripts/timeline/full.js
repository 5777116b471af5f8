// The timeline in the whole window: everything else on the page can then be neither seen nor reached.

import { part } from "../dom.js";

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
    // what a link inside leads to is outside
    this.live.addEventListener("click", ({ target }) => {
      if (this.isOn && target instanceof Element && target.closest('a[href^="#"]')) this.toggle();
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
      this.hidden = this.#others();
      for (const element of this.hidden) element.inert = true;
    } else {
      for (const element of this.hidden) element.inert = false;
      this.timeline.section.scrollIntoView({ behavior: "instant", block: "nearest" });
    }
    this.timeline.resize();
    this.timeline.canvas.focus({ preventScroll: true });
  }

  /** Everything outside the timeline and its ancestors that can be reached now. */
  #others() {
    const others = [];
    for (let inner = this.live; inner !== document.body && inner.parentElement; inner = inner.parentElement) {
      for (const element of inner.parentElement.children) {
        if (element !== inner && element instanceof HTMLElement && !element.inert) others.push(element);
      }
    }
    return others;
  }
}
