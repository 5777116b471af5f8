// Tables: what is printed gets its controls at once, and its rows as soon as they are unpacked.

const OLD_BROWSER = "The other rows need a newer browser: this one has no DecompressionStream.";

async function packedTables() {
  const bytes = canUnpack ? await unpacked("tables-data") : null;
  if (!bytes) return null;
  const { tables, texts, ...digits } = JSON.parse(new TextDecoder().decode(bytes));
  return { tables: new Map(Object.entries(tables)), texts, numbers: new TableNumbers(digits) };
}

function showTable(tools, block, hasTimeline) {
  const packed = block?.tables.get(tools.table.dataset.table);
  const model = packed
    ? TableModel.fromBlock(packed, block.texts, block.numbers, tools.printed)
    : TableModel.fromPage(tools.printed, tools.headings);
  const isOld = tools.hasMore && !canUnpack && document.getElementById("tables-data");
  tools.show(model, isOld ? OLD_BROWSER : model.more, hasTimeline);
}

async function showTables() {
  const all = Array.from(document.querySelectorAll("table[data-table]"), (table) => new TableTools(table.parentElement));
  const hasTimeline = Boolean(document.getElementById("timeline"));
  const block = await packedTables();
  for (const tools of all) showTable(tools, block, hasTimeline);
  keepTarget();
  performance.mark("table: ready");
}

showTables();
