// Where the addresses of the page lead to.

/**
 * The element that an address leads to; one of a view of the timeline leads to that.
 * @param {string} hash
 */
function linkTarget(hash) {
  return document.getElementById(hash.startsWith("#timeline=") ? "timeline" : hash.slice(1));
}

// A page that was opened at a section goes there again once tables or the timeline above it have grown, until the
// reader moves. A page that comes back is where the browser puts it.
let isAtTarget = false;

export function keepTarget() {
  if (isAtTarget && location.hash) linkTarget(location.hash)?.scrollIntoView({ behavior: "instant" });
}

/**
 * A sandboxed frame may not follow the links of its own page where that is a file.
 * @param {MouseEvent} event
 */
function followInFrame(event) {
  const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
  const target = link instanceof HTMLAnchorElement ? linkTarget(link.hash) : null;
  if (!target) return;
  event.preventDefault();
  target.tabIndex = -1; // the Tab key goes on from here
  target.focus({ preventScroll: true });
  target.scrollIntoView();
}

export function listenToLinks() {
  const [navigation] = performance.getEntriesByType("navigation");
  isAtTarget = navigation instanceof PerformanceNavigationTiming && navigation.type === "navigate";
  for (const name of ["wheel", "pointerdown", "keydown", "touchmove"]) {
    window.addEventListener(name, () => (isAtTarget = false), { once: true, passive: true });
  }
  if (window.parent !== window) document.addEventListener("click", followInFrame);
}
