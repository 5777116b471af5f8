// The ranks of a job: their rows, the ranks that they represent, their steps, and their collectives.

import { readColumns } from "./columns.js";
import { countText, durationText } from "./text.js";

/**
 * @import { Numbers } from "./columns.js"
 * @import { RanksHeader, Span } from "./types.js"
 */

const MOST_NAMED = 8;

/**
 * `like`: the place of the rank that represents it; `groups`: of its rows, none if it is not drawn; `edges`: when its
 * steps begin, and when the last one ends.
 * @typedef {{ number: number, name: string, groups: number[], like: number, step: number, edges: Float64Array }} Rank
 */

/** The step that begins at the same place for all ranks, and the rank whose times the view has. @typedef {{ step: number, rank: number }} Alignment */

export class TimelineRanks {
  /**
   * @param {RanksHeader} header
   * @param {number} groups
   * @param {number} origin
   * @param {Uint8Array} binary
   */
  constructor(header, groups, origin, binary) {
    this.word = header.word;
    this.awaited = header.awaited;
    this.ofProgram = header.of_program;
    /** @type {Record<string, Numbers> | null} */
    this.together = header.together && readColumns(header.together, binary);
    const differences = header.steps ? readColumns(header.steps, binary).edge : [];
    this.of = new Int32Array(groups).fill(-1); // the rank of each group
    let next = 0;
    /** @type {Rank[]} */
    this.list = header.each.map(({ number, groups: numbers, like, step, edges: count }, place) => {
      const edges = new Float64Array(count);
      let time = origin;
      for (let at = 0; at < count; at++) edges[at] = time += differences[next++];
      for (const group of numbers) this.of[group] = place;
      return { number, name: `${header.word} ${number}`, groups: numbers, like, step, edges };
    });
  }

  /** Whether several ranks have steps. */
  get canAlign() {
    return this.list.filter(({ edges }) => edges.length > 1).length > 1;
  }

  /**
   * The ranks that are drawn and that another rank represents.
   * @param {number} place
   */
  like(place) {
    return this.list.filter((rank, index) => rank.like === place && index !== place && rank.groups.length);
  }

  /**
   * The number of ranks that are not drawn and that another rank represents.
   * @param {number} place
   */
  absent(place) {
    return this.list.filter((rank) => rank.like === place && !rank.groups.length).length;
  }

  get noun() {
    return this.word === "Rank" ? "rank" : "GPU";
  }

  /**
   * Names some ranks: rank 1; ranks 1, 2 and 3 more; GPUs 0, 1 if ranks are unknown.
   * @param {{ number: number }[]} ranks
   */
  named(ranks) {
    const numbers = ranks.slice(0, MOST_NAMED).map(({ number }) => number);
    const more = ranks.length - numbers.length;
    return `${this.noun}${ranks.length > 1 ? "s" : ""} ${numbers.join(", ")}${more ? ` and ${more} more` : ""}`;
  }

  /**
   * The step of a rank at a time, or the nearest one.
   * @param {number} place
   * @param {number} time
   */
  stepAt(place, time) {
    const { edges, step } = this.list[place];
    let at = 0;
    while (at + 2 < edges.length && edges[at + 1] <= time) at++;
    return step + at;
  }

  /**
   * When a step of a rank begins, and when it or the last of several ends; null if the rank has no such step.
   * @param {number} place
   * @param {number} step
   * @param {number} [count]
   * @returns {Span | null}
   */
  span(place, step, count = 1) {
    const { edges, step: first } = this.list[place];
    const [from, to] = [Math.max(step - first, 0), Math.min(step + count - first, edges.length - 1)];
    return from < to ? [edges[from], edges[to]] : null;
  }

  /** @param {number} step */
  stepName(step) {
    return `step #${step + this.ofProgram}`;
  }

  /**
   * The shifts of the times of all groups that let a step begin when it does on one rank; NaN for groups without it.
   * @param {Alignment} alignment
   */
  shifts({ step, rank }) {
    const begin = this.span(rank, step)?.[0] ?? NaN;
    return Float64Array.from(this.of, (place) => (place < 0 ? NaN : begin - (this.span(place, step)?.[0] ?? NaN)));
  }

  /**
   * The facts of a collective: the number of members, who came last, and how late.
   * @param {number} collective
   */
  facts(collective) {
    const { members, last, late } = this.together ?? {};
    return { members: members[collective], last: this.list[last[collective]], late: late[collective] };
  }

  /**
   * Who came last to a collective, in words.
   * @param {number} collective
   */
  latestText(collective) {
    const { members, last, late } = this.facts(collective);
    const who = late ? `${last.name} came last, ${durationText(late)} after the first` : "all came at once";
    return `${countText(members, this.noun)}; ${who}`;
  }
}
