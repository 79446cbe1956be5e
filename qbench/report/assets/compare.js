// Two rows side by side: changes from A to B, how sure they are, and reasons if something does not compare.

async function comparePage(table, a, b) {
  const sides = await Promise.all([a, b].map((row) => RECORDS.of(row)));
  const name = (row) => h("a", { href: rowLink(table, row) }, recipeAs(table, row));
  const head = h("h1", null, h("span", { class: "of" }, "A "), name(a), h("span", { class: "of" }, " → B "), name(b));
  const models = new Set([a, b].map((row) => table.value("model", row)));
  const crumbs = h(
    "p",
    { class: "crumbs" },
    h("a", { href: "#/" }, "All rows"),
    " / ",
    [...models].map((model, i) => [i ? " and " : "", h("a", { href: modelLink(model) }, model)]),
  );
  const swap = h("a", { class: "button", href: compareLink(table, b, a) }, "Swap A and B");
  const records = sides.map((record, i) => record || recordOfTable(table, [a, b][i]));
  const launched = Object.fromEntries(
    ["pp", "tg"].map((phase) => [`${phase}_tok_s`, [a, b].map((row) => launchedSpeed(table, phase, row))]),
  );
  const { cells, unlike } = compareRecords(...records, launched);
  const without = sides.flatMap((record, i) => (record ? [] : ["AB"[i]])).join(" and ");
  return h(
    "article",
    null,
    crumbs,
    head,
    h("p", { class: "actions" }, swap),
    without &&
      h(
        "p",
        { class: "note" },
        `This page has no room for the record of ${without}: what follows is told from the table alone, ` +
          "without samples and sums by block.",
      ),
    unlike.map((text) => h("p", { class: "failure" }, text)),
    comparisonTable(cells, table, a, b),
    h(
      "p",
      { class: "note" },
      "Better, same or worse is said of B, after p values are corrected for one another (Holm); intervals are 95 %. " +
        "Quality is paired by block of the text, tasks by item. Speeds have a verdict if several processes measured " +
        "them; ",
      h("code", null, "qbench race A B"),
      " measures them in turn.",
    ),
  );
}

// {speed, error, freedom, count} over the launches of a row; null if they are not known
function launchedSpeed(table, phase, row) {
  const [count, spread, freedom] = ["launches", "launch_spread", "launch_freedom"].map((name) =>
    table.value(`${phase}_${name}`, row),
  );
  if (!Number.isFinite(spread)) return null;
  return { speed: table.value(`${phase}_tok_s`, row), error: spread / Math.sqrt(count), freedom, count };
}

const VERDICTS = { better: "▲ better", same: "≈ same", worse: "▼ worse" };

function comparisonTable(cells, table, a, b) {
  const head = ["", "A", "B", "B against A [95 %]", "B is", ""];
  const sign = (value, text) => (value > 0 ? `+${text}` : text.replace("-", "−"));
  const tell = ({ column, kind }, value) => {
    if (kind === "ratio") return `×${value.toFixed(Math.abs(value - 1) < 0.1 ? 4 : 3)}`;
    return sign(
      value,
      column.kind === "scientific" ? scientific(value) : (value * column.scale).toFixed(column.digits + 1),
    );
  };
  const changeOf = (cell) => [
    h("b", null, tell(cell, cell.change.value)),
    cell.change.low === null || cell.exact
      ? null
      : h("small", null, `${tell(cell, cell.change.low)} to ${tell(cell, cell.change.high)}`),
  ];
  return h(
    "div",
    { class: "scroll plain" },
    h(
      "table",
      { class: "comparison" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          head.map((text, i) =>
            h(
              "th",
              { scope: "col", class: i === 0 || i > 3 ? "text" : "" },
              text,
              i === 1 || i === 2 ? h("small", null, recipeAs(table, i === 1 ? a : b)) : null,
            ),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        cells.map((cell) =>
          h(
            "tr",
            null,
            h("th", { scope: "row", class: "text" }, cell.column.heading),
            h("td", null, written(cell.column, cell.a)),
            h("td", null, written(cell.column, cell.b)),
            h("td", null, changeOf(cell)),
            h(
              "td",
              { class: `text verdict ${cell.verdict || "open"}` },
              cell.verdict ? VERDICTS[cell.verdict] : "open",
              cell.p === null ? null : h("small", null, `p ${tellP(cell.p)}`),
            ),
            h("td", { class: "text note" }, cell.note),
          ),
        ),
      ),
    ),
  );
}

const tellP = (p) => (p < 0.001 ? "< 0.001" : p.toFixed(3));

// As much of a record as the table has.
function recordOfTable(table, row) {
  const value = (key) => table.value(key, row);
  const interval = (name) => (value(`${name}_low`) === null ? null : [value(`${name}_low`), value(`${name}_high`)]);
  const figures = ["perplexity", "same_top", "pp_tok_s", "tg_tok_s", "size_bytes", "bits_per_weight", "peak_rss_bytes"];
  return {
    case: {
      ...Object.fromEntries(["model", "threads", "batch", "device"].map((key) => [key, value(key)])),
      bench: Object.fromEntries(["pp", "tg", "depth"].map((key) => [key, value(key)])),
    },
    machine: { id: value("machine") },
    metrics: {
      ...Object.fromEntries(figures.map((key) => [key, value(key)])),
      perplexity_interval: interval("perplexity"),
      kld: value("kld_mean") === null ? null : { mean: value("kld_mean") },
      kld_interval: interval("kld"),
      protocol: value("protocol") && { name: value("protocol"), hash: value("protocol_hash") },
    },
  };
}
