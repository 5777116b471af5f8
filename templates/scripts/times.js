// Shows times of runs in the reader's time zone, too; the page itself and its exports have UTC.

import { newElement, parts } from "./dom.js";

/** @param {HTMLTimeElement} time */
function showLocalTime(time) {
  const date = new Date(time.dateTime);
  if (Number.isNaN(date.getTime())) return;
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const text = format.format(date);
  time.title = text;
  if (!time.closest(".facts") || !date.getTimezoneOffset()) return;
  const { locale } = format.resolvedOptions();
  time.after(newElement("span", { className: "local-time", lang: locale }, ` (${text})`));
}

export function showLocalTimes() {
  for (const time of parts(document, "time[datetime]", HTMLTimeElement)) showLocalTime(time);
}
