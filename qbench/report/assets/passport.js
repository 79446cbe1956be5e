// One row: its figures with intervals and raw samples, and all that it takes to judge and to repeat them.

const FIGURES = [
  "kld_mean",
  "perplexity",
  "same_top",
  "bits_per_weight",
  "size_bytes",
  "pp_tok_s",
  "tg_tok_s",
  "ttft_ms",
  "tpot_ms",
  "peak_rss_bytes",
  "kv_bytes_per_token",
  "quantize_seconds",
];

async function passport(table, row, tray) {
  const record = await RECORDS.of(row),
    text = (key) => table.value(key, row);
  const pick = h("button", {
    type: "button",
    class: "button",
    onclick: () => {
      tray.toggle(row);
      tell();
    },
  });
  const tell = () => {
    pick.textContent = tray.has(row) ? "Picked for comparison" : "Pick to compare";
  };
  tell();
  const base = baselineOf(table, row);
  return h(
    "article",
    null,
    h(
      "p",
      { class: "crumbs" },
      h("a", { href: "#/" }, "All rows"),
      " / ",
      h("a", { href: modelLink(text("model")) }, text("model")),
    ),
    h(
      "h1",
      null,
      h("a", { href: recipeLink(text("recipe")), title: "every row of this recipe" }, text("recipe")),
      h("span", { class: "of" }, [keptAs(table, row), "on", text("model")].filter(Boolean).map((word) => ` ${word}`)),
    ),
    h(
      "p",
      { class: "actions" },
      pick,
      base !== null && base !== row
        ? h(
            "a",
            { class: "button", href: compareLink(table, base, row) },
            `Compare with ${recipeAs(table, base)}`,
          )
        : null,
    ),
    text("status") === "ok" ? null : h("p", { class: "failure" }, h("b", null, "This case failed: "), text("error")),
    h(
      "div",
      { class: "cards" },
      FIGURES.filter((key) => table.has(key) && text(key) !== null).map((key) => card(table, row, COLUMN.get(key))),
    ),
    record ? fromRecord(record) : withoutRecord(table, row),
  );
}

// The unquantized row of the same group, or null.
function baselineOf(table, row) {
  const { codes } = table.column("group"),
    baseline = table.column("is_baseline");
  for (let other = 0; other < table.rows; other++) {
    if (codes[other] === codes[row] && baseline.values[baseline.codes[other]] === true) return other;
  }
  return null;
}

function card(table, row, column) {
  const both = ends(column, table, row);
  return h(
    "div",
    { class: "card", title: column.meaning || null },
    h("span", { class: "name" }, headingOf(table, column, [row])),
    h("span", { class: "value" }, written(column, table.value(column.key, row))),
    both ? h("span", { class: "ends" }, `${column.ends_name} ${both.join("\u2009–\u2009")}`) : null,
  );
}

function withoutRecord(table, row) {
  const facts = ["protocol", "protocol_hash", "cpu", "machine", "threads", "isa", "impls", "commit", "time", "key"];
  return [
    h(
      "p",
      { class: "note" },
      `This page has room for the records of ${ABOUT.records.toLocaleString("en")} of its ` +
        `${count(table.rows, "row")}, the newest; samples and protocol of this one are in the records file, ` +
        `on the line with the key ${table.value("key", row)}.`,
    ),
    panel(
      "Where and how",
      definitions(
        facts
          .filter((key) => table.has(key))
          .map((key) => [COLUMN.get(key)?.heading || key.replace("_", " "), table.value(key, row)]),
      ),
    ),
  ];
}

function fromRecord(record) {
  const metrics = record.metrics || {};
  return [
    samplesPanel(metrics),
    h(
      "div",
      { class: "panels" },
      protocolPanels(metrics),
      tasksPanel(metrics.tasks),
      divergencePanels(metrics),
      kernelsPanel(metrics),
      machinePanel(record.machine || {}, metrics),
      codePanel(record),
    ),
    panel("Measure it again", h("pre", { tabindex: 0 }, reproduceText(record))),
    h(
      "details",
      { class: "panel" },
      h("summary", null, "The record"),
      h("pre", { tabindex: 0 }, JSON.stringify(record, null, 1)),
    ),
  ];
}
