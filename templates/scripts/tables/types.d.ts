// What tables are made of: their packed rows as Python writes them, and what is passed about.

import type { ColumnScale } from "../numbers.js";

/** A heading of a table in the page; `symbol`: the unit that is written in it. */
export interface Heading {
  cell: HTMLTableCellElement;
  symbol: string;
  name: string;
  title: string;
  isNumber: boolean;
  isMinor: boolean;
}

/** A column but for the first: `values` (NaN where there is none), or `texts`, which may be short for `full`. */
export interface Column {
  text: (row: number) => string;
  values?: Float64Array;
  texts?: string[];
  full?: string[];
  share?: ((row: number) => number | null) | null;
}

export type PackedTexts = { texts: number[]; full?: number[] };
export type PackedNumbers = ColumnScale & { largest?: number; values: (number | null)[] };

/** A table of the compressed block; texts are places in its list of all texts, -1 for none. */
export interface PackedTable {
  name: number[];
  full: number[];
  level?: number[];
  columns: (PackedTexts | PackedNumbers)[];
  noun: string;
  total: number;
  more: string;
  numbered?: number;
}

/** The rows of a table; see TableModel. */
export interface TableRowsData {
  short: string[];
  full: string[];
  level: number[] | null;
  columns: Column[];
  noun?: string;
  total?: number;
  more?: string;
  numbered?: number;
}
