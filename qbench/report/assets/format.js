// How values are written: the page's side of columns.py.

const MISSING = "n/a";
const COLUMN = new Map(ABOUT.columns.map((column) => [column.key, column]));

function written(column, value, like = value) {
  if (value === null || value === undefined) return MISSING;
  if (column.kind === "text") return String(value);
  const scaled = value * column.scale;
  if (column.kind === "scientific") return scientific(scaled);
  return scaled.toFixed(column.kind === "fixed" ? column.digits : Number(like * column.scale < 100));
}

// 3.72e-6 -> "3.72e-06": as wide as the others
function scientific(value) {
  if (value === 0) return "0";
  return value.toExponential(2).replace(/e([+-])(\d)$/, "e$10$2");
}

// The two ends as texts, or null if one is not known
function ends(column, table, row) {
  if (!column.ends) return null;
  const [low, high] = column.ends.map((end) => table.value(end, row));
  if (low === null || high === null) return null;
  const value = table.value(column.key, row);
  return [written(column, low, value), written(column, high, value)];
}

const count = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
const shortCommit = (commit) => (/^[0-9a-f]{40}/.test(commit) ? commit.slice(0, 10) + commit.slice(40) : commit);

// A speed names its number of tokens if all these rows have the same: "pp512 tok/s", at a depth "tg64@4096"
function headingOf(table, { key, heading }, rows) {
  const phase = key.replace("_tok_s", "");
  if (!["pp", "tg"].includes(phase)) return heading;
  const names = new Set();
  for (const row of rows) {
    const tokens = table.value(phase, row),
      depth = table.value("depth", row);
    if (tokens !== null) names.add(`${phase}${tokens}${depth ? `@${depth}` : ""} tok/s`);
  }
  return names.size === 1 ? [...names][0] : heading;
}

// The KV format, cache, policy, attention and prefill of a row, if they are not the usual ones and the recipe does not
// name them: "kv-int8 window:64".
function keptAs(table, row) {
  const keys = ["recipe", "kv_format", "cache", "policy", "attention", "prefill"];
  const [recipe, format, cache, policy, attention, prefill] = keys.map((key) => table.value(key, row) ?? "");
  const isUsual = format === "f32" || recipe.endsWith(`+${format}`);
  const usual = { dynamic: cache, full: policy, dense: prefill };
  return [isUsual ? "" : format, cache, policy, attention, prefill]
    .filter((word) => word && usual[word] !== word)
    .join(" ");
}

// "bf16 kv-int8 window:64"
const recipeAs = (table, row) => [table.value("recipe", row), keptAs(table, row)].filter(Boolean).join(" ");
