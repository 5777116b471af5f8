// Types of the timeline scripts: the header of the data as Python writes it, and internal data.

import type { ColumnsHeader } from "./columns.js";
import type { EventLayer } from "./data.js";
import type { Alignment } from "./ranks.js";
import type { ActivityHeader } from "./activity.js";
import type { SumsHeader } from "./sums.js";

export type Span = [from: number, to: number];
export type Point = { x: number; y: number };
export type RowKind = "layer" | "kernel" | "fault" | "range" | "mark" | "python" | "api" | "op" | "os";
export type Group = { label: string };
export type Row = { group: number; label: string; kind: RowKind };
/** `category`: its number in the header's `categories`; -1 for none. */
export type Label = [name: number, details: string, category: number];
/** A category of *Where the time went*; `series` names its color. */
export type Category = [name: string, series: string, isBusy: boolean];
export type Tick = [time: number, text: string];

/** A step curve; a null value means unknown. */
export interface Curve {
  group: number;
  label: string;
  unit: string;
  time_ns: number[];
  value: (number | null)[];
  max: number;
}

/** `counts`: the number of entries of each row. */
export interface LayerHeader extends ColumnsHeader {
  quantum_ns: number;
  from_ns: number;
  to_ns: number;
  is_merged: boolean;
  merge_ns: number;
  counts: number[];
}

export interface RanksHeader {
  word: string;
  each: { number: number; groups: number[]; like: number; step: number; edges: number }[];
  of_program: number;
  awaited: number;
  together: ColumnsHeader | null;
  steps: ColumnsHeader | null;
}

/** `begin_ns`: time 0 in the time of the capture, if there is one. `activity_groups`: of each GPU, its group.
 * `number`: a regular expression for the numbers that differ between names of repetitions. */
export interface Header {
  begin_ns: string | null;
  span_ns: number;
  window: Span | null;
  window_name: string;
  names: string[];
  short: [name: number, label: string][];
  number: string;
  labels: Label[];
  groups: Group[];
  rows: Row[];
  layers: LayerHeader[];
  curves: Curve[];
  categories: Category[];
  activity: ActivityHeader[];
  activity_groups: number[];
  ranks: RanksHeader | null;
  sums: SumsHeader | null;
  thinned: string[];
  totals: { events: number; rows: number };
}

export interface Hit {
  layer: EventLayer;
  event: number;
}

/** `partners`: events connected to it by a launch; `together`: the events of its collective, and itself. */
export interface Selected extends Hit {
  partners: number[];
  together: number[];
}

/**
 * A group heading, the activity of its GPU, a row, a curve, the heading of its empty rows and curves, or the heading of
 * similar ranks, with its position in px.
 */
export interface Lane {
  kind: "group" | "split" | "row" | "curve" | "empty" | "fold";
  index: number;
  group: number;
  isPinned: boolean;
  top: number;
  height: number;
}

/**
 * A search: `text` as typed, or the known facts of an event that another part of the page leads to. `in_window`: events
 * in the window take precedence.
 */
export interface EventQuery {
  text?: string;
  name?: string;
  names?: string[];
  details?: string;
  bytes?: Span;
  kind?: RowKind;
  group?: string;
  within?: string[];
  outside?: boolean;
  work?: EventQuery;
  near_ns?: number;
  in_window?: boolean;
}

/** A time span; with `of_window`, relative to the start of the window. */
export interface SpanTarget {
  from_ns: number;
  to_ns: number;
  of_window?: boolean;
}

/** A step of a rank, or several consecutive ones; `is_own`: counted from the first step of the rank. */
export interface StepTarget {
  rank: number;
  step: number;
  steps: number;
  is_own?: boolean;
}

/** A curve, shown with its highest value. */
export interface CurveTarget {
  curve: string;
  group?: string;
}

/** A target of another part of the page: the detail of a `timeline:show` event. `stays`: the page does not scroll there. */
export type TimelineTarget = (EventQuery | SpanTarget | StepTarget | CurveTarget) & { stays?: boolean };

/** A note of the reader at a time, or at a span. */
export interface Note {
  from: number;
  to: number;
  text: string;
}

/** An event in an address, which survives a report that merges other events. */
export type EventPlace = [row: number, start: number];

/**
 * What an address and the browser's history keep of the timeline. `anchor`: where a measurement begins; `filter`: of rows;
 * `pinned`: keys of lanes.
 */
export interface TimelineView {
  view: Span;
  span: Span | null;
  event: EventPlace | null;
  anchor: EventPlace | null;
  query: EventQuery | null;
  alignment: Alignment | null;
  filter: string;
  pinned: string[];
  notes: Note[];
}

/** The timeline's state in the browser's history; `place`: scroll position; `number`: key of the focused element. */
export interface TimelineState {
  timeline: TimelineView;
  place?: { left: number; top: number };
  number?: number;
}
