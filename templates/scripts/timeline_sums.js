// Sums of all events by steps of time, for spans that no layer has exactly.

// The places of entries, by how many lie between each and the one before.
function placesFrom(gaps, count) {
  const places = new Int32Array(count);
  for (let at = 0, place = -1; at < count; at++) places[at] = place += gaps.unsigned() + 1;
  return places;
}

// How many of the rising `places` are at most `most`.
function countUpTo(places, most) {
  let low = 0;
  let high = places.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] <= most) low = middle + 1;
    else high = middle;
  }
  return low;
}

class TimelineSums {
  constructor({ from_ns, width_ns, bins, sections, at, sizes }, names, span, binary) {
    this.from = from_ns;
    this.step = width_ns;
    this.bins = bins;
    this.sections = sections;
    this.names = names;
    this.span = span;
    this.sizes = sizes;
    this.packed = binary.slice(at, sizes.reduce((end, size) => end + size, at)); // until a span is asked for
  }

  #unpack() {
    let end = 0;
    const readers = this.sizes.map((size) => {
      end += size;
      return new VarintReader(this.packed, end - size);
    });
    this.#unpackSlots(readers.slice(0, 4));
    this.#unpackRows(readers.slice(4, 8), readers[5].at);
    const [counts, gaps, times] = readers.slice(8);
    this.overlaps = this.sections.map(() => {
      const bins = placesFrom(gaps, counts.unsigned());
      return { bins, times: Float64Array.from(bins, () => times.unsigned()) };
    });
    this.packed = null;
  }

  // Each slot is one name of a section, or all its further ones together: its events by the step they begin in.
  #unpackSlots([slots, gaps, counts, times]) {
    this.slots = this.sections.flatMap(({ slots: count, others }, section) =>
      Array.from({ length: count }, (_, at) => {
        const [name, size, mean] = [slots.unsigned(), slots.unsigned(), slots.unsigned()];
        const bins = placesFrom(gaps, size);
        const events = Float64Array.from(bins, () => counts.unsigned());
        const lengths = events.map((count) => count * mean + times.signed());
        return { section, name: others && at === count - 1 ? null : this.names[name], bins, events, lengths };
      }),
    );
  }

  // The events of each row that reach over an edge: the first such edge, and how long they go on from there.
  #unpackRows([counts, gaps, slots, remainders], end) {
    this.rows = [];
    while (counts.at < end) {
      const edges = placesFrom(gaps, counts.unsigned());
      const [slot, remainder] = [slots, remainders].map((reader) => Float64Array.from(edges, () => reader.unsigned()));
      this.rows.push({ edges, slot, remainder });
    }
  }

  // What went on in the steps that hold a span.
  statistics(from, to) {
    if (this.packed) this.#unpack();
    const first = Math.min(Math.floor((from - this.from) / this.step), this.bins - 1);
    const end = Math.min(Math.max(Math.ceil((to - this.from) / this.step), first + 1), this.bins);
    const sums = this.slots.map((slot) => this.#begun(slot, first, end));
    for (const row of this.rows) {
      this.#addCrossing(sums, row, first, 1);
      this.#addCrossing(sums, row, end, -1);
    }
    const [start, stop] = [first, end].map((edge) => this.from + edge * this.step);
    const kinds = this.sections.map(({ group, kind }, section) => {
      const all = sums.filter((sum) => sum.section === section);
      const others = all.find(({ name }) => name === null);
      const names = all.filter((sum) => sum !== others);
      return kindSummary({ group, kind, names, others, less: this.#overlap(section, first, end) });
    });
    const begin = Math.max(start, 0);
    return {
      from: begin,
      to: Math.max(Math.min(stop, this.span), begin + 1),
      step: this.step,
      kinds: kinds.filter(({ events }) => events > 0),
    };
  }

  #begun({ section, name, bins, events: counts, lengths }, first, end) {
    let [time, events] = [0, 0];
    for (let at = countUpTo(bins, first - 1); at < bins.length && bins[at] < end; at++) {
      time += lengths[at];
      events += counts[at];
    }
    return { section, name, time, events };
  }

  // The event of a row that goes on at an edge began before: from the first edge on it counts, at the last no longer.
  #addCrossing(sums, { edges, slot, remainder }, edge, sign) {
    const at = countUpTo(edges, edge) - 1;
    const left = at < 0 ? 0 : remainder[at] - (edge - edges[at]) * this.step;
    if (left <= 0) return;
    sums[slot[at]].time += sign * left;
    if (sign > 0) sums[slot[at]].events++;
  }

  #overlap(section, first, end) {
    const { bins, times } = this.overlaps[section];
    let sum = 0;
    for (let at = countUpTo(bins, first - 1); at < bins.length && bins[at] < end; at++) sum += times[at];
    return sum;
  }
}
