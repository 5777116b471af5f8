// The data of the trend page (pipeline/nightsight/render/history/payload.py), and the part of uPlot that it uses.

/** A machine and its settings, and the nights measured on it. */
export type Epoch = {
  key: string;
  times: number[];
  commits: string[];
  links: string[];
  runs: number[];
  flags: string[];
};

/** First night, last night, and median of a level. */
export type Level = [first: number, last: number, value: number];

/** A change: its first night, state, commit, and size; null if the previous level was zero. */
export type Change = [night: number, state: string, commit: string, percent: number | null];

/** The part of a series in an epoch; `steps` are distances from the median in hundredths of a percent. */
export type Part = [epoch: number, median: number, steps: (number | null)[], levels: Level[], changes: Change[]];

export type Series = { unit: string; parts: Part[] };

export type Group = { epochs: Epoch[]; series: Series[] };

export type Values = (number | null)[];

/** A chart of uPlot. */
export type Plot = {
  ctx: CanvasRenderingContext2D;
  bbox: { left: number; top: number; width: number; height: number };
  cursor: { idx?: number | null };
  over: HTMLElement;
  setData(data: Values[]): void;
  setSize(size: { width: number; height: number }): void;
  setCursor(at: { left: number; top: number }): void;
  valToPos(value: number, scale: string, onCanvas?: boolean): number;
  destroy(): void;
};

declare global {
  const uPlot: {
    new (options: object, data: Values[], target: HTMLElement): Plot;
    paths: { stepped(options: { align: 1 | -1 }): unknown };
  };
}
