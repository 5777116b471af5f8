// Starts the tables: controls appear at once, all rows as soon as they are unpacked.

import { parts, toolButton } from "../dom.js";
import { keepTarget } from "../links.js";
import { showIcicles } from "../pictures/icicles.js";
import { canUnpack, unpacked } from "../payload.js";
import { TableGroups } from "./groups.js";
import { LinkedTables } from "./linked.js";
import { TableModel } from "./model.js";
import { TableTools } from "./tools.js";

/** @import { PackedTable } from "./types.js" */

/** @typedef {{ tables: Map<string, PackedTable>, texts: string[], number: string }} Block */

const OLD_BROWSER = "The other rows need a browser with DecompressionStream.";

async function packedTables() {
  const bytes = canUnpack ? await unpacked("tables-data") : null;
  if (!bytes) return null;
  const { tables, texts, number } = JSON.parse(new TextDecoder().decode(bytes));
  return { tables: new Map(Object.entries(tables)), texts, number };
}

/**
 * The rows of a table, as a target for links in other tables.
 * @param {TableTools} tools
 * @param {Block | null} block
 */
function linkedModel(tools, block) {
  const name = tools.table.dataset.table ?? "";
  const packed = block?.tables.get(name);
  const model = block && packed
    ? TableModel.fromBlock(packed, block.texts, tools.printed)
    : TableModel.fromPage(tools.printed, tools.headings);
  LinkedTables.tables.set(name, { tools, model });
  return model;
}

/**
 * The trees of a table by their grouping.
 * @param {TableTools} tools
 * @param {Block} block
 */
function groupModels(tools, { tables, texts }) {
  const name = `${tools.table.dataset.table}/`;
  const trees = [...tables].filter(([table]) => table.startsWith(name));
  return new Map(trees.map(([table, packed]) => [table.slice(name.length), TableModel.fromBlock(packed, texts, [])]));
}

/**
 * Evidence that names a kernel or a range leads there; looked up when it is opened.
 * @param {boolean} hasTimeline
 */
function linkEvidence(hasTimeline) {
  for (const details of document.querySelectorAll("details.evidence")) {
    details.addEventListener("toggle", () => {
      for (const item of details.querySelectorAll("li")) {
        // the page keeps units next to their numbers with a special space, also in names that seem to end in a unit
        const link = LinkedTables.named((item.textContent ?? "").replaceAll("\u00a0", " "));
        if (!link || (link.does === "show" && !hasTimeline)) continue;
        const button = toolButton(link.text, link.go);
        button.title = link.label;
        item.append(" ", button);
      }
    }, { once: true });
  }
}

export async function showTables() {
  const all = parts(document, "table[data-table]", HTMLTableElement).map((table) => new TableTools(table));
  const hasTimeline = Boolean(document.getElementById("timeline"));
  const block = await packedTables();
  LinkedTables.number = new RegExp(block?.number ?? "$^", "g");
  const models = all.map((tools) => linkedModel(tools, block));
  for (const tools of block ? all : []) {
    const groups = block ? groupModels(tools, block) : new Map();
    if (groups.size) LinkedTables.groups = new TableGroups(tools, groups, hasTimeline);
  }
  all.forEach((tools, index) => {
    const isOld = tools.hasMore && !canUnpack && document.getElementById("tables-data");
    tools.show(models[index], isOld ? OLD_BROWSER : models[index].more, hasTimeline);
  });
  linkEvidence(hasTimeline);
  showIcicles(all);
  keepTarget();
  performance.mark("table: ready");
}
