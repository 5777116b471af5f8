// Access to elements that the page must have.

/**
 * The first element inside `within` that matches a selector; a TypeError if it is missing or not of this kind.
 * @template {Element} T
 * @param {ParentNode} within
 * @param {string} selector
 * @param {new () => T} kind
 * @returns {T}
 */
export function part(within, selector, kind) {
  const found = within.querySelector(selector);
  if (!(found instanceof kind)) throw new TypeError(`the page has no ${selector}`);
  return found;
}

/**
 * The 2D context of a canvas; a TypeError if the browser cannot create one.
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2DSettings} [settings]
 */
export function context2d(canvas, settings) {
  const context = canvas.getContext("2d", settings);
  if (!context) throw new TypeError("the browser cannot draw on a canvas");
  return context;
}

/**
 * Shades the lower edge of a box as long as there is more below it.
 * @param {Element} box
 */
export function shadeWhatFollows(box) {
  const show = () => box.classList.toggle("has-more", box.scrollHeight - box.scrollTop - box.clientHeight > 1);
  box.addEventListener("scroll", show, { passive: true });
  const sizes = new ResizeObserver(show);
  for (const each of [box, ...box.children]) sizes.observe(each);
}
