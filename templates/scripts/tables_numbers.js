// Numbers in tables, as pipeline/units.py writes them: Python hands over scales and digits, this repeats its arithmetic.

class TableNumbers {
  static ABSENT = "–";
  static LEAST = [1, 0.1, 0.01, 0.001];
  static PREFIXES = { "": 1, n: 1e-9, µ: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
  static SYMBOL = /^([nµmkMGTP]?)(s|B|B\/s|FLOP\/s|Hz|\/s)$/;
  static TEXT = /^(<|>-|-)?(\d[\d,]*(?:\.\d+)?)(?: (.+))?$/;

  constructor({ scales, digits, most_decimals: mostDecimals }) {
    Object.assign(this, { scales, digits, mostDecimals });
  }

  // A value in its column: `column` has unit, divisor and decimals. What would read as `<0.001` has a unit of its own.
  cell(value, column) {
    const text = TableNumbers.scaled(value, column.divisor, column.decimals);
    if (!TableNumbers.isSliver(text)) return text;
    const own = this.own(value, column.unit);
    return TableNumbers.isSliver(own) ? text : own;
  }

  own(value, unit) {
    const size = Math.abs(value);
    const scales = this.scales[unit];
    const [divisor, symbol] = scales.filter(([least]) => size >= least).at(-1) ?? scales[0];
    const text = TableNumbers.scaled(value, divisor, this.#decimals(size, unit, divisor));
    return `${text} ${symbol}`.trimEnd();
  }

  #decimals(size, unit, divisor) {
    if (unit === "pct") return 1;
    if (divisor === 1 && Number.isInteger(size)) return 0;
    const magnitude = Math.floor(Math.log10(size / divisor));
    return Math.min(Math.max(this.digits - 1 - magnitude, -magnitude, 0), this.mostDecimals);
  }

  static isSliver(text) {
    return text.startsWith("<") || text.startsWith(">-");
  }

  static scaled(value, divisor, decimals) {
    if (value === null || !Number.isFinite(value)) return TableNumbers.ABSENT;
    if (value === 0) return "0";
    const scaled = value / divisor;
    const least = TableNumbers.LEAST[decimals];
    if (scaled !== 0 && Math.abs(scaled) < least / 2) return `${value > 0 ? "<" : ">-"}${least.toFixed(decimals)}`;
    return TableNumbers.fixed(scaled, decimals);
  }

  // Python's f"{value:,.{decimals}f}"
  static fixed(value, decimals) {
    const [whole, part] = TableNumbers.rounded(Math.abs(value), decimals).split(".");
    const sign = value < 0 || Object.is(value, -0) ? "-" : "";
    return sign + whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
  }

  // toFixed takes the larger of two that are equally near, Python the even one. A number of this size that goes on
  // with 5 and 24 zeros goes on with nothing else.
  static rounded(size, decimals) {
    if (size >= 1e21) return BigInt(size).toString() + (decimals ? `.${"0".repeat(decimals)}` : "");
    const exact = size.toFixed(decimals + 25);
    const kept = exact.slice(0, -25).replace(/\.$/, "");
    return exact.endsWith(`5${"0".repeat(24)}`) && "02468".includes(kept.at(-1)) ? kept : size.toFixed(decimals);
  }

  // The value that a cell of a column with this unit shows, in the unit that the column's name has; NaN if none.
  static read(text, symbol) {
    const parts = TableNumbers.TEXT.exec(text.trim());
    if (!parts) return NaN;
    const [, sign = "", digits, own] = parts;
    const size = Number(digits.replaceAll(",", "")) * TableNumbers.factor(own ?? symbol);
    const value = TableNumbers.isSliver(sign) ? size / 2 : size;
    return Number((sign.includes("-") ? -value : value).toPrecision(12));
  }

  // Times are in nanoseconds, all else is in the unit without prefix.
  static factor(symbol) {
    const [, prefix, unit] = TableNumbers.SYMBOL.exec(symbol) ?? [symbol, "", ""];
    return TableNumbers.PREFIXES[prefix] * (unit === "s" ? 1e9 : 1);
  }
}
