// Reads the packed integer columns (written by nightsight/render/timeline/columns.py).

/**
 * `at`: where the columns begin in the binary; `columns`: count and bytes per number of each.
 * @typedef {{ at: number, columns: Record<string, [number, number]> }} ColumnsHeader
 * @typedef {Int32Array | Float64Array} Numbers
 */

/**
 * The columns by name. A column stores the lowest byte of all its numbers, then the second byte, and so on, in two's
 * complement: the last byte has the sign. Numbers of more than four bytes become doubles, which are exact up to 2^53.
 * @param {ColumnsHeader} header
 * @param {Uint8Array} binary
 * @returns {Record<string, Numbers>}
 */
export function readColumns({ at, columns }, binary) {
  /** @type {Record<string, Numbers>} */
  const numbersByName = {};
  for (const [name, [count, width]] of Object.entries(columns)) {
    const numbers = width > 4 ? new Float64Array(count) : new Int32Array(count);
    for (let place = 0; place < width; place++, at += count) {
      const [factor, sign] = [256 ** place, place === width - 1 ? 128 : 0];
      for (let number = 0; number < count; number++) {
        numbers[number] += ((binary[at + number] ^ sign) - sign) * factor;
      }
    }
    numbersByName[name] = numbers;
  }
  return numbersByName;
}

/**
 * Turns differences back into numbers.
 * @param {ArrayLike<number>} differences
 */
export function runningSums(differences) {
  let sum = 0;
  return Float64Array.from(differences, (difference) => (sum += difference));
}
