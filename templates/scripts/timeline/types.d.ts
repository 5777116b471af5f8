// Types of the timeline scripts: the header of the data as Python writes it, and internal data.

import type { ColumnsHeader } from "./columns.js";
import type { EventLayer } from "./data.js";
import type { SumsHeader } from "./sums.js";

export type Span = [from: number, to: number];
export type Point = { x: number; y: number };
export type RowKind = "kernel" | "range" | "mark" | "api" | "op";
export type Group = { label: string };
export type Row = { group: number; label: string; kind: RowKind };
export type Label = [name: number, details: string];
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

/** `number`: a regular expression for the numbers that differ between names of repetitions. */
export interface Header {
  span_ns: number;
  window: Span | null;
  window_name: string;
  names: string[];
  number: string;
  labels: Label[];
  groups: Group[];
  rows: Row[];
  layers: LayerHeader[];
  curves: Curve[];
  sums: SumsHeader | null;
  thinned: string[];
  totals: { events: number; rows: number };
}

export interface Hit {
  layer: EventLayer;
  event: number;
}

/** `partners`: events connected to it by a launch. */
export interface Selected extends Hit {
  partners: number[];
}

/** A group heading, row or curve, with its position in px. */
export interface Lane {
  kind: "group" | "row" | "curve";
  index: number;
  group: number;
  top: number;
  height: number;
}

/** A search: `text` as typed, or what is known about an event that another part of the page asks for. */
export interface Asked {
  text?: string;
  name?: string;
  names?: string[];
  details?: string;
  bytes?: Span;
  kind?: RowKind;
  group?: string;
  within?: string[];
  outside?: boolean;
  work?: Asked;
  near_ns?: number;
}

/** A time span; with `of_window`, relative to the start of the window. */
export interface AskedSpan {
  from_ns: number;
  to_ns: number;
  of_window?: boolean;
}

/** A curve, to show with its highest value. */
export interface AskedCurve {
  curve: string;
  group?: string;
}

/** What the rest of the page asks for: the detail of a `timeline:show` event. */
export type Wish = Asked | AskedSpan | AskedCurve;

/** The timeline's state in the browser's history; `place`: scroll position; `number`: key of the focused element. */
export interface Kept {
  timeline: { view: Span; span: Span | null; event: [row: number, start: number] | null; asked: Asked | null };
  place?: { left: number; top: number };
  number?: number;
}
