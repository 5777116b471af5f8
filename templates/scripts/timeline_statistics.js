// What went on in a span: busy time, events and names of each kind of row.

const KIND_WORDS = { kernel: "GPU work", range: "NVTX ranges", api: "CUDA API", op: "operators", mark: "marks" };
const TOP_NAMES = 8;

// Time in which at least one of these spans runs, in ns. Both arrays are sorted in place.
function unionLength(starts, ends) {
  starts.sort();
  ends.sort();
  let total = 0;
  let begun = 0;
  for (let opened = 0, closed = 0; closed < ends.length; closed++) {
    if (opened === closed) begun = starts[opened];
    while (opened < starts.length && starts[opened] <= ends[closed]) opened++;
    if (opened === closed + 1) total += ends[closed] - begun;
  }
  return total;
}

// [first, end) of the events of `row` that run in [from, to]; events of no length count where they begin inside.
function eventsWithin(layer, row, from, to) {
  let first = layer.firstEndingFrom(row, from);
  let end = layer.lastStartingBy(row, to) + 1;
  while (first < end && layer.end[first] === from && layer.start[first] < from) first++;
  while (end > first && layer.start[end - 1] === to) end--;
  return [first, Math.max(first, end)];
}

// Sums per group and kind, in the order of the rows.
function spanStatistics(data, from, to) {
  const layer = data.layerFor(from, to);
  const kinds = new Map();
  data.rows.forEach((row, number) => {
    const [first, end] = eventsWithin(layer, number, from, to);
    const key = `${row.group} ${row.kind}`;
    if (!kinds.has(key)) kinds.set(key, { group: data.groups[row.group].label, kind: row.kind, pieces: [] });
    if (end > first) kinds.get(key).pieces.push([first, end]);
  });
  const sums = [...kinds.values()].map((kind) => kindStatistics(data, layer, kind, from, to));
  return { layer, from, to, kinds: sums.filter((kind) => kind.events > 0) };
}

function kindStatistics(data, layer, { group, kind, pieces }, from, to) {
  const size = pieces.reduce((sum, [first, end]) => sum + end - first, 0);
  const starts = new Float64Array(size);
  const ends = new Float64Array(size);
  const names = new Map();
  let events = 0;
  let at = 0;
  for (const [first, end] of pieces) {
    for (let event = first; event < end; event++, at++) {
      starts[at] = Math.max(layer.start[event], from);
      ends[at] = Math.min(layer.end[event], to);
      const name = data.labels[layer.label[event]][0];
      const count = layer.events ? layer.events[event] : 1;
      const sum = names.get(name) ?? names.set(name, { name: data.names[name], time: 0, events: 0 }).get(name);
      sum.time += ends[at] - starts[at];
      sum.events += count;
      events += count;
    }
  }
  const top = [...names.values()].sort((one, other) => other.time - one.time || other.events - one.events);
  const time = top.reduce((sum, name) => sum + name.time, 0);
  const busy = unionLength(starts, ends);
  return { group, kind, events, time, busy, names: top.length, top: top.slice(0, TOP_NAMES) };
}

// How far a layer can be trusted, in words; empty if it is exact.
function layerRemark(layer) {
  const grain = durationText(layer.grain);
  if (layer.isMerged) {
    return (
      `Shorter events that begin in the same ${grain} are one block here. It begins with the first of them, is as ` +
      "long as all of them together, and counts them under the name of the longest."
    );
  }
  return layer.grain > 1 ? `Times are rounded to ${grain} here.` : "";
}
