// Links to sections of the page.

/**
 * The target element of a hash; the hash of a timeline view (#timeline=...) leads to the timeline.
 * @param {string} hash
 */
function linkTarget(hash) {
  return document.getElementById(hash.startsWith("#timeline=") ? "timeline" : hash.slice(1));
}

// A page opened at a section scrolls there again after tables or the timeline above it have grown, until the reader
// scrolls. On reload or Back, the browser restores the position itself.
let isAtTarget = false;

export function keepTarget() {
  if (isAtTarget && location.hash) linkTarget(location.hash)?.scrollIntoView({ behavior: "instant" });
}

/**
 * A sandboxed frame cannot follow links inside its own page if that is a local file: scroll to the target instead.
 * @param {MouseEvent} event
 */
function followInFrame(event) {
  const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
  const target = link instanceof HTMLAnchorElement ? linkTarget(link.hash) : null;
  if (!target) return;
  event.preventDefault();
  target.tabIndex = -1; // so that the Tab key continues from here
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
