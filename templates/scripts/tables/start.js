// Starts the tables: controls appear at once, all rows as soon as they are unpacked.

import { keepTarget } from "../links.js";
import { canUnpack, unpacked } from "../payload.js";
import { TableModel } from "./model.js";
import { TableTools } from "./tools.js";

/** @import { PackedTable } from "./types.js" */

/** @typedef {{ tables: Map<string, PackedTable>, texts: string[] }} Block */

const OLD_BROWSER = "The other rows need a browser with DecompressionStream.";

async function packedTables() {
  const bytes = canUnpack ? await unpacked("tables-data") : null;
  if (!bytes) return null;
  const { tables, texts } = JSON.parse(new TextDecoder().decode(bytes));
  return { tables: new Map(Object.entries(tables)), texts };
}

/**
 * @param {TableTools} tools
 * @param {Block | null} block
 * @param {boolean} hasTimeline
 */
function showTable(tools, block, hasTimeline) {
  const packed = block?.tables.get(tools.table.dataset.table ?? "");
  const model = block && packed
    ? TableModel.fromBlock(packed, block.texts, tools.printed)
    : TableModel.fromPage(tools.printed, tools.headings);
  const isOld = tools.hasMore && !canUnpack && document.getElementById("tables-data");
  tools.show(model, isOld ? OLD_BROWSER : model.more, hasTimeline);
}

export async function showTables() {
  /** @type {NodeListOf<HTMLTableElement>} */
  const tables = document.querySelectorAll("table[data-table]");
  const all = Array.from(tables, (table) => new TableTools(table));
  const hasTimeline = Boolean(document.getElementById("timeline"));
  const block = await packedTables();
  for (const tools of all) showTable(tools, block, hasTimeline);
  keepTarget();
  performance.mark("table: ready");
}

