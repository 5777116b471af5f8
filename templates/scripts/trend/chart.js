// A chart for each workload: a series over all nights, with its levels, epochs and changes. uPlot draws the lines.

import { newElement, part, parts } from "../dom.js";
import { formatTicks, formatValue } from "../numbers.js";
import { canUnpack, unpacked } from "../payload.js";

/** @import { Change, Epoch, Group, Plot, Series, Values } from "./types.js" */

const LEAST_SPAN = 0.06; // of the value: noise must not look like a mountain
const HEIGHT = 240;
const LINES = ["--blue", "--green", "--purple", "--gold"];

/**
 * A night in a chart; `night`: its index in the epoch; `part`: the part of the series that it belongs to.
 * @typedef {{ epoch: Epoch, night: number, time: number, value: number | null, part: number }} Night
 */

/**
 * A mark across the chart.
 * @typedef {{ time: number, text: string, color: string, isDashed: boolean }} Mark
 */

/** @param {string} name */
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** @param {number} time */
function day(time) {
  return new Date(time * 1000).toISOString().slice(0, 10);
}

/**
 * The nights of a series by time, and for each epoch its values and its levels, with gaps elsewhere.
 * @param {Group} group
 * @param {Series} series
 */
function chartColumns(group, series) {
  /** @type {Night[]} */
  const points = [];
  series.parts.forEach(([number, median, steps], of) => {
    const epoch = group.epochs[number];
    steps.forEach((step, night) => {
      points.push({ epoch, night, time: epoch.times[night], value: step === null ? null : median * (1 + step / 1e4), part: of });
    });
  });
  points.sort((a, b) => a.time - b.time || a.part - b.part);
  /** @type {Values[]} */
  const columns = [points.map(({ time }) => time)];
  series.parts.forEach(([, , , levels], of) => {
    columns.push(points.map((point) => (point.part === of ? point.value : null)));
    columns.push(points.map((point) => {
      const level = point.part === of && levels.find(([first, last]) => point.night >= first && point.night <= last);
      return level ? level[2] : null;
    }));
  });
  return { points, columns };
}

/**
 * Marks where epochs begin and levels change.
 * @param {Group} group
 * @param {Series} series
 * @returns {Mark[]}
 */
function marksOf(group, series) {
  return series.parts.flatMap(([number, , , , changes], index) => {
    const epoch = group.epochs[number];
    const begin = index ? [{ time: epoch.times[0], text: "epoch", color: color("--gray"), isDashed: true }] : [];
    return [...begin, ...changes.map((change) => markOf(epoch, change))];
  });
}

/**
 * @param {Epoch} epoch
 * @param {Change} change
 */
function markOf(epoch, [night, state, commit, percent]) {
  const size = percent === null ? "from 0" : `${percent > 0 ? "+" : ""}${formatValue(percent, "pct")}`;
  const tone = state === "confirmed" ? (percent !== null && percent < 0 ? "--green" : "--error") : "--warning";
  return { time: epoch.times[night], text: [size, commit].filter(Boolean).join(" "), color: color(tone), isDashed: false };
}

class Trend {
  /**
   * @param {HTMLElement} figure
   * @param {Group} group
   */
  constructor(figure, group) {
    this.group = group;
    this.drawn = part(figure, ".drawn", HTMLElement);
    this.reading = part(figure, ".reading", HTMLElement);
    this.select = part(figure, "select", HTMLSelectElement);
    part(figure, ".chosen", HTMLElement).hidden = false;
    /** @type {Plot | null} */
    this.plot = null;
    /** @type {Night[]} */
    this.points = [];
    /** @type {Mark[]} */
    this.marks = [];
    this.select.addEventListener("change", () => this.show());
    new ResizeObserver(() => this.plot?.setSize(this.size)).observe(this.drawn);
    this.show();
  }

  get size() {
    return { width: this.drawn.clientWidth, height: HEIGHT };
  }

  get series() {
    return this.group.series[Number(this.select.value)];
  }

  show() {
    this.plot?.destroy();
    const { points, columns } = chartColumns(this.group, this.series);
    this.points = points;
    this.marks = marksOf(this.group, this.series);
    this.drawn.replaceChildren();
    this.plot = new uPlot(this.options(), columns, this.drawn);
    this.makeReadable(this.plot);
    this.read(this.newest);
  }

  /** The index of the newest night with a value. */
  get newest() {
    return this.points.findLastIndex(({ value }) => value !== null);
  }

