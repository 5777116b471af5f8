// The timeline: its state, the actions that change it, and the frames that draw it.

import { newElement, part, shadeLowerEdge } from "../dom.js";
import { MOST_PINNED } from "./address.js";
import { KeyHelp } from "./keys.js";
import { TimelinePainter, foldText, headingText } from "./draw.js";
import { RowFilter } from "./filter.js";
import { FullScreen } from "./full.js";
import { TimeView, TimelineLanes, laneKey } from "./lanes.js";
import { measurement } from "./measure.js";
import { TimelineMinimap } from "./minimap.js";
import { TimelineNotes } from "./notes.js";
import { TimelinePanel } from "./panel.js";
import { TimelinePointer } from "./pointer.js";
import { TimelineSearch } from "./search.js";
import { spanStatistics } from "./statistics.js";
import { SPLIT_LABEL, amountText, countText, instantText, rangeText } from "./text.js";

/**
 * @import { EventLayer, TimelineData } from "./data.js"
 * @import { TimelineHistory } from "./history.js"
 * @import { Alignment } from "./ranks.js"
 * @import { Hit, Lane, Selected, Span } from "./types.js"
 */

const MOST_FRAMES_KEPT = 5000;
const LIST_DELAY = 200; // ms without movement before the list of visible events is updated

export class Timeline {
  /** @type {TimelineLanes} */
  lanes;
  /** @type {number | undefined} */
  listTimer;
  /** @type {string} */
  listed;
  /** @type {Span | null} */
  span;
  /** @type {Lane | null} */
  chosen;
  /** @type {Selected | null} */
  selected;
  /** @type {Hit | null} */
  anchor;
  /** @type {Hit | null} */
  hovered;
  /** @type {TimelineHistory | null} */
  history;

  /**
   * @param {HTMLElement} section
   * @param {TimelineData} data
   */
  constructor(section, data) {
    this.section = section;
    this.data = data;
    this.box = part(section, ".timeline-box", HTMLElement);
    this.canvas = part(section, ".timeline-box canvas", HTMLCanvasElement);
    this.extent = part(section, ".timeline-extent", HTMLElement);
    this.rangeText = part(section, ".timeline-range", HTMLElement);
    this.aligned = part(section, ".timeline-aligned", HTMLElement);
    this.announcement = part(section, ".timeline-announcement", HTMLElement);
    this.view = new TimeView(data.span);
    /** @type {Set<number>} */
    this.collapsed = new Set();
    /** @type {Set<number>} */
    this.unfolded = new Set(); // groups whose empty rows and counters are shown
    /** @type {Set<number>} */
    this.spread = new Set(); // ranks whose similar ranks are shown
    /** @type {string[]} */
    this.pinned = []; // keys of lanes
    this.filter = new RowFilter(this);
    /** @type {Alignment | null} */
    this.alignment = null;
    this.shifts = new Float64Array(data.groups.length); // of the times of each group
    if (data.ranks?.list.some((_, place) => data.ranks?.like(place).length)) this.#collapseProcesses();
    this.chosen = null; // lane
    this.selected = null; // { layer, event, partners }
    this.anchor = null; // the event that a measurement begins at; it ends at the selected one
    this.isSpanLatest = false; // whether the span was selected after the event
    this.hovered = null; // { layer, event }
    /** @type {Lane | null} */
    this.pointed = null; // whose name is under the pointer
    this.span = null; // [from, to]
    this.painter = new TimelinePainter(this.canvas, data);
    this.map = new TimelineMinimap(this);
    this.full = new FullScreen(this);
    this.help = new KeyHelp(section, Boolean(data.ranks));
    this.search = new TimelineSearch(this);
    this.panel = new TimelinePanel(section, this);
    this.notes = new TimelineNotes(this);
    this.pointer = new TimelinePointer(this);
    this.history = null; // set once there is a view to keep
    this.frame = 0;
    this.frames = 0;
    if (data.window) this.view.show(...data.window);
    this.#layOut();
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    shadeLowerEdge(this.box);
    new ResizeObserver(() => this.resize()).observe(this.box);
    window.addEventListener("resize", () => this.resize());
    for (const query of ["(prefers-color-scheme: dark)", "print"]) {
      window.matchMedia(query).addEventListener("change", () => this.#paint());
    }
  }

  get scrollTop() {
    return this.box.scrollTop;
  }

  /** @param {EventLayer} layer */
  matchesOf(layer) {
    return this.search.matchesOf(layer);
  }

  // Draws in the next frame; further calls until then have no effect.
  draw() {
    this.frame ||= requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const start = performance.now();
    this.painter.paint(this);
    this.map.draw();
    const { from, to } = this.view;
    const origin = this.#origin;
    const since = this.alignment ? ` since ${this.data.ranks?.stepName(this.alignment.step)}` : "";
    this.rangeText.textContent = `${rangeText(from - origin, to - origin)}${since}`;
    performance.measure("timeline: frame", { start, end: performance.now() });
    if (++this.frames % MOST_FRAMES_KEPT === 0) performance.clearMeasures("timeline: frame");
    if (!this.panel.list.hidden) this.#listLater();
    this.history?.changed();
  }

  // The reference of the times in view.
  get #origin() {
    const { alignment, data } = this;
    return (alignment && data.ranks?.span(alignment.rank, alignment.step)?.[0]) ?? data.origin;
  }

