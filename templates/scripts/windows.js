// Lets the reader choose the window whose split and advice the page shows.

/** @param {string} chosen */
function show(chosen) {
  for (const item of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-of-window]"))) {
    item.hidden = item.dataset.ofWindow !== chosen;
  }
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("button[data-window]"))) {
    button.setAttribute("aria-pressed", String(button.dataset.window === chosen));
  }
}

export function showWindows() {
  for (const group of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".windows .segments"))) {
    group.hidden = false;
    group.addEventListener("click", ({ target }) => {
      const button = target instanceof Element ? target.closest("button") : null;
      if (button?.dataset.window) show(button.dataset.window);
    });
  }
}