  options() {
    const { unit } = this.series;
    const axis = { stroke: color("--muted"), grid: { stroke: color("--rule"), width: 1 }, ticks: { show: false } };
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    return {
      ...this.size,
      legend: { show: false },
      padding: [16, 8, 0, 0],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: true }, y: { range: (/** @type {Plot} */ _, /** @type {number} */ low, /** @type {number} */ high) => widened(low, high) } },
      axes: [
        { ...axis, font, space: 90, size: 32, values: (/** @type {Plot} */ _, /** @type {number[]} */ times) => times.map(day) },
        { ...axis, font, size: 74, values: (/** @type {Plot} */ _, /** @type {number[]} */ values) => formatTicks(values, unit) },
      ],
      series: [{}, ...this.series.parts.flatMap((_, index) => lines(color(LINES[index % LINES.length])))],
      hooks: {
        draw: [(/** @type {Plot} */ plot) => this.drawMarks(plot)],
        setCursor: [(/** @type {Plot} */ plot) => this.read(plot.cursor.idx ?? this.newest)],
      },
    };
  }

  /** @param {Plot} plot */
  drawMarks(plot) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    ctx.lineWidth = ratio;
    ctx.textAlign = "left";
    let free = -Infinity; // a text that would cover another is omitted
    for (const mark of this.marks.toSorted((a, b) => a.time - b.time)) {
      const x = Math.round(plot.valToPos(mark.time, "x", true));
      ctx.strokeStyle = ctx.fillStyle = mark.color;
      ctx.setLineDash(mark.isDashed ? [4 * ratio, 4 * ratio] : []);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const { width } = ctx.measureText(mark.text);
      const left = Math.min(Math.max(x - width / 2, 0), bbox.left + bbox.width - width);
      if (left < free) continue;
      ctx.fillText(mark.text, left, bbox.top - 4 * ratio);
      free = left + width + 8 * ratio;
    }
    ctx.restore();
  }

  /**
   * Lets keys read the nights, as the pointer does.
   * @param {Plot} plot
   */
  makeReadable(plot) {
    const { over } = plot;
    over.tabIndex = 0;
    over.setAttribute("role", "group");
    over.setAttribute("aria-roledescription", "chart");
    over.setAttribute("aria-label", "Nights: left and right arrow keys move, Enter opens the report");
    over.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) {
        event.preventDefault();
        this.moveTo(Math.min(Math.max((plot.cursor.idx ?? this.newest) + step, 0), this.points.length - 1));
      } else if (event.key === "Enter") {
        this.reading.querySelector("a")?.click();
      }
    });
    over.addEventListener("click", () => this.reading.querySelector("a")?.click());
  }

  /** @param {number} index */
  moveTo(index) {
    const { time, value } = this.points[index];
    const top = value === null ? 0 : this.plot?.valToPos(value, "y") ?? 0;
    this.plot?.setCursor({ left: this.plot.valToPos(time, "x"), top });
  }

  /**
   * Shows the value and the facts of a night.
   * @param {number} index
   */
  read(index) {
    const point = this.points[index];
    if (!point) return;
    const { epoch, night, time, value } = point;
    const [commit, runs, flags, link] = [epoch.commits, epoch.runs, epoch.flags, epoch.links].map((facts) => facts[night]);
    const texts = [day(time), formatValue(value, this.series.unit), runs === 1 ? "1 run" : `${runs} runs`];
    if (commit) texts.push(`commit ${commit}`);
    texts.push(epoch.key);
    this.reading.replaceChildren(texts.join(" · "));
    if (flags) this.reading.append(" · ", newElement("strong", { className: "disturbed" }, `${flags}, not tested`));
    if (link) this.reading.append(" · ", newElement("a", { href: String(link) }, "report"));
  }
}

/**
 * @param {number} low
 * @param {number} high
 */
function widened(low, high) {
  const missing = Math.max(LEAST_SPAN * high - (high - low), 0.1 * (high - low)) || 1;
  return [Math.max(low - missing / 2, 0), high + missing / 2];
}

/** @param {string} stroke */
function lines(stroke) {
  return [
    { stroke, width: 1, spanGaps: true, points: { show: true, size: 4, fill: stroke } },
    { stroke, width: 2, dash: [6, 3], spanGaps: false, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) },
  ];
}

export async function showTrends() {
  const bytes = canUnpack ? await unpacked("trend-data") : null;
  if (!bytes) return;
  /** @type {Group[]} */
  const groups = JSON.parse(new TextDecoder().decode(bytes));
  const figures = parts(document, "[data-trend]", HTMLElement);
  const trends = figures.map((figure) => new Trend(figure, groups[Number(figure.dataset.trend)]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => trends.forEach((trend) => trend.show()));
  performance.mark("trend: ready");
}
