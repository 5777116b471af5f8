// Binary search in ascending numbers.

/**
 * The first index from `low` to `high` whose value is at least `value`; `high` if there is none.
 * @param {ArrayLike<number>} values
 * @param {number} value
 * @param {number} [low]
 * @param {number} [high]
 */
export function firstAtLeast(values, value, low = 0, high = values.length) {
  let [first, end] = [low, high];
  while (first < end) {
    const middle = (first + end) >> 1;
    if (values[middle] < value) first = middle + 1;
    else end = middle;
  }
  return first;
}

/**
 * The first index from `low` to `high` whose value is greater than `value`; `high` if there is none.
 * @param {ArrayLike<number>} values
 * @param {number} value
 * @param {number} [low]
 * @param {number} [high]
 */
export function firstAbove(values, value, low = 0, high = values.length) {
  let [first, end] = [low, high];
  while (first < end) {
    const middle = (first + end) >> 1;
    if (values[middle] <= value) first = middle + 1;
    else end = middle;
  }
  return first;
}
