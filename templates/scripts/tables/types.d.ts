// Types of the table scripts: the packed rows as Python writes them, and internal data.

import type { ColumnScale } from "../numbers.js";

/** A column heading of a table in the page; `symbol`: the unit printed in it. */
export interface Heading {
  cell: HTMLTableCellElement;
  symbol: string;
  name: string;
  title: string;
  isNumber: boolean;
  isMinor: boolean;
}

/** A column other than the first: `values` (NaN for missing), or `texts`, which can be short forms of `full`. */
export interface Column {
  text: (row: number) => string;
  values?: Float64Array;
  texts?: string[];
  full?: string[];
  share?: ((row: number) => number | null) | null;
}

export type PackedTexts = { texts: number[]; full?: number[] };
export type PackedNumbers = ColumnScale & { largest?: number; values: (number | null)[] };

/** A table of the compressed block; texts are indices into the block's list of texts, -1 for none. */
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

/** A link from a row to another place of the page; `does` identifies it among the links of a row, `label` is for its button. */
export interface RowLink {
  does: string;
  text: string;
  label: string;
  go: () => void;
}
