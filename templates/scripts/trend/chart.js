// A chart for each workload: one series over all nights, its levels, epochs and changes. uPlot draws the lines.

import { part } from "../dom.js";
import { formatValue } from "../numbers.js";
import { canUnpack, unpacked } from "../payload.js";

/** @import { Change, Epoch, Group, Plot, Series, Values } from "./types.js" */

const LEAST_SPAN = 0.06; // of the value: noise must not look like a mountain
const HEIGHT = 240;
const LINES = ["--blue", "--green", "--purple", "--gold"];

/**
 * A night in a chart: its epoch, and its place there.
 * @typedef {{ epoch: Epoch, place: number, time: number, value: number | null }} Point
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
 * The nights of a series in the order of time, and for each epoch its values and its levels, with gaps elsewhere.
 * @param {Group} group
 * @param {Series} series
 */
function laidOut(group, series) {
  /** @type {(Point & { at: number })[]} */
  const points = [];
  series.parts.forEach(([epoch, middle, steps], at) => {
    steps.forEach((step, place) => {
      const value = step === null ? null : middle * (1 + step / 1e4);
      points.push({ epoch: group.epochs[epoch], place, time: group.epochs[epoch].times[place], value, at });
    });
  });
  points.sort((one, other) => one.time - other.time || one.at - other.at);
  /** @type {Values[]} */
  const columns = [points.map(({ time }) => time)];
  series.parts.forEach(([, , , levels], at) => {
    columns.push(points.map((point) => (point.at === at ? point.value : null)));
    columns.push(points.map((point) => {
      const level = point.at === at && levels.find(([first, last]) => point.place >= first && point.place <= last);
      return level ? level[2] : null;
    }));
  });
  return { points, columns };
}

/**
 * Where epochs begin and levels change.
 * @param {Group} group
 * @param {Series} series
 * @returns {Mark[]}
 */
function marksOf(group, series) {
  return series.parts.flatMap(([number, , , , changes], at) => {
    const epoch = group.epochs[number];
    const begin = at ? [{ time: epoch.times[0], text: "epoch", color: color("--gray"), isDashed: true }] : [];
    return [...begin, ...changes.map((change) => markOf(epoch, change))];
  });
}

/**
 * @param {Epoch} epoch
 * @param {Change} change
 */
function markOf(epoch, [place, state, commit, percent]) {
  const size = percent === null ? "from 0" : `${percent > 0 ? "+" : ""}${percent} %`;
  const tone = state === "confirmed" ? (percent !== null && percent < 0 ? "--green" : "--error") : "--warning";
  return { time: epoch.times[place], text: [size, commit].filter(Boolean).join(" "), color: color(tone), isDashed: false };
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
    /** @type {Point[]} */
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
    const { points, columns } = laidOut(this.group, this.series);
    this.points = points;
    this.marks = marksOf(this.group, this.series);
    this.drawn.replaceChildren();
    this.plot = new uPlot(this.options(), columns, this.drawn);
    this.makeReadable(this.plot);
    this.read(this.lastKnown);
  }

  /** The place of the newest night with a number. */
  get lastKnown() {
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
        { ...axis, font, size: 74, values: (/** @type {Plot} */ _, /** @type {number[]} */ values) => values.map((value) => formatValue(value, unit)) },
      ],
      series: [{}, ...this.series.parts.flatMap((_, at) => lines(color(LINES[at % LINES.length])))],
      hooks: {
        draw: [(/** @type {Plot} */ plot) => this.drawMarks(plot)],
        setCursor: [(/** @type {Plot} */ plot) => this.read(plot.cursor.idx ?? this.lastKnown)],
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
    let free = -Infinity; // texts that would cover another are left out
    for (const mark of this.marks.toSorted((one, other) => one.time - other.time)) {
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
   * The nights are read by keys as well as with the pointer.
   * @param {Plot} plot
   */
  makeReadable(plot) {
    const { over } = plot;
    over.tabIndex = 0;
    over.setAttribute("role", "group");
    over.setAttribute("aria-roledescription", "chart");
    over.setAttribute("aria-label", "Nights: left and right arrow keys move, Enter opens the report");
    over.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (way) {
        event.preventDefault();
        this.moveTo(Math.min(Math.max((plot.cursor.idx ?? this.lastKnown) + way, 0), this.points.length - 1));
      } else if (event.key === "Enter") {
        this.reading.querySelector("a")?.click();
      }
    });
    // the reading says where the link is: a click on the night fixes nothing
    over.addEventListener("click", () => this.reading.querySelector("a")?.click());
  }

  /** @param {number} at */
  moveTo(at) {
    const { time, value } = this.points[at];
    const top = value === null ? 0 : this.plot?.valToPos(value, "y") ?? 0;
    this.plot?.setCursor({ left: this.plot.valToPos(time, "x"), top });
  }

  /**
   * Say what a night measured.
   * @param {number} at
   */
  read(at) {
    const point = this.points[at];
    if (!point) return;
    const { epoch, place, time, value } = point;
    const [commit, runs, flags, link] = [epoch.commits, epoch.runs, epoch.flags, epoch.links].map((all) => all[place]);
    const said = [day(time), formatValue(value, this.series.unit), runs === 1 ? "1 run" : `${runs} runs`];
    if (commit) said.push(`commit ${commit}`);
    said.push(epoch.key);
    this.reading.replaceChildren(said.join(" · "));
    if (flags) this.reading.append(" · ", emphasis(`${flags}, not tested`));
    if (link) this.reading.append(" · ", linkTo(String(link)));
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

/** @param {string} text */
function emphasis(text) {
  const element = document.createElement("strong");
  element.className = "disturbed";
  element.textContent = text;
  return element;
}

/** @param {string} href */
function linkTo(href) {
  const link = document.createElement("a");
  link.href = href;
  link.textContent = "report";
  return link;
}

export async function showTrends() {
  const bytes = canUnpack ? await unpacked("trend-data") : null;
  if (!bytes) return;
  /** @type {Group[]} */
  const groups = JSON.parse(new TextDecoder().decode(bytes));
  /** @type {NodeListOf<HTMLElement>} */
  const figures = document.querySelectorAll("[data-trend]");
  const trends = Array.from(figures, (figure) => new Trend(figure, groups[Number(figure.dataset.trend)]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => trends.forEach((trend) => trend.show()));
  performance.mark("trend: ready");
}
