// The columns of steps lead to the timeline: a chosen column shows that step, or the slowest of several.

import { parts } from "../dom.js";
import { PictureParts } from "./parts.js";

export function showStepColumns() {
  if (!document.getElementById("timeline")) return;
  for (const picture of parts(document, ".step-columns", SVGElement)) {
    picture.classList.add("is-live");
    new PictureParts(picture, ["group", "button"], (part) => {
      const [from, to] = (part.dataset.span ?? "").split(" ").map(Number);
      const detail = { from_ns: from, to_ns: to, of_window: true };
      document.dispatchEvent(new CustomEvent("timeline:show", { detail }));
    });
  }
}
