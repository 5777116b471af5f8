// Access to elements of the page, and new elements.

/**
 * The first element inside `within` that matches a selector; a TypeError if it is missing or not of this kind.
 * @template {Element} T
 * @param {ParentNode} within
 * @param {string} selector
 * @param {new () => T} kind
 * @returns {T}
 */
export function part(within, selector, kind) {
  const element = within.querySelector(selector);
  if (!(element instanceof kind)) throw new TypeError(`the page has no ${selector}`);
  return element;
}

/**
 * All elements inside `within` that match a selector and are of this kind.
 * @template {Element} T
 * @param {ParentNode} within
 * @param {string} selector
 * @param {new () => T} kind
 */
export function parts(within, selector, kind) {
  return Array.from(within.querySelectorAll(selector)).flatMap((element) => (element instanceof kind ? [element] : []));
}

/**
 * The element around the target of an event, or the target itself, that matches a selector; null if there is none.
 * @template {Element} T
 * @param {EventTarget | null} target
 * @param {string} selector
 * @param {new () => T} kind
 */
export function partAround(target, selector, kind) {
  const element = target instanceof Element ? target.closest(selector) : null;
  return element instanceof kind ? element : null;
}

/** @typedef {{ className?: string, onclick?: () => void, [attribute: string]: string | (() => void) | undefined }} Properties */

/**
 * A new element with attributes and children. Names are untrusted data, so they are only ever inserted as text.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Properties} [properties]
 * @param {...(Node | string)} children
 */
export function newElement(tag, properties = {}, ...children) {
  const { className, onclick, ...attributes } = properties;
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (onclick) element.addEventListener("click", onclick);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * @param {Node | string} text
 * @param {() => void} onclick
 */
export function toolButton(text, onclick) {
  return newElement("button", { type: "button", className: "tool", onclick }, text);
}

/**
 * A name in its own direction of writing.
 * @param {string} text
 */
export function nameElement(text) {
  return newElement("bdi", {}, text);
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
 * Shades the lower edge of a box while there is more content below it.
 * @param {Element} box
 */
export function shadeLowerEdge(box) {
  const update = () => box.classList.toggle("has-more", box.scrollHeight - box.scrollTop - box.clientHeight > 1);
  box.addEventListener("scroll", update, { passive: true });
  const sizes = new ResizeObserver(update);
  for (const element of [box, ...box.children]) sizes.observe(element);
}
