import assert from "node:assert/strict";
import { test } from "node:test";
import { TimelineActivity } from "../../templates/scripts/timeline/activity.js";
import { instantTexts } from "../../templates/scripts/timeline/text.js";

const CATEGORIES = [["compute", "kernel", true], ["launch", "api", false], ["host code", "others", false]];

// Numbers of one byte each, one header after the other.
function packed(...accounts) {
  const bytes = [];
  const headers = accounts.map(([header, columns]) => {
    const at = bytes.length;
    const shapes = Object.fromEntries(Object.entries(columns).map(([name, numbers]) => [name, [numbers.length, 1]]));
    bytes.push(...Object.values(columns).flat());
    return { ...header, at, columns: shapes };
  });
  return [headers, Uint8Array.from(bytes)];
}

const PIECES = { from_ns: 100, to_ns: 160, width_ns: 0, counts: [3, 1] };
// GPU 0: launch to 110, compute to 140, host code to 160; GPU 1: host code throughout
const COLUMNS = { length: [10, 30, 20, 60], category: [1, 0, 2, 2] };

function activityOf(...accounts) {
  const [headers, binary] = packed(...accounts);
  return new TimelineActivity(headers, [4, 7], CATEGORIES, 155, binary);
}

test("pieces are cut at the ends of a span", () => {
  const activity = activityOf([PIECES, COLUMNS]);
  assert.deepEqual([...activity.during(0, [105, 150]).times], [30, 5, 10]);
  assert.deepEqual([...activity.during(1, [105, 150]).times], [0, 0, 45]);
  assert.deepEqual([...activity.during(0, [0, 104]).times], [0, 4, 0]);
  assert.deepEqual([...activity.during(0, [120, 120]).times], [0, 0, 0]);
  assert.equal(activity.during(0, [0, 1000]).step, 0);
  assert.deepEqual([activity.during(0, [0, 1000]).from, activity.during(0, [0, 1000]).to], [100, 155]);
});

test("the piece at a time is known, and none before the first or after the last", () => {
  const [account] = activityOf([PIECES, COLUMNS]).accounts;
  assert.deepEqual(account.at(0, 110), { category: 0, from: 110, to: 140 });
  assert.deepEqual(account.at(0, 109), { category: 1, from: 100, to: 110 });
  assert.equal(account.at(0, 99), null);
  assert.equal(account.at(0, 160), null);
});

test("bins are counted whole, and drawn in proportion", () => {
  // three bins of 20; GPU 0 computes 5 in the first and 20 in the second, GPU 1 launches 7 in the last
  const bins = { from_ns: 100, to_ns: 160, width_ns: 20, counts: [] };
  const activity = activityOf([bins, { cell: [0, 1, 13], time: [5, 20, 7] }]);
  assert.deepEqual(activity.during(0, [119, 121]), { from: 100, to: 140, step: 20, times: Float64Array.of(25, 0, 0) });
  assert.deepEqual(activity.during(0, [120, 121]), { from: 120, to: 140, step: 20, times: Float64Array.of(20, 0, 0) });
  assert.deepEqual(activity.during(1, [150, 900]), { from: 140, to: 155, step: 20, times: Float64Array.of(0, 7, 0) });
  const times = new Float64Array(3);
  activity.accounts[0].add(0, 110, 125, times);
  assert.deepEqual([...times], [7.5, 0, 0]);
});

test("the finer account is used where it covers the span", () => {
  const bins = { from_ns: 0, to_ns: 200, width_ns: 100, counts: [] };
  const activity = activityOf([bins, { cell: [0], time: [100] }], [PIECES, COLUMNS]);
  assert.equal(activity.during(0, [110, 120]).step, 0);
  assert.equal(activity.during(0, [90, 120]).step, 100);
  assert.deepEqual(activity.occurring([0, 200]).map(([name]) => name), ["compute"]);
});

test("the largest parts of the window come first, and small ones are left out", () => {
  const bins = { from_ns: 0, to_ns: 200, width_ns: 200, counts: [] };
  const activity = activityOf([bins, { cell: [0, 1, 1], time: [60, 100, 1] }]);
  assert.deepEqual(activity.occurring([0, 155]).map(([name]) => name), ["launch", "compute"]);
});

test("without accounts no GPU is told of", () => {
  const activity = new TimelineActivity([], [], CATEGORIES, 155, new Uint8Array());
  assert.deepEqual([activity.groups, activity.occurring([0, 155])], [[], []]);
});

test("the ends of a span have the decimals that they need", () => {
  assert.deepEqual(instantTexts(1_329_900_000, 1_460_000_000), ["1,329.9 ms", "1,460.0 ms"]);
  assert.deepEqual(instantTexts(0, 5_000_000), ["0 ms", "5 ms"]);
  assert.deepEqual(instantTexts(-178_889, 100), ["−0.178889 ms", "0.000100 ms"]);
});
