// Links to sections of the page.

import { partAround, parts } from "./dom.js";

/**
 * The target element of a hash; the hash of a timeline view (#timeline=...) leads to the timeline.
 * @param {string} hash
 */
function linkTarget(hash) {
  return document.getElementById(hash.startsWith("#timeline=") ? "timeline" : hash.slice(1));
}

/**
 * Opens the closed sections around an element, and the element itself if it is one.
 * @param {Element | null} target
 */
export function reveal(target) {
  for (let details = target?.closest("details"); details; details = details.parentElement?.closest("details")) {
    details.open = true;
  }
}

// A page opened at a section scrolls there again after tables or the timeline above it have grown, until the reader
// scrolls. On reload or Back, the browser restores the position itself.
let isAtTarget = false;

export function keepTarget() {
  if (isAtTarget && location.hash) linkTarget(location.hash)?.scrollIntoView({ behavior: "instant" });
}

const FAR = 2; // screens

/**
 * How to scroll to an element: smoothly if it is near. From further away, that would take too long.
 * @param {Element} target
 * @returns {ScrollBehavior}
 */
function pace(target) {
  const isFar = Math.abs(target.getBoundingClientRect().top) > FAR * innerHeight;
  return isFar || matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth";
}

/** @param {Element} target */
export function bringIntoView(target) {
  target.scrollIntoView({ behavior: pace(target) });
}

/**
 * The target of the link that was clicked, if it leads to a part of the page.
 * @param {MouseEvent} event
 */
function clickedTarget(event) {
  const link = partAround(event.target, 'a[href^="#"]', HTMLAnchorElement);
  return link && linkTarget(link.hash);
}

/**
 * The browser follows links at the pace of the style, which is set just before.
 * @param {MouseEvent} event
 */
function setPace(event) {
  const target = clickedTarget(event);
  if (target) document.documentElement.style.scrollBehavior = pace(target) === "smooth" ? "smooth" : "auto";
}

/**
 * A sandboxed frame cannot follow links inside its own page if that is a local file: scroll to the target instead.
 * @param {MouseEvent} event
 */
function followInFrame(event) {
  const target = clickedTarget(event);
  if (!target) return;
  event.preventDefault();
  reveal(target);
  target.tabIndex = -1; // so that the Tab key continues from here
  target.focus({ preventScroll: true });
  bringIntoView(target);
}

export function listenToLinks() {
  const revealTarget = () => {
    const target = location.hash ? linkTarget(location.hash) : null;
    reveal(target);
    // the browser has scrolled before it was open
    if (target instanceof HTMLDetailsElement) target.scrollIntoView({ behavior: "instant" });
  };
  window.addEventListener("hashchange", revealTarget);
  revealTarget();
  const [navigation] = performance.getEntriesByType("navigation");
  isAtTarget = navigation instanceof PerformanceNavigationTiming && navigation.type === "navigate";
  for (const name of ["wheel", "pointerdown", "keydown", "touchmove"]) {
    window.addEventListener(name, () => (isAtTarget = false), { once: true, passive: true });
  }
  document.addEventListener("click", setPace);
  if (window.parent !== window) document.addEventListener("click", followInFrame);
}

const TOP = 0.25; // of the window: a section that begins above this line is read

/** Marks the link of the contents whose section is read, and keeps it in view where the contents scroll. */
export function markCurrentSection() {
  const contents = document.querySelector(".contents");
  const links = contents ? parts(contents, 'a[href^="#"]', HTMLAnchorElement) : [];
  /** @type {HTMLAnchorElement | undefined} */
  let current;
  const mark = () => {
    // links in a closed part of the contents are not seen
    const begun = links.filter((link) => {
      const target = linkTarget(link.hash);
      return link.offsetParent && target?.checkVisibility() && target.getBoundingClientRect().top < TOP * innerHeight;
    });
    const isAtEnd = scrollY + innerHeight >= document.documentElement.scrollHeight - 1;
    const next = (isAtEnd && scrollY > 0 ? links.filter((link) => link.offsetParent) : begun).at(-1) ?? links[0];
    if (next === current) return;
    current?.removeAttribute("aria-current");
    next.setAttribute("aria-current", "true");
    const [link, list] = [next, next.parentElement?.parentElement].map((element) => element?.getBoundingClientRect());
    // scrollIntoView would end a scroll of the page
    if (link && list) next.parentElement?.parentElement?.scrollBy(link.left + link.width / 2 - list.left - list.width / 2, 0);
    current = next;
  };
  let isWaiting = false;
  const soon = () => {
    if (!isWaiting) requestAnimationFrame(() => ((isWaiting = false), mark()));
    isWaiting = true;
  };
  if (!links.length) return;
  window.addEventListener("scroll", soon, { passive: true });
  window.addEventListener("resize", soon, { passive: true });
  mark();
}
