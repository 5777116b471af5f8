import assert from "node:assert/strict";
import { test } from "node:test";
import { literally, textTest } from "../../templates/scripts/matching.js";
import { TableCopy } from "../../templates/scripts/tables/copy.js";
import { TableModel } from "../../templates/scripts/tables/model.js";

const texts = ["gemm", "copy", "step 10", "step 9", "a full name of gemm"];

function packed(more = {}) {
  const values = [3, null, 1, 2];
  const numbers = { unit: "ns", divisor: 1, decimals: 0, largest: 4, values };
  return TableModel.fromBlock(
    { name: [0, 1, 2, 3], full: [4, -1, -1, -1], columns: [numbers], noun: "rows", total: 9, more: "", ...more },
    texts,
    [],
  );
}

test("rows come in the report's order until they are sorted; what is missing stays last", () => {
  const model = packed();
  assert.deepEqual([...model.rows()], [0, 1, 2, 3]);
  model.sort(1, -1);
  assert.deepEqual([...model.rows()], [0, 3, 2, 1]);
  model.sort(1, 1);
  assert.deepEqual([...model.rows()], [2, 3, 0, 1]);
  model.sort(1, 0);
  assert.deepEqual([...model.rows()], [0, 1, 2, 3]);
});

test("texts sort by the numbers in them", () => {
  const model = packed();
  model.sort(0, 1);
  assert.deepEqual([...model.rows()].map((row) => model.short[row]), ["copy", "gemm", "step 9", "step 10"]);
});

test("a filter looks at short and full names, and refuses what is no expression", () => {
  const model = packed();
  assert.equal(model.filter("full name"), true);
  assert.deepEqual([...model.rows()], [0]);
  assert.equal(model.filter("/^step \\d$/"), true);
  assert.deepEqual([...model.rows()], [3]);
  assert.equal(model.filter("/(/"), false);
  model.filter("");
  assert.equal(model.matched, 4);
});

test("bars are shares of the largest value, and empty cells say so", () => {
  const [column] = packed().columns;
  assert.equal(column.share(0), 75);
  assert.equal(column.share(1), null);
  assert.deepEqual([0, 1].map(column.text), ["3", "–"]);
});

test("a tree opens and closes, and a filter keeps what its matches are inside of", () => {
  const model = packed({ level: [0, 1, 2, 0] });
  assert.deepEqual([...model.parent], [-1, 0, 1, -1]);
  model.openAll(false);
  assert.deepEqual([...model.rows()], [0, 3]);
  model.setOpen(0, true);
  assert.deepEqual([...model.rows()], [0, 1, 3]);
  model.filter("step 10");
  assert.deepEqual([...model.rows()], [0, 1, 2]);
  model.setOpen(1, false);
  assert.deepEqual([...model.rows()], [0, 1]);
});

test("a file has all digits, full names, and no formulas", () => {
  const model = new TableModel({
    short: ["=1+1", "b"],
    full: ["", "b in full"],
    level: null,
    columns: [{ values: Float64Array.of(0.1 + 0.2, NaN), text: String }, { texts: ["x, y", ""], text: String }],
  });
  const headings = ["name", "time_ns", "what"].map((name) => ({ name, title: name }));
  const csv = 'name,time_ns,what\r\n\'=1+1,0.30000000000000004,"x, y"\r\nb in full,,\r\n';
  assert.equal(TableCopy.csv(model, headings, false), csv);
});

test("what is searched for is a part in any case, or an expression", () => {
  assert.equal(textTest("  "), null);
  assert.equal(textTest("/[/"), undefined);
  assert.equal(textTest("GEMM")("a gemm"), true);
  assert.equal(textTest("/^gemm/")("a gemm"), false);
  assert.equal(new RegExp(`^${literally("f(x)[1]*2/3")}$`).test("f(x)[1]*2/3"), true);
});
