// The page in Firefox: what other tests see in Chromium holds with the script, style and canvas of another engine.
// `test_firefox.py` writes the pages; it says in the environment where they are (PAGES) and what runs them (FIREFOX).

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const puppeteer = createRequire(new URL("../../templates/package.json", import.meta.url))("puppeteer-core");
const { FIREFOX, PAGES } = process.env;

const KERNELS = "#cuda_gpu_kern_sum";
const ROWS = `${KERNELS} tbody:not(.printed) tr[data-row]`;
const EVENT = ".timeline-event";
const RANGE = ".timeline-range";
const CANVAS = ".timeline-box canvas";
const STREAM_7 = 70; // of the canvas, from its top
const WAIT_MS = 20_000;

let browser;
before(async () => {
  browser = await firefox();
});
after(() => browser?.close());

/** Start the browser in the light theme or the dark one; what it downloads lies beside the pages. */
function firefox({ isDark = false } = {}) {
  const extraPrefsFirefox = {
    "layout.css.prefers-color-scheme.content-override": isDark ? 0 : 1,
    "browser.download.folderList": 2,
    "browser.download.dir": PAGES,
  };
  return puppeteer.launch({ browser: "firefox", executablePath: FIREFOX, extraPrefsFirefox });
}

/** Open a page and do something in it; in the end there must have been no message and no further request. */
async function visit(name, act, { width = 1280, within = browser } = {}) {
  const seen = [];
  const context = await within.createBrowserContext();
  const page = await context.newPage();
  await page.setViewport({ width, height: 800 });
  page.on("console", (message) => seen.push(message.text()));
  page.on("pageerror", (error) => seen.push(error.message));
  // Firefox has a font for its own triangles
  page.on("request", (request) => request.url().startsWith("data:font/") || seen.push(request.url()));
  await page.goto(pathToFileURL(join(PAGES, `${name}.html`)).href);
  await until(async () => (await Promise.all(page.frames().map((frame) => frame.evaluate(isReady)))).every(Boolean));
  await act(page);
  await context.close();
  assert.deepEqual(seen, []);
}

/** Tell whether all that the scripts of a page make is there. */
function isReady() {
  return [
    ["tables-data", "table: ready"],
    ["timeline-data", "timeline: ready"],
  ].every(([id, mark]) => !document.getElementById(id) || performance.getEntriesByName(mark).length);
}

async function until(holds) {
  const end = Date.now() + WAIT_MS;
  while (!(await holds())) {
    assert.ok(Date.now() < end, `it did not come to be: ${holds}`);
    await pause(30);
  }
}

function innerText(page, selector) {
  return page.$eval(selector, (element) => element.innerText);
}

async function click(page, selector) {
  await page.$eval(selector, (element) => element.scrollIntoView({ block: "center", behavior: "instant" }));
  await page.click(selector);
}

for (const name of ["mlp", "index"]) {
  for (const width of [390, 1280]) {
    test(`the page ${name} is silent, self-contained, and fits into ${width} pixels`, () =>
      visit(
        name,
        async (page) => {
          assert.equal(await page.evaluate(() => innerWidth), width);
          assert.equal(await page.$eval("html", (root) => root.scrollWidth - root.clientWidth), 0);
          assert.notEqual(await page.$eval("body", (body) => getComputedStyle(body).maxWidth), "none"); // of our style
          assert.deepEqual(await page.evaluate(() => performance.getEntriesByType("resource").map((one) => one.name)), []);
        },
        { width },
      ));
  }
}

test("a page runs in a sandboxed frame", () =>
  visit("framed", async (page) => {
    const frame = page.frames()[1];
    await frame.click(`nav a[href="${KERNELS}"]`);
    await until(() => frame.$eval(KERNELS, (section) => Math.abs(section.getBoundingClientRect().top) < 200));
    const whole = await innerText(frame, RANGE);
    await click(frame, "[data-do=zoom-in]");
    await until(async () => (await innerText(frame, RANGE)) !== whole);
  }));

// timeline

/** Return what the details of an event say of a term. */
function told(page, term) {
  return page.$$eval(
    `${EVENT} dl > div`,
    (pairs, wanted) =>
      pairs.find((pair) => pair.querySelector("dt").innerText === wanted).querySelector("dd").innerText,
    term,
  );
}

/** Return the span of time that is shown, in ms from the start of the window, as it is written. */
async function inView(page) {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const text = (await innerText(page, RANGE)).replaceAll(",", "");
  const [, first, last, unit] = text.match(/^(\S+) \S+ to (\S+) (\S+)/);
  const size = { ns: 1e-6, µs: 1e-3, ms: 1, s: 1e3 }[unit];
  return [Number(first) * size, Number(last) * size];
}

/** Return where a time, in ms since the window, is on the screen. */
async function xOf(page, ms) {
  const [first, last] = await inView(page);
  const box = await (await page.$(CANVAS)).boundingBox();
  const reds = (await pixels(page, 0, 64, 400, 1)).map(([red]) => red);
  // right of the rule beside the names of rows
  const gutter = reds.findIndex((red, at) => at >= 100 && red === 223 && reds[at - 1] === 255) + 1;
  return box.x + gutter + ((ms - first) / (last - first)) * (box.width - gutter);
}

/** Return colors of the canvas, row by row. */
function pixels(page, ...box) {
  return page.$eval(
    CANVAS,
    (canvas, x, y, width, height) => {
      const { data } = canvas.getContext("2d").getImageData(x, y, width, height);
      return Array.from({ length: width * height }, (_, at) => Array.from(data.slice(4 * at, 4 * at + 3)));
    },
    ...box,
  );
}

