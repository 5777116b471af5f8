// Copies text to the clipboard, also from pages without access to it, and announces that to screen readers.

import { newElement } from "./dom.js";

/** @param {string} text */
async function toClipboard(text) {
  if (window !== window.parent) return false; // in a frame, even a refusal would log an error
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // no clipboard, or the reader refused
  }
}

/**
 * The older way to copy, for pages without access to the clipboard.
 * @param {string} text
 * @param {HTMLButtonElement} button
 */
function bySelection(text, button) {
  const area = newElement("textarea", { className: "unseen" });
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  button.focus({ preventScroll: true });
  return isCopied;
}

/** @param {string} text */
function announce(text) {
  let status = document.getElementById("copy-status");
  if (!status) {
    status = newElement("p", { className: "unseen", id: "copy-status", role: "status" });
    document.body.append(status);
  }
  status.textContent = text;
}

const SHOWN_MS = 1500;

/**
 * Copies a text. `confirm` shows that on the button, and `restore` undoes it a moment later.
 * @param {string} text
 * @param {HTMLButtonElement} button
 * @param {{ confirm: () => void, restore: () => void }} looks
 */
export async function copyText(text, button, { confirm, restore }) {
  const isCopied = (await toClipboard(text)) || bySelection(text, button);
  announce(isCopied ? "Copied" : "The browser does not allow this page to copy");
  if (!isCopied) return;
  confirm();
  setTimeout(restore, SHOWN_MS);
}