  // Where ranks are folded, only the rank that the others wait for, else the first one, shows host code.
  #collapseProcesses() {
    const { ranks } = this.data;
    const open = ranks && ranks.awaited >= 0 ? ranks.awaited : ranks?.list.findIndex(({ groups }) => groups.length);
    ranks?.list.forEach(({ groups }, place) => {
      if (place !== open) for (const group of groups.slice(1)) this.collapsed.add(group);
    });
  }

  /**
   * A time in words: since the aligned step of its rank began, if there is one.
   * @param {number} group
   * @param {number} time
   */
  instant(group, time) {
    const { alignment, data, shifts } = this;
    if (!alignment || !data.ranks || Number.isNaN(shifts[group])) return data.instant(time);
    return `${instantText(time + shifts[group] - this.#origin)} since ${data.ranks.stepName(alignment.step)} began`;
  }

  /**
   * The shift of the times of a row.
   * @param {number} row
   */
  shiftOfRow(row) {
    return this.shifts[this.data.rows[row].group] || 0; // NaN: not at all
  }

  // Lets a step begin at the same place on all ranks: that of the selected event, else that in the middle of the view.
  toggleAlignment() {
    const { ranks } = this.data;
    if (!ranks?.canAlign) return;
    if (this.alignment) {
      this.align(null);
      return;
    }
    const { selected, view } = this;
    const group = selected ? this.data.rows[selected.layer.rowOf(selected.event)].group : this.chosen?.group;
    const selectedRank = group === undefined ? -1 : ranks.of[group];
    const hasSteps = selectedRank >= 0 && ranks.list[selectedRank].edges.length > 0;
    const rank = hasSteps ? selectedRank : ranks.list.findIndex(({ edges }) => edges.length > 0);
    // the CPU can be many steps ahead: its GPU work determines the step
    const event = selected && (selected.layer.launch[selected.event] < 0 ? selected.partners[0] : undefined);
    const time = selected && hasSteps ? selected.layer.start[event ?? selected.event] : (view.from + view.to) / 2;
    this.align({ step: ranks.stepAt(rank, time), rank });
  }

  /** @param {Alignment | null} requested */
  align(requested) {
    const { ranks } = this.data;
    const isPossible = requested && ranks?.list[requested.rank] && ranks.span(requested.rank, requested.step);
    const alignment = isPossible ? requested : null;
    const isChanged = Boolean(alignment) || Boolean(this.alignment);
    this.alignment = alignment;
    this.shifts = alignment && ranks ? ranks.shifts(alignment) : new Float64Array(this.data.groups.length);
    part(this.section, '[data-do="align"]', HTMLButtonElement).setAttribute("aria-pressed", String(Boolean(alignment)));
    if (alignment) {
      this.clearSpan(); // a span is one of a single clock, and so is a distance
      this.measureFrom(null);
    }
    if (isChanged) {
      this.panel.showAlignment(alignment);
      this.panel.showEvent(this.selected);
    }
    this.draw();
  }

  #listLater() {
    clearTimeout(this.listTimer);
    const view = `${this.view.from} ${this.view.to} ${this.scrollTop}`;
    if (view === this.listed) return;
    this.listTimer = setTimeout(() => this.#list(view), LIST_DELAY);
  }

  /** @param {string} view */
  #list(view) {
    this.listed = view;
    const { from, to } = this.view;
    const lanes = this.painter.visible(this);
    const rows = lanes.filter(({ kind }) => kind === "row").map(({ index }) => index);
    this.panel.showList(this.data.layerFor(from, to), from, to, rows);
  }

  toggleList() {
    const { list } = this.panel;
    list.hidden = !list.hidden;
    if (!list.hidden) this.#list("");
    return !list.hidden;
  }

  // Lays out the lanes, and an invisible button over each group heading: the canvas draws it, the button takes focus.
  #layOut() {
    const { collapsed, unfolded, spread, pinned, filter } = this;
    this.lanes = new TimelineLanes(this.data, { collapsed: filter.collapsed ?? collapsed, unfolded, spread, pinned, filter: filter.test });
    const { axis } = this.painter;
    const headings = this.lanes.all.filter(({ kind }) => kind === "group" || kind === "fold");
    const buttons = headings.map(({ kind, index, top, height }) => {
      const isFold = kind === "fold";
      const label = isFold ? foldText(this.data, index) : headingText(this.data, index);
      const isOpen = String(isFold ? this.spread.has(index) : !this.isCollapsed(index));
      const button = newElement("button", { type: "button", "aria-label": label, "aria-expanded": isOpen });
      button.style.top = `${axis + top}px`;
      button.style.height = `${height}px`;
      button.style.scrollMarginTop = `${axis + this.lanes.pinnedHeight}px`;
      button.addEventListener("click", () => (isFold ? this.spreadOut(index) : this.toggle(index)));
      return button;
    });
    this.extent.replaceChildren(...buttons);
    this.resize();
  }

  resize() {
    const height = this.painter.axis + this.lanes.height + 4;
    const shown = this.full.isOn ? this.#roomInFull() : Math.min(height, Math.max(Math.round(window.innerHeight * 0.6), 160));
    if (!this.full.isOn) this.box.style.height = `${shown}px`;
    this.painter.resize(this.box.clientWidth, shown, window.devicePixelRatio || 1);
    this.extent.style.height = `${height}px`;
    this.extent.style.marginTop = `${-shown}px`;
    this.#paint(); // immediately: resizing clears the canvas, which would flash
  }

  // In the whole window the style decides how high the box is.
  #roomInFull() {
    this.box.style.height = "";
    return Math.max(this.box.clientHeight, 160);
  }

  /** @param {number} group */
  isCollapsed(group) {
    return (this.filter.collapsed ?? this.collapsed).has(group);
  }

  /** @param {number} group */
  toggle(group) {
    this.#turn(this.filter.collapsed ?? this.collapsed, group);
  }

  /**
   * Pins a lane to the top, where it stays while the others scroll, or puts it back.
   * @param {Lane | null} lane
   */
  togglePin(lane) {
    const key = lane ? laneKey(lane) : "";
    if (!lane || !key) return;
    const isPinned = this.pinned.includes(key);
    this.pinned = isPinned ? this.pinned.filter((other) => other !== key) : [...this.pinned, key].slice(-MOST_PINNED);
    this.arrange();
    const moved = this.lanes.all.find(({ kind, index }) => kind === lane.kind && index === lane.index);
    if (moved) this.choose(moved);
    this.announcement.textContent = `${isPinned ? "Unpinned" : "Pinned"}: ${this.#describe(lane)}`;
  }

  /** The height of pinned lanes that do not scroll: they do if they would take more than half of the room. */
  get stuck() {
    const room = this.painter.height - this.painter.axis;
    return this.lanes.pinnedHeight <= room / 2 ? this.lanes.pinnedHeight : 0;
  }

  /**
   * Shows or hides the rows and counters of a group that are empty.
   * @param {number} group
   */
  fold(group) {
    this.#turn(this.unfolded, group);
  }

  /**
   * Shows or hides the ranks that a rank represents.
   * @param {number} rank
   */
  spreadOut(rank) {
    this.#turn(this.spread, rank);
  }

  /**
   * @param {Set<number>} groups
   * @param {number} group
   */
  #turn(groups, group) {
    if (!groups.delete(group)) groups.add(group);
    this.arrange();
  }

  // Lays out the lanes again, and keeps the chosen one and the focus.
  arrange() {
    const chosen = this.chosen;
    const focused = document.activeElement ? [...this.extent.children].indexOf(document.activeElement) : -1;
    this.#layOut();
    const button = this.extent.children[focused];
    if (button instanceof HTMLElement) button.focus({ preventScroll: true });
    this.chosen = this.lanes.all.find(({ kind, index }) => kind === chosen?.kind && index === chosen.index) ?? null;
    this.#showPin();
    this.draw();
  }

  // The button says whether the chosen lane is pinned.
  #showPin() {
    const button = part(this.section, '[data-do="pin"]', HTMLButtonElement);
    button.disabled = !this.chosen || !laneKey(this.chosen);
    button.setAttribute("aria-pressed", String(Boolean(this.chosen?.isPinned)));
  }

  /** @param {number} y */
  laneAt(y) {
    const place = y - this.painter.axis;
    if (place < 0 || !this.lanes.all.length) return null;
    return this.lanes.all[this.lanes.indexAt(place < this.stuck ? place : place + this.scrollTop)];
  }

  /**
   * The lane whose name is under the pointer.
   * @param {Lane | null} lane
   */
  point(lane) {
    const isSame = lane === this.pointed;
    this.pointed = lane;
    if (!isSame) this.draw();
  }

  /** @param {Lane} lane */
  choose(lane) {
    this.chosen = lane;
    this.#showPin();
    this.#reveal(lane);
    this.announcement.textContent = this.#describe(lane);
    this.draw();
  }

  /** @param {Lane} lane */
  #describe({ kind, index, group }) {
    const { groups, curves, rows } = this.data;
    if (kind === "group") return `${headingText(this.data, index)}, ${this.isCollapsed(index) ? "collapsed" : "expanded"}`;
    if (kind === "fold") return `${foldText(this.data, index)}, ${this.spread.has(index) ? "expanded" : "collapsed"}`;
    if (kind === "split") return `${this.data.groupName(group)}, ${SPLIT_LABEL}`;
    if (kind === "empty") return `${groups[group].label}, ${this.lanes.emptyOf(group).named}`;
    if (kind === "curve") return `${curves[index].label}, maximum ${amountText(curves[index].max, curves[index].unit)}`;
    return `${this.data.groupName(group)}, ${rows[index].label}, ${countText(this.data.layers[0].countOf(index), "event")}`;
  }

  /**
   * Scrolls until a lane is visible.
   * @param {Lane} lane
   */
  #reveal({ top, height, isPinned }) {
    const room = this.painter.height - this.painter.axis;
    if (isPinned && this.stuck) return;
    if (top < this.scrollTop + this.stuck) this.box.scrollTop = top - this.stuck;
    else if (top + height > this.scrollTop + room) this.box.scrollTop = top + height - room + 4;
  }

  /** @param {Hit | null} hit */
  hover(hit) {
    const isSame = hit?.event === this.hovered?.event && hit?.layer === this.hovered?.layer;
    this.hovered = hit;
    if (!isSame) this.draw();
  }

  /** @param {Hit | null} hit */
  select(hit) {
    this.selected = hit && { ...hit, partners: this.#partners(hit), together: hit.layer.together(hit.event) };
    if (!hit) this.anchor = null;
    this.isSpanLatest = false;
    this.panel.showEvent(this.selected);
    this.panel.showMeasure();
    if (hit) this.#chooseRow(hit.layer.rowOf(hit.event));
    this.draw();
  }

  /** @param {Hit | null} hit */
  measureFrom(hit) {
    if (hit && this.alignment) this.align(null);
    this.anchor = this.selected && hit;
    this.panel.showMeasure();
    this.draw();
  }

  /**
   * Measures from the event that a measurement began at, else from the selected one.
   * @param {Hit | null} hit
   */
  measureTo(hit) {
    if (!hit) return;
    const begin = this.anchor ?? this.selected ?? hit;
    this.select(hit);
    this.measureFrom(begin);
  }

  /** Both events of the measurement; null while there are not two. */
  get measured() {
    const { anchor, selected, data } = this;
    if (!anchor || !selected || (anchor.layer === selected.layer && anchor.event === selected.event)) return null;
    return measurement(data, anchor, selected);
  }

  /**
   * Selects the event at a place, or none. The second one completes a measurement, a third one ends it.
   * @param {Hit | null} hit
   */
  pick(hit) {
    if (this.measured) this.anchor = null;
    this.select(hit);
  }

  /** The time of what was selected last: both events of a measurement, a span or an event; null for nothing. */
  get focus() {
    const { measured, selected, span } = this;
    if (span && (this.isSpanLatest || !selected)) return span;
    if (measured) return /** @type {Span} */ ([measured.first.start, measured.first.start + measured.whole]);
    return null;
  }

  /** The time of the selection, also of a single event. */
  get selectedSpan() {
    const { focus, selected } = this;
    return focus ?? (selected && /** @type {Span} */ ([selected.layer.start[selected.event], selected.layer.end[selected.event]]));
  }

  // Zooms to what was selected last.
  zoomToSelection() {
    const { focus, selected } = this;
    if (focus) this.show(...focus);
    else if (selected) this.zoomTo(selected.layer, selected.event);
  }

  // Selects the time of what was selected last as a span; without a selection, what is in view.
  markSelection() {
    const { measured, selected, view } = this;
    const isOfEvent = selected && !this.isSpanLatest && !this.data.isMark(selected.layer, selected.event);
    if (measured && !this.isSpanLatest && measured.drawn[1] > measured.drawn[0]) this.chooseSpan(...measured.drawn);
    else if (isOfEvent) this.chooseSpan(selected.layer.start[selected.event], selected.layer.end[selected.event]);
    else this.chooseShown([view.from, view.to]);
  }

  /**
   * The call that launched an event, or the GPU work that it launched: of a graph, its operations.
   * @param {Hit} hit
   */
  #partners({ layer, event }) {
    return layer.partners(event).filter((partner) => this.data.rows[layer.rowOf(partner)].kind !== "layer");
  }

  /** @param {number} group */
  open(group) {
    const place = this.data.ranks?.of[group] ?? -1;
    const like = this.data.ranks?.list[place]?.like ?? place;
    if (like !== place && !this.spread.has(like) && this.data.ranks?.list[like].groups.length) this.spreadOut(like);
    if (this.isCollapsed(group)) this.toggle(group);
  }

  /** @param {number} row */
  #chooseRow(row) {
    const { group } = this.data.rows[row];
    if (this.lanes.ofRow[row] < 0) {
      this.open(group);
      if (this.lanes.ofRow[row] < 0) this.filter.set("");
      this.open(group);
      if (this.lanes.ofRow[row] < 0) this.fold(group);
    }
    this.chosen = this.lanes.all[this.lanes.ofRow[row]];
    this.#showPin();
    this.#reveal(this.chosen);
  }

  /**
   * Selects an event and brings it into view, zooming only if it would be too small or too large to see.
   * @param {EventLayer} layer
   * @param {number} event
   */
  goTo(layer, event) {
    const best = this.data.finest(layer, event);
    const shift = this.shiftOfRow(best.layer.rowOf(best.event));
    const [start, end] = [best.layer.start[best.event] + shift, best.layer.end[best.event] + shift];
    const isLarge = this.data.isMark(best.layer, best.event) || (end - start) * this.painter.scale > 3;
    if (!isLarge || end - start > this.view.width) this.view.show(start, end, 0.1);
    else if (start < this.view.from || end > this.view.to) this.view.center((start + end) / 2);
    this.select(best);
  }

  /**
   * @param {EventLayer} layer
   * @param {number} event
   * @param {number} [share]
   */
  zoomTo(layer, event, share = 0.6) {
    const best = this.data.finest(layer, event);
    const room = this.data.isMark(best.layer, best.event) ? this.#roomOfMark(best) : 0;
    const shift = this.shiftOfRow(best.layer.rowOf(best.event));
    this.view.show(best.layer.start[best.event] + shift - room, best.layer.end[best.event] + shift + room, share);
    this.select(best);
  }

  /**
   * The time to show around a mark: up to the nearest mark of its row.
   * @param {Hit} hit
   */
  #roomOfMark({ layer, event }) {
    const row = layer.rowOf(event);
    const before = event > layer.begin[row] ? layer.start[event] - layer.start[event - 1] : Infinity;
    const after = event + 1 < layer.begin[row + 1] ? layer.start[event + 1] - layer.start[event] : Infinity;
    return Math.min(before, after, this.data.span / 10);
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  show(from, to) {
    this.view.show(from, to);
    this.draw();
  }

  fit() {
    this.view.fit();
    this.draw();
  }

  /** @param {number} factor */
  zoom(factor) {
    const { selected, view } = this;
    const shift = selected ? this.shiftOfRow(selected.layer.rowOf(selected.event)) : 0;
    const middle = selected ? (selected.layer.start[selected.event] + selected.layer.end[selected.event]) / 2 + shift : NaN;
    view.zoom(factor, middle >= view.from && middle <= view.to ? middle : (view.from + view.to) / 2);
    this.draw();
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  markSpan(from, to) {
    if (this.alignment) this.align(null);
    this.span = [from, to];
    this.draw();
  }

  /**
   * Selects a span that was chosen by hand: no more exactly than the screen shows it, but for the edges of events.
   * @param {Span} span
   * @param {boolean[]} [isAtEdge]
   */
  chooseShown(span, isAtEdge = [false, false]) {
    const { grain } = this.painter;
    const { origin } = this.data;
    const [from, to] = span.map((time, at) => (isAtEdge[at] ? time : Math.round((time - origin) / grain) * grain + origin));
    this.chooseSpan(from, to, isAtEdge.includes(true) ? 1 : grain);
  }

  /**
   * Selects a span (whole ns, inside the capture). The selection becomes the span of the statistics; only a span shorter
   * than one of their steps is unchanged.
   * @param {number} from
   * @param {number} to
   * @param {number} [grain]
   */
  chooseSpan(from, to, grain = 1) {
    if (this.alignment) this.align(null);
    const start = Math.max(Math.round(from), 0);
    /** @type {Span} */
    const requested = [start, Math.max(Math.min(Math.round(to), this.data.span), start + 1)];
    const statistics = spanStatistics(this.data, ...requested);
    const isShort = requested[1] - start < (statistics.step ?? 0);
    this.span = isShort ? requested : [statistics.from, statistics.to];
    this.isSpanLatest = true;
    this.panel.showSpan(statistics, this.span, grain);
    this.draw();
  }

  clearSpan() {
    this.span = null;
    this.panel.showSpan(null, [0, 0]);
    this.draw();
  }

  clear() {
    this.search.clear();
    this.clearSpan();
    this.select(null);
  }

  // Goes to the event of the rank that came last to a collective.
  goToLast() {
    const { selected } = this;
    const event = selected && this.lastOf(selected);
    if (selected && event !== null && event !== undefined) this.goTo(selected.layer, event);
  }

  /**
   * The last event to begin in a collective; null if it is not drawn.
   * @param {Selected} selected
   */
  lastOf({ layer, together }) {
    const { ranks, rows } = this.data;
    if (!ranks?.together || !together.length) return null;
    const { last } = ranks.facts(layer.collectiveOf(together[0]));
    return together.find((event) => last.groups.includes(rows[layer.rowOf(event)].group)) ?? null;
  }

  /**
   * Goes to the next or previous event in the row of the selected event, else in the chosen row.
   * @param {number} direction
   */
  stepEvent(direction) {
    const from = this.selected ?? this.#eventAtEdge(direction);
    if (!from) return;
    const { layer, event } = from;
    const row = layer.rowOf(event);
    const next = event + (this.selected ? direction : 0);
    if (next >= layer.begin[row] && next < layer.begin[row + 1]) this.goTo(layer, next);
  }

  /**
   * The first event of the chosen row that is visible, or the last one for a step backwards.
   * @param {number} direction
   * @returns {Hit | null}
   */
  #eventAtEdge(direction) {
    const lane = this.chosen?.kind === "row" ? this.chosen : this.lanes.all.find(({ kind }) => kind === "row");
    if (!lane) return null;
    const { from, to } = this.painter.viewOf(lane.group);
    const layer = this.data.layerFor(from, to);
    const event = direction > 0 ? layer.firstEndingFrom(lane.index, from) : layer.lastStartingBy(lane.index, to);
    const isInRow = event >= layer.begin[lane.index] && event < layer.begin[lane.index + 1];
    return isInRow ? { layer, event } : null;
  }

  /** @param {number} direction */
  stepLane(direction) {
    const { all } = this.lanes;
    const at = this.chosen ? all.indexOf(this.chosen) + direction : 0;
    if (all.length) this.choose(all[Math.min(Math.max(at, 0), all.length - 1)]);
  }

  enter() {
    if (this.chosen?.kind === "group") this.toggle(this.chosen.index);
    else if (this.chosen?.kind === "empty") this.fold(this.chosen.index);
    else if (this.chosen?.kind === "fold") this.spreadOut(this.chosen.index);
    else {
      this.selected = null;
      this.stepEvent(1);
    }
  }
}
