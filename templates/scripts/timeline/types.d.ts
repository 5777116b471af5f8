// What the timeline is made of: the header of its data as Python writes it, and what is passed about.

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

/** Where a value is null there is none. */
export interface Curve {
  group: number;
  label: string;
  unit: string;
  time_ns: number[];
  value: (number | null)[];
  max: number;
}

/** `counts`: the events of each row. */
export interface LayerHeader extends ColumnsHeader {
  quantum_ns: number;
  from_ns: number;
  to_ns: number;
  is_merged: boolean;
  merge_ns: number;
  counts: number[];
}

/** `number`: an expression for what differs between the names of repetitions. */
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

/** `partners`: events that belong to it through a launch. */
export interface Selected extends Hit {
  partners: number[];
}

/** A heading, row or curve, with its place in px. */
export interface Lane {
  kind: "group" | "row" | "curve";
  index: number;
  group: number;
  top: number;
  height: number;
}

/** A search: `text` as it was typed, or what is known of an event that another part of the page asks for. */
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

/** A span of time; `of_window` if it counts from the window's start. */
export interface AskedSpan {
  from_ns: number;
  to_ns: number;
  of_window?: boolean;
}

/** The highest value of a curve. */
export interface AskedCurve {
  curve: string;
  group?: string;
}

/** What the rest of the page asks for, as the detail of an event `timeline:show`. */
export type Wish = Asked | AskedSpan | AskedCurve;

/** What the browser's history keeps of the timeline; `place` and `number`: where the page was, and what had the focus. */
export interface Kept {
  timeline: { view: Span; span: Span | null; event: [row: number, start: number] | null; asked: Asked | null };
  place?: { left: number; top: number };
  number?: number;
}
