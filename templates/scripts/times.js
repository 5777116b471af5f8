// Shows times of runs in the reader's time zone too; the page itself, and what is exported from it, has UTC.

/** @param {HTMLTimeElement} time */
function localTime(time) {
  const date = new Date(time.dateTime);
  if (Number.isNaN(date.getTime())) return;
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const text = format.format(date);
  time.title = text;
  if (!time.closest(".facts") || !date.getTimezoneOffset()) return;
  const local = document.createElement("span");
  local.className = "local-time";
  local.lang = format.resolvedOptions().locale;
  local.textContent = ` (${text})`;
  time.after(local);
}

export function showLocalTimes() {
  for (const time of /** @type {NodeListOf<HTMLTimeElement>} */ (document.querySelectorAll("time[datetime]"))) localTime(time);
}
