// Columns of whole numbers, as they are packed into the page.

/**
 * Where columns begin in the binary; how many numbers each has, and of how many bytes.
 * @typedef {{ at: number, columns: Record<string, [number, number]> }} ColumnsHeader
 * @typedef {Int32Array | Float64Array} Numbers
 */

/**
 * The columns by their names. Of each the lowest bytes of all numbers come first, then their second bytes ..., in two's
 * complement: the last ones have the sign. Numbers of up to four bytes are integers to JavaScript too, longer ones are
 * exact up to 2^53.
 * @param {ColumnsHeader} header
 * @param {Uint8Array} binary
 * @returns {Record<string, Numbers>}
 */
export function readColumns({ at, columns }, binary) {
  /** @type {Record<string, Numbers>} */
  const found = {};
  for (const [name, [count, width]] of Object.entries(columns)) {
    const numbers = width > 4 ? new Float64Array(count) : new Int32Array(count);
    for (let place = 0; place < width; place++, at += count) {
      const [factor, sign] = [256 ** place, place === width - 1 ? 128 : 0];
      for (let number = 0; number < count; number++) {
        numbers[number] += ((binary[at + number] ^ sign) - sign) * factor;
      }
    }
    found[name] = numbers;
  }
  return found;
}
