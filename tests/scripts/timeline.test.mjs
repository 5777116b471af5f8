import assert from "node:assert/strict";
import { test } from "node:test";
import { bounded, timelineAddress, timelineView } from "../../templates/scripts/timeline/address.js";
import { readColumns } from "../../templates/scripts/timeline/columns.js";
import { EventLayer, EventMatches } from "../../templates/scripts/timeline/data.js";
import { TimelineFinder } from "../../templates/scripts/timeline/find.js";
import { TimeView } from "../../templates/scripts/timeline/lanes.js";
import { overviewPieces, placeOf, timeOf } from "../../templates/scripts/timeline/minimap.js";
import { measurement, rowActivity } from "../../templates/scripts/timeline/measure.js";
import { spanStatistics } from "../../templates/scripts/timeline/statistics.js";
import { rateText, sizeIn } from "../../templates/scripts/timeline/text.js";

// Numbers of one byte each.
function packed(columns) {
  const shapes = Object.fromEntries(Object.entries(columns).map(([name, numbers]) => [name, [numbers.length, 1]]));
  return [{ at: 0, columns: shapes }, Uint8Array.from(Object.values(columns).flat())];
}

// Two kernels (100 to 110, 110 to 130) by the calls of the next row, of which the second is without work.
function layer() {
  const [columns, binary] = packed({
    gap: [100, 0, 90, 5],
    duration: [10, 20, 5, 5],
    label: [0, 1, 2, 2],
    is_launched: [1, 1, 0, 0],
    call: [2, 0],
  });
  return new EventLayer(
    { ...columns, quantum_ns: 1, from_ns: 0, to_ns: 200, is_merged: false, merge_ns: 0, counts: [2, 2] },
    binary,
  );
}

test("bytes of columns are put together, the last ones with a sign", () => {
  const binary = Uint8Array.from([9, 0x02, 0xff, 0x01, 0xff, 0, 0, 0, 0, 0, 1, 7]);
  const { two, none, six, one } = readColumns({ at: 1, columns: { two: [2, 2], none: [3, 0], six: [1, 6], one: [1, 1] } }, binary);
  assert.deepEqual([...two], [0x0102, -1]);
  assert.deepEqual([...none], [0, 0, 0]);
  assert.deepEqual([...six], [2 ** 40]);
  assert.deepEqual([...one], [7]);
  assert.ok(two instanceof Int32Array);
});

test("times are sums of gaps and durations in each row; launches lead to calls", () => {
  const events = layer();
  assert.deepEqual([...events.start], [100, 110, 90, 100]);
  assert.deepEqual([...events.end], [110, 130, 95, 105]);
  assert.deepEqual([...events.launch], [2, 2, -1, -1]);
  assert.deepEqual(events.partners(2), [0, 1]);
  assert.deepEqual(events.partners(1), [2]);
});

test("events are found by time", () => {
  const events = layer();
  assert.equal(events.lastStartingBy(0, 109), 0);
  assert.equal(events.firstEndingFrom(0, 111), 1);
  assert.equal(events.eventAt(1, 97, 1), -1);
  assert.equal(events.eventAt(1, 97, 3), 2);
  assert.equal(events.rowOf(3), 1);
});

test("one steps through what was searched for in order of time", () => {
  const matches = new EventMatches(layer(), Uint8Array.of(1, 0, 1));
  assert.equal(matches.total, 3);
  assert.equal(matches.step(1, -Infinity, -1), 2);
  assert.equal(matches.step(1, 90, 1), 0);
  assert.equal(matches.step(1, 100, 0), 3);
  assert.equal(matches.step(-1, 100, 0), 2);
  assert.equal(matches.rank(100, 1), 3);
});

test("statistics of a span are of the parts inside of it", () => {
  const rows = [{ group: 0, label: "Stream 7", kind: "kernel" }, { group: 0, label: "calls", kind: "api" }];
  const data = { rows, groups: [{ label: "GPU 0" }], names: ["a", "b", "c"], labels: [[0, ""], [1, ""], [2, ""]], span: 200 };
  const { kinds } = spanStatistics({ ...data, exactLayer: layer }, 105, 120);
  const [kernels, calls] = kinds;
  assert.deepEqual([kernels.busy, kernels.time, kernels.events], [15, 15, 2]);
  assert.deepEqual(kernels.top.map(({ name }) => name), ["b", "a"]);
  assert.equal(calls, undefined);
});

test("a name that is not there may be that of repetitions, or a part of others", () => {
  const names = ["step 1", "step 2", "fc1", "fc2", "void gemm<float>(int)"];
  const number = /(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])/g;
  const labelsWith = (isMatch) => Uint8Array.from(names, (name) => Number(isMatch(name)));
  const finder = new TimelineFinder({ names, number, labels: names.map((_, at) => [at, ""]), labelsWith });
  assert.deepEqual([...finder.labels({ name: "step #" }).isMatch], [1, 1, 0, 0, 0]);
  assert.equal(finder.labels({ name: "step #" }).text, "/^step \\d+$/");
  assert.deepEqual([...finder.labels({ name: "fc#" }).isMatch], [0, 0, 0, 0, 0]);
  assert.deepEqual([...finder.labels({ name: "fc1" }).isMatch], [0, 0, 1, 0, 0]);
  assert.deepEqual([...finder.labels({ name: "void gemm<double>(int)" }).isMatch], [0, 0, 0, 0, 1]);
  assert.deepEqual([...finder.labels({ names: ["fc1", "step 2"] }).isMatch], [0, 1, 1, 0, 0]);
});

