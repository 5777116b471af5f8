// Formats numbers with units exactly as pipeline/nightsight/units.py does; tests compare the two.

export const ABSENT = "–";
export const MINUS = "−";
const DIGITS = 4;
const MOST_DECIMALS = 3;
/** @type {Record<string, [divisor: number, symbol: string][]>} */
export const SCALES = {
  ns: [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]],
  bytes: [[1, "B"], [1e3, "kB"], [1e6, "MB"], [1e9, "GB"], [1e12, "TB"]],
  flop: [[1, "FLOP"], [1e3, "kFLOP"], [1e6, "MFLOP"], [1e9, "GFLOP"], [1e12, "TFLOP"], [1e15, "PFLOP"]],
  bytes_per_s: [[1, "B/s"], [1e3, "kB/s"], [1e6, "MB/s"], [1e9, "GB/s"], [1e12, "TB/s"]],
  flop_per_s: [
    [1, "FLOP/s"],
    [1e3, "kFLOP/s"],
    [1e6, "MFLOP/s"],
    [1e9, "GFLOP/s"],
    [1e12, "TFLOP/s"],
    [1e15, "PFLOP/s"],
  ],
  op: [[1, "OP"], [1e3, "kOP"], [1e6, "MOP"], [1e9, "GOP"], [1e12, "TOP"], [1e15, "POP"]],
  op_per_byte: [[1, "OP/byte"]],
  op_per_s: [[1, "OP/s"], [1e3, "kOP/s"], [1e6, "MOP/s"], [1e9, "GOP/s"], [1e12, "TOP/s"], [1e15, "POP/s"]],
  flop_per_byte: [[1, "FLOP/byte"]],
  per_s: [[1, "/s"], [1e3, "k/s"], [1e6, "M/s"]],
  hz: [[1, "Hz"], [1e3, "kHz"], [1e6, "MHz"], [1e9, "GHz"]],
  pct: [[1, "%"]],
  "": [[1, ""]],
};
/** @type {Record<string, number>} */
const PREFIXES = { "": 1, n: 1e-9, µ: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
const SYMBOL = /^([nµmkMGTP]?)(s|B|B\/s|FLOP|FLOP\/s|OP|OP\/s|Hz|\/s)$/;
const TEXT = /^(<|>−|−)?(\d[\d,]*(?:\.\d+)?)(?: (.+))?$/;

/**
 * How a column is formatted; `divisor` and `decimals` suit all of its values.
 * @typedef {{ unit: string, divisor: number, decimals: number }} ColumnScale
 */

/**
 * The divisor and the unit symbol that suit a value.
 * @param {number} value
 * @param {string} unit
 * @returns {[number, string]}
 */
export function scaleFor(value, unit) {
  const scales = SCALES[unit];
  return scales.findLast(([least]) => Math.abs(value) >= least) ?? scales[0];
}

/**
 * A number with its unit, at its own scale.
 * @param {number | null | undefined} value
 * @param {string} unit
 */
export function formatValue(value, unit) {
  if (!isKnown(value)) return ABSENT;
  const [divisor, symbol] = scaleFor(value, unit);
  return `${scaled(value, divisor, decimalsOf(Math.abs(value), unit, divisor))} ${symbol}`.trimEnd();
}

/**
 * A number in its column, without a unit; a value too small for the column's scale has its own unit.
 * @param {number | null} value
 * @param {ColumnScale} column
 */
export function formatCell(value, { unit, divisor, decimals }) {
  const text = isKnown(value) ? scaled(value, divisor, decimals) : ABSENT;
  if (!isSliver(text)) return text;
  const ownText = formatValue(value, unit);
  return isSliver(ownText) ? text : ownText;
}

/**
 * The labels of an axis, on one scale and with as many decimals as distinguish them.
 * @param {number[]} values
 * @param {string} unit
 */
export function formatTicks(values, unit) {
  const sizes = values.map(Math.abs);
  const [divisor, symbol] = scaleFor(Math.max(...sizes), unit);
  const step = Math.min(...values.slice(1).map((value, at) => Math.abs(value - values[at]))) / divisor;
  const decimals = Number.isFinite(step) && step > 0 ? Math.min(Math.max(Math.ceil(-Math.log10(step) - 1e-9), 0), MOST_DECIMALS) : 0;
  return values.map((value) => `${formatFixed(value / divisor, decimals)} ${symbol}`.trimEnd());
}

/**
 * An integer with thousands separators.
 * @param {number} count
 */
export function formatCount(count) {
  return formatFixed(count, 0);
}

/**
 * A number with a fixed number of decimals, like Python's f"{value:,.{decimals}f}", with a real minus.
 * @param {number} value
 * @param {number} decimals
 */
export function formatFixed(value, decimals) {
  const [whole, part] = rounded(Math.abs(value), decimals).split(".");
  const sign = value < 0 || Object.is(value, -0) ? MINUS : "";
  return sign + whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
}

/**
 * Parses the text of a table cell whose column has this unit symbol; NaN if it has no value. Times are returned in
 * nanoseconds, all other values in the unit without prefix.
 * @param {string} text
 * @param {string} symbol
 */
export function readNumber(text, symbol) {
  const parts = TEXT.exec(text.trim());
  if (!parts) return NaN;
  const [, sign = "", digits, ownSymbol] = parts;
  const size = Number(digits.replaceAll(",", "")) * factorOf(ownSymbol ?? symbol);
  const value = isSliver(sign) ? size / 2 : size;
  return Number((sign.includes(MINUS) ? -value : value).toPrecision(12));
}

/**
 * @param {number | null | undefined} value
 * @returns {value is number}
 */
function isKnown(value) {
  return value !== null && Number.isFinite(value);
}

/**
 * Whether a text represents a value too close to 0 for its scale: `<0.001` or `>−0.001`.
 * @param {string} text
 */
function isSliver(text) {
  return text.startsWith("<") || text.startsWith(`>${MINUS}`);
}

/**
 * The number of decimals that shows four digits of a value, at most three decimals.
 * @param {number} size
 * @param {string} unit
 * @param {number} divisor
 */
function decimalsOf(size, unit, divisor) {
  if (unit === "pct") return 1;
  if (size === 0 || (divisor === 1 && Number.isInteger(size))) return 0;
  const magnitude = Math.floor(Math.log10(size / divisor));
  const digits = unit ? DIGITS : DIGITS - 1; // numbers without a unit, such as means of counts, have one less
  return Math.min(Math.max(digits - 1 - magnitude, -magnitude, 0), MOST_DECIMALS);
}

/**
 * @param {number} value
 * @param {number} divisor
 * @param {number} decimals
 */
function scaled(value, divisor, decimals) {
  if (value === 0) return "0";
  const size = value / divisor;
  const least = 1 / 10 ** decimals;
  if (size !== 0 && Math.abs(size) < least / 2) return `${value > 0 ? "<" : `>${MINUS}`}${least.toFixed(decimals)}`;
  return formatFixed(size, decimals);
}

/**
 * Rounds ties to even, like Python; toFixed rounds them up. A double of this size that continues with a 5 and 24 zeros
 * is an exact tie.
 * @param {number} size
 * @param {number} decimals
 */
function rounded(size, decimals) {
  if (size >= 1e21) return BigInt(size).toString() + (decimals ? `.${"0".repeat(decimals)}` : "");
  const exact = size.toFixed(decimals + 25);
  const truncated = exact.slice(0, -25).replace(/\.$/, "");
  const isTie = exact.endsWith(`5${"0".repeat(24)}`);
  return isTie && "02468".includes(truncated.slice(-1)) ? truncated : size.toFixed(decimals);
}

/**
 * The factor from a unit symbol to the base unit: `ms` to ns, `MB` to B.
 * @param {string} symbol
 */
function factorOf(symbol) {
  const [, prefix, unit] = SYMBOL.exec(symbol) ?? [symbol, "", ""];
  return PREFIXES[prefix] * (unit === "s" ? 1e9 : 1);
}
