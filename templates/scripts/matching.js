// What a reader looks for in names and texts: a part of them, or an expression written /like this/.

export const NO_EXPRESSION = "Not a regular expression";

/**
 * A function that tells whether a text holds the query; null for no query, undefined for one that is no expression.
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
 * An expression for exactly this text.
 * @param {string} text
 */
export function literally(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
