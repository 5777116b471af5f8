// Search queries: plain text matches as a substring, /like this/ as a regular expression; both ignore case.

export const NO_EXPRESSION = "Invalid regular expression";

/**
 * A test whether a text matches the query; null for an empty query, undefined for an invalid one.
 * @param {string} query
 * @returns {((text: string) => boolean) | null | undefined}
 */
export function textTest(query) {
  const text = query.trim();
  if (!text) return null;
  if (text.length > 2 && text.startsWith("/") && text.endsWith("/")) {
    try {
      const pattern = new RegExp(text.slice(1, -1), "i");
      return (name) => pattern.test(name);
    } catch {
      return undefined;
    }
  }
  const part = text.toLowerCase();
  return (name) => name.toLowerCase().includes(part);
}

/**
 * Escapes a text so that it matches itself in a regular expression.
 * @param {string} text
 */
export function literally(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