test("a view stays inside of the capture", () => {
  const view = new TimeView(10_000);
  view.show(9_000, 20_000);
  assert.ok(view.to <= view.highest);
  view.zoom(1e-9, 5_000);
  assert.equal(view.width, 50);
});

test("an address has the view, and what is no view of this form has none", () => {
  const view = { view: [100, 900], span: [200, 300], event: [4, 250], anchor: [2, 110], query: null, alignment: { step: 3, rank: 1 }, filter: "/a&b=(é)/", pinned: ["r3", "c0"], notes: [{ from: 110, to: 120, text: "a, <b>&" }, { from: 90, to: 90, text: "x" }] };
  const hash = timelineAddress(view, 100);
  assert.equal(hash, "#timeline=0,800&span=100,200&event=4,150&anchor=2,10&step=3,1&pin=r3,c0&rows=%2Fa%26b%3D%28%C3%A9%29%2F&note=10,20,a%2C%20%3Cb%3E%26&note=-10,-10,x");
  assert.deepEqual(timelineView(hash, 100), view);
  for (const wrong of ["", "#timeline", "#timeline=", "#timeline=1,2,3", "#timeline=9e99,1", "#gaps"]) assert.equal(timelineView(wrong, 0), null);
  const unknown = timelineView("#timeline=1,2&event=x&more=1&&span=5", 0);
  assert.deepEqual([unknown.view, unknown.event, unknown.span, unknown.filter, unknown.pinned], [[1, 2], null, null, "", []]);
  const cut = timelineView("#timeline=1,2&rows=%E2%8&pin=r1,r1,x2,r", 0);
  assert.deepEqual([cut.filter, cut.pinned, cut.notes], ["", ["r1"], []]);
});

test("two events are measured by their edges", () => {
  const events = layer();
  const data = { shortName: (_, event) => `event ${event}` };
  const [first, second, call] = [0, 1, 2].map((event) => ({ layer: events, event }));
  const touching = measurement(data, second, first);
  assert.deepEqual([touching.gap, touching.overlap, touching.starts, touching.ends, touching.whole], [null, 0, 10, 20, 30]);
  assert.deepEqual(measurement(data, first, call).gap, [95, 100]);
  const within = measurement(data, { layer: events, event: 3 }, first);
  assert.deepEqual([within.overlap, within.ends, within.drawn], [5, 5, [100, 100]]);
  const rows = [{ group: 0 }, { group: 0 }];
  assert.deepEqual(rowActivity({ rows, layerFor: () => events }, 1, [92, 120]), { busy: 8, idle: 20, events: 2, remark: "" });
});

test("the details of a copy end with its size", () => {
  assert.deepEqual(sizeIn("Pageable → Device, 4.194 MB"), { text: "4.194 MB", bytes: 4194000 });
  assert.deepEqual(sizeIn("1,023 B"), { text: "1,023 B", bytes: 1023 });
  for (const none of ["", "grid 8×1×1, 32 registers", "Pageable → Device", "4 MB of it"]) assert.equal(sizeIn(none), null);
  assert.equal(rateText(4_194_000, 329_300), "12.74 GB/s");
  assert.equal(rateText(0, 5) + rateText(5, 0), "");
});

test("notes of an address are few, short and have a time and a text", () => {
  const notes = (fields) => timelineView(`#timeline=1,2&${fields}`, 0).notes;
  assert.deepEqual(notes("note=5,3,a&note=5,a&note=x,1,a&note=1,2,&note=1,2,%20&note"), [{ from: 5, to: 5, text: "a" }]);
  assert.equal(notes(Array(50).fill("note=1,1,a").join("&")).length, 20);
  assert.equal(notes(`note=1,1,${"a".repeat(500)}`)[0].text.length, 80);
  assert.equal(Array.from(bounded("😀".repeat(90))).length, 80);
  // half of a character cannot be in an address
  assert.equal(bounded("a\ud83d"), "a\ufffd");
  const view = { view: [0, 1], span: null, event: null, anchor: null, alignment: null, filter: "", pinned: [] };
  assert.equal(timelineAddress({ ...view, notes: [{ from: 0, to: 0, text: "\ud83d" }] }, 0), "#timeline=0,1&note=0,0,%EF%BF%BD");
});

test("an overview gives a long start-up less room, and each time one place", () => {
  const limits = { lowest: -10, highest: 1010 };
  assert.equal(overviewPieces(limits, 1000, 400).length, 1);
  assert.equal(overviewPieces(limits, 1000, undefined).length, 1);
  const pieces = overviewPieces(limits, 1000, 900);
  assert.deepEqual([placeOf(pieces, -10), placeOf(pieces, 1010)], [0, 1]);
  assert.ok(placeOf(pieces, 900) < 0.2);
  for (const time of [-10, 0, 450, 899, 900, 901, 1000, 1010]) assert.ok(Math.abs(timeOf(pieces, placeOf(pieces, time)) - time) < 1e-6);
});