test("a click tells of an event and leads to its launch", () =>
  visit("small", async (page) => {
    const box = await (await page.$(CANVAS)).boundingBox();
    await page.mouse.click(await xOf(page, 6), box.y + STREAM_7);
    await until(async () => (await innerText(page, EVENT)) !== "");
    assert.equal(await innerText(page, `${EVENT} h3`), "void ns::gemm<float>(float*)");
    assert.equal(await told(page, "Start"), "5.000000 ms");
    assert.equal(await told(page, "Duration"), "3.000 ms");
    await click(page, `${EVENT} dl button`);
    assert.equal(await innerText(page, `${EVENT} h3`), "cudaLaunchKernel");
    assert.equal(await told(page, "Start"), "3.000000 ms");
    await page.focus(CANVAS);
    await page.keyboard.press("Escape");
    assert.equal(await innerText(page, EVENT), "");
  }));

test("wheel and keys change what is in view", () =>
  visit("small", async (page) => {
    const near = (one, other, by) => assert.ok(Math.abs(one - other) <= by, `${one} is not near ${other}`);
    const whole = await inView(page);
    const box = await (await page.$(CANVAS)).boundingBox();
    const x = await xOf(page, 3);
    await page.mouse.move(x, box.y + STREAM_7);
    await page.keyboard.down("Control");
    await page.mouse.wheel({ deltaY: -200 });
    await until(async () => (await inView(page))[0] !== whole[0]);
    await page.keyboard.up("Control");
    const [first, last] = await inView(page);
    assert.ok(last - first < 0.8 * (whole[1] - whole[0]));
    near(await xOf(page, 3), x, 2); // what was under the pointer still is
    await page.focus(CANVAS);
    await page.keyboard.press("+");
    const nearer = await inView(page);
    assert.ok(nearer[1] - nearer[0] < 0.8 * (last - first));
    await page.keyboard.press("Home");
    const all = await inView(page);
    near(all[0], -1.1, 0.001);
    near(all[1], 9.1, 0.001);
  }));

test("a search finds events by keyboard", () =>
  visit("small", async (page) => {
    await page.focus(CANVAS);
    await page.keyboard.press("/");
    await page.keyboard.type("gemm");
    await page.keyboard.press("Enter");
    assert.equal(await innerText(page, "output"), "1 of 2 events");
    assert.equal(await told(page, "Start"), "1.000000 ms");
  }));

// tables

/** Return the numbers of a column (below 0: counted from the last) in the rows that are in the page. */
async function shown(page, column) {
  const texts = await page.$$eval(ROWS, (rows, at) => rows.map((row) => [...row.cells].at(at).textContent), column);
  return texts.map((text) => Number(text.replaceAll(",", "")));
}

test("a table sorts and filters", () =>
  visit("mlp", async (page) => {
    const heading = `${KERNELS} th[data-column="max_ns"]`;
    for (const [order, sign] of [
      ["descending", -1],
      ["ascending", 1],
    ]) {
      await click(page, `${heading} button`);
      assert.equal(await page.$eval(heading, (cell) => cell.ariaSort), order);
      const largest = await shown(page, await page.$eval(heading, (cell) => cell.cellIndex));
      assert.ok(new Set(largest).size > 5);
      assert.deepEqual(
        largest,
        largest.toSorted((one, other) => sign * (one - other)),
      );
    }
    await click(page, `${KERNELS} input`);
    await page.keyboard.type("/REDUCE_kernel/");
    assert.equal(await innerText(page, `${KERNELS} output`), "2 of 13");
    assert.equal((await shown(page, -2)).length, 2);
  }));

test("a name is copied and shown in the timeline", () =>
  visit("mlp", async (page) => {
    const full = await page.$eval(`${ROWS} .full`, (name) => name.textContent);
    await click(page, `${ROWS} [data-does=copy]`);
    await until(() => page.evaluate(() => document.getElementById("copy-status")?.textContent === "Copied"));
    await click(page, `${KERNELS} input`);
    await page.keyboard.down("Control");
    await page.keyboard.press("v");
    await page.keyboard.up("Control");
    assert.equal(await page.$eval(`${KERNELS} input`, (input) => input.value), full);
    await click(page, `${ROWS} [data-does=show]`);
    assert.equal(await page.$eval(".timeline-search input", (input) => input.value), full);
  }));

test("a table is saved as a file", () =>
  visit("mlp", async (page) => {
    await click(page, `${KERNELS} [aria-label$="as CSV"]`);
    const file = join(PAGES, "cuda_gpu_kern_sum.csv");
    await until(() => existsSync(file) && readFileSync(file, "utf8").endsWith("\n"));
    const [header, ...rows] = readFileSync(file, "utf8").trimEnd().split("\n");
    assert.match(header, /^name,time_pct,total_ns,/);
    assert.equal(rows.length, (await page.$$(ROWS)).length);
  }));

// theme

/** Return the color of a page and of the timeline in it. */
async function backgrounds(within) {
  const found = [];
  const look = async (page) => {
    found.push(await page.$eval("body", (body) => getComputedStyle(body).backgroundColor));
    found.push(`rgb(${(await pixels(page, 2, 2, 1, 1))[0].join(", ")})`);
  };
  await visit("mlp", look, { within });
  return found;
}

test("the theme is the one preferred", async () => {
  assert.deepEqual(await backgrounds(browser), ["rgb(255, 255, 255)", "rgb(255, 255, 255)"]);
  const other = await firefox({ isDark: true });
  try {
    assert.deepEqual(await backgrounds(other), ["rgb(18, 21, 25)", "rgb(18, 21, 25)"]);
  } finally {
    await other.close();
  }
});
