// Lets the reader choose the window whose split and advice the page shows.

import { partAround, parts } from "./dom.js";

/** @param {string} window */
function show(window) {
  for (const item of parts(document, "[data-of-window]", HTMLElement)) item.hidden = item.dataset.ofWindow !== window;
  for (const button of parts(document, "button[data-window]", HTMLElement)) {
    button.setAttribute("aria-pressed", String(button.dataset.window === window));
  }
}

export function showWindows() {
  for (const group of parts(document, ".windows .segments", HTMLElement)) {
    group.hidden = false;
    group.addEventListener("click", ({ target }) => {
      const button = partAround(target, "button", HTMLButtonElement);
      if (button?.dataset.window) show(button.dataset.window);
    });
  }
}
