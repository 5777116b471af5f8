// How the timeline writes times, amounts and names.

const TIME_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const AMOUNT_PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const EVENT_COLORS = 8; // --event-1 to --event-8
const FIXED_NUMBERS = []; // by decimals
const SCALAR_NUMBER = new Intl.NumberFormat("en-US", { maximumFractionDigits: 3 });

function countText(count, noun) {
  return `${SCALAR_NUMBER.format(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function unitOfTime(ns) {
  return TIME_UNITS.find(([size]) => Math.abs(ns) >= size) ?? TIME_UNITS.at(-1);
}

function fixedText(value, decimals) {
  const digits = Math.min(Math.max(decimals, 0), 9);
  FIXED_NUMBERS[digits] ??= new Intl.NumberFormat("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
    signDisplay: "negative", // never −0
  });
  return FIXED_NUMBERS[digits].format(value).replace("-", "−");
}

// A length of time: 832 ns, 12.345 µs, 1.205 s.
function durationText(ns) {
  const [size, unit] = unitOfTime(ns);
  return `${fixedText(ns / size, size === 1 ? 0 : 3)} ${unit}`;
}

// A point in time, exact to the nanosecond: 1,204.345678 ms.
function instantText(ns) {
  return `${fixedText(ns / 1e6, 6)} ms`;
}

// Both ends of a view, in the unit of its axis.
function rangeText(from, to) {
  const [size, unit] = unitOfTime(Math.max(Math.abs(from), Math.abs(to)));
  const decimals = Math.min(decimalsFor((to - from) / 10_000, size), Math.log10(size));
  const [first, last] = [from, to].map((time) => `${fixedText(time / size, decimals)} ${unit}`);
  return `${first} to ${last} (${durationText(to - from)})`;
}

function shareText(share) {
  return share > 0 && share < 0.0005 ? "<0.1 %" : `${fixedText(100 * share, 1)} %`;
}

function amountText(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "pct") return `${fixedText(value, 1)} %`;
  if (unit !== "bytes") return SCALAR_NUMBER.format(value);
  const [size, prefix] = AMOUNT_PREFIXES.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
  return `${fixedText(value / size, size === 1 ? 0 : 2)} ${prefix}B`;
}

// The smallest of 1, 2, 5, 10, 20 ... that is at least `least`.
function tickStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? 10 * power;
}

function decimalsFor(step, size) {
  return Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
}

// The ticks of a view: [time, text] each, counted from `origin`. Where that would be long, they count from another
// point in time that is written once, `baseText`.
function timeTicks(view, origin, least) {
  const step = tickStep(least);
  const [from, to] = [view.from - origin, view.to - origin];
  let [size, unit] = unitOfTime(Math.max(Math.abs(from), Math.abs(to)));
  let base = 0;
  let baseText = "";
  if (decimalsFor(step, size) > 3) {
    const grain = 10 ** Math.ceil(Math.log10(to - from));
    base = Math.floor(from / grain) * grain;
    baseText = `${fixedText(base / size, decimalsFor(grain, size))} ${unit}`;
    [size, unit] = unitOfTime(to - base);
  }
  const ticks = [];
  for (let tick = Math.ceil(from / step); tick * step <= to; tick++) {
    const text = `${fixedText((tick * step - base) / size, decimalsFor(step, size))} ${unit}`;
    ticks.push([tick * step + origin, baseText ? `+${text}` : text]);
  }
  return { ticks, baseText };
}

// A kernel's name for a small place: no return type, parameters or namespaces. Other names are what people chose.
function shortKernelName(name) {
  if (!/[<(]|::/.test(name)) return name;
  let text = name.replace(/^void /, "").replaceAll("(anonymous namespace)::", "").replaceAll("<unnamed>::", "");
  for (let longer = ""; longer !== text; ) {
    longer = text;
    text = text.replace(/\([^()]*\)/g, "");
  }
  return text.replace(/\b[A-Za-z_]\w*::/g, "").trim() || name;
}

// The same name has the same colour in every page (FNV-1a).
function eventColor(name) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < name.length; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193);
  return ((hash ^ (hash >>> 15)) >>> 0) % EVENT_COLORS;
}
