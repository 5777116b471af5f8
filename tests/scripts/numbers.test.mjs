import assert from "node:assert/strict";
import { test } from "node:test";
import { formatCell, formatCount, formatFixed, formatTicks, formatValue, readNumber } from "../../templates/scripts/numbers.js";
import { amountText, countText, durationText, instantText, rangeText, shareText, timeTicks } from "../../templates/scripts/timeline/text.js";

test("a value has the unit that suits it alone", () => {
  assert.equal(formatValue(12_345, "ns"), "12.35 µs");
  assert.equal(formatValue(0, "bytes"), "0 B");
  assert.equal(formatValue(undefined, "ns"), "–");
  assert.equal(formatValue(-1.5e9, "ns"), "−1.500 s");
});

test("labels of an axis have one unit and the same decimals", () => {
  assert.deepEqual(formatTicks([9.8e6, 10e6, 10.2e6], "ns"), ["9.8 ms", "10.0 ms", "10.2 ms"]);
  assert.deepEqual(formatTicks([0, 500_000, 1_000_000], "ns"), ["0.0 ms", "0.5 ms", "1.0 ms"]);
  assert.deepEqual(formatTicks([100, 120], ""), ["100", "120"]);
  assert.deepEqual(formatTicks([7], "pct"), ["7 %"]);
});

test("a cell that would read as nothing has a unit of its own", () => {
  assert.equal(formatCell(80, { unit: "bytes", divisor: 1e6, decimals: 3 }), "80 B");
  assert.equal(formatCell(null, { unit: "bytes", divisor: 1e6, decimals: 3 }), "–");
});

test("what is read back is what was written", () => {
  for (const text of ["1,234.500 ms", "80 ns", "66.70 TB/s", "7"]) {
    const [number, symbol = ""] = text.split(" ");
    assert.equal(readNumber(text, ""), readNumber(number, symbol));
  }
  assert.ok(Number.isNaN(readNumber("–", "s")));
});

test("the timeline writes as tables do", () => {
  assert.equal(durationText(12_345), formatValue(12_345, "ns"));
  assert.equal(shareText(0.0004), formatValue(0.04, "pct"));
  assert.equal(amountText(248_170_000, "bytes"), formatValue(248_170_000, "bytes"));
  assert.equal(amountText(null, "count"), "–");
  assert.equal(countText(1, "event"), "1 event");
  assert.equal(countText(1_234, "event"), `${formatCount(1_234)} events`);
});

test("instants are exact to the nanosecond, and have a real minus", () => {
  assert.equal(instantText(1_204_345_678), "1,204.345678 ms");
  assert.equal(instantText(-1), "−0.000001 ms");
  assert.equal(formatFixed(-0.5, 0), "−0"); // as Python's f"{-0.5:,.0f}", but with a real minus
});

test("a view is written in one unit, and 0 has no sign", () => {
  assert.equal(rangeText(-0.2, 1_000_000), "0.0000 ms to 1.0000 ms (1.000 ms)");
  assert.equal(rangeText(-500, 400), "−500 ns to 400 ns (900 ns)");
});

test("ticks count from a time that is written once where they would be long", () => {
  const { ticks, baseText } = timeTicks({ from: 5e9 + 100, to: 5e9 + 900 }, 0, 100);
  assert.equal(baseText, "5.000000 s");
  assert.deepEqual(ticks[0], [5e9 + 100, "+100 ns"]);
  assert.deepEqual(timeTicks({ from: -10, to: 2e6 }, 0, 5e5).ticks[0], [0, "0.0 ms"]);
});
