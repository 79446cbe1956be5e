// One row: its figures with intervals and raw samples, and all that it takes to judge and to repeat them.

const FIGURES = ["kld_mean", "perplexity", "same_top", "bits_per_weight", "size_bytes", "pp_tok_s", "tg_tok_s", "ttft_ms", "tpot_ms",
  "peak_rss_bytes", "kv_bytes_per_token", "quantize_seconds"];

async function passport(table, row, tray) {
  const record = await RECORDS.of(row), text = (key) => table.value(key, row);
  const pick = h("button", { type: "button", class: "button", onclick: () => { tray.toggle(row); tell(); } });
  const tell = () => { pick.textContent = tray.has(row) ? "Picked for comparison" : "Pick to compare"; };
  tell();
  const base = baselineOf(table, row);
  return h("article", null,
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "All rows"), " / ", h("a", { href: modelLink(text("model")) }, text("model"))),
    h("h1", null, h("a", { href: recipeLink(text("recipe")), title: "every row of this recipe" }, text("recipe")), h("span", { class: "of" }, ` on ${text("model")}`)),
    h("p", { class: "actions" }, pick, base !== null && base !== row ? h("a", { class: "button", href: compareLink(table, base, row) }, `Compare with ${table.value("recipe", base)}`) : null),
    text("status") === "ok" ? null : h("p", { class: "failure" }, h("b", null, "This case failed: "), text("error")),
    h("div", { class: "cards" }, FIGURES.filter((key) => table.has(key) && text(key) !== null).map((key) => card(table, row, COLUMN.get(key)))),
    record ? fromRecord(record) : withoutRecord(table, row));
}

// The unquantized row of the same group, or null.
function baselineOf(table, row) {
  const { codes } = table.column("group"), baseline = table.column("is_baseline");
  for (let other = 0; other < table.rows; other++) {
    if (codes[other] === codes[row] && baseline.values[baseline.codes[other]] === true) return other;
  }
  return null;
}

function card(table, row, column) {
  const both = ends(column, table, row);
  return h("div", { class: "card", title: column.meaning || null }, h("span", { class: "name" }, headingOf(table, column, [row])), h("span", { class: "value" }, written(column, table.value(column.key, row))),
    both ? h("span", { class: "ends" }, `${column.ends_name} ${both.join("\u2009–\u2009")}`) : null);
}

function withoutRecord(table, row) {
  const facts = ["protocol", "protocol_hash", "cpu", "machine", "threads", "isa", "impls", "commit", "time", "key"];
  return [h("p", { class: "note" }, `This page has room for the records of ${ABOUT.records.toLocaleString("en")} of its ${count(table.rows, "row")}, the newest; `
    + `samples and protocol of this one are in the records file, on the line with the key ${table.value("key", row)}.`),
    panel("Where and how", definitions(facts.filter((key) => table.has(key)).map((key) => [COLUMN.get(key)?.heading || key.replace("_", " "), table.value(key, row)])))];
}

function fromRecord(record) {
  const metrics = record.metrics || {};
  return [samplesPanel(metrics), h("div", { class: "panels" },
    protocolPanels(metrics), tasksPanel(metrics.tasks), divergencePanels(metrics), kernelsPanel(metrics), machinePanel(record.machine || {}, metrics), codePanel(record)),
  panel("Measure it again", h("pre", { tabindex: 0 }, reproduceText(record))),
  h("details", { class: "panel" }, h("summary", null, "The record"), h("pre", { tabindex: 0 }, JSON.stringify(record, null, 1)))];
}

function divergencePanels(metrics) {
  if (!metrics.kld) return [];
  const facts = Object.entries(metrics.kld).map(([name, value]) => [name.replace("p999", "p99.9"), scientific(value)]);
  return [panel("Divergence, nats", definitions([...facts, ["measured from", metrics.reference], ["its logits kept", metrics.kld_reference && plain(metrics.kld_reference)]])),
    profile("Divergence by position", metrics.kld_by_position), profile("Divergence by the reference's confidence", metrics.kld_by_confidence)];
}

function kernelsPanel(metrics) {
  if (!metrics.impls) return null;
  return panel("What ran", definitions([...Object.entries(metrics.impls).map(([name, number]) => [name, count(number, "linear")]),
    ["instruction set", metrics.isa], ["device", metrics.device], ["threads", metrics.threads], ["processors", metrics.affinity]]));
}

function machinePanel(machine, metrics) {
  return panel("Machine", definitions([["processor", machine.cpu], ["id", machine.id], ["cores", machine.cores], ["memory", machine.memory_gib && `${machine.memory_gib} GiB`],
    ["system", machine.system], ["instruction sets", machine.features && plain(machine.features)],
    ["load before", metrics.load_average && plain(metrics.load_average.before)], ["energy", metrics.energy && plain(metrics.energy)]]));
}

function codePanel(record) {
  return panel("Code", definitions([["commit", record.commit && record.commit.slice(0, 10) + (record.dirty ? " with changes" : "")], ["code", record.code],
    ...Object.entries(record.versions || {}), ["measured", record.time], ["key", record.key]]));
}

const panel = (title, body) => h("section", { class: "panel" }, h("h2", null, title), body);

function samplesPanel(metrics) {
  const rows = Object.entries(metrics.samples || {}).filter(([, values]) => Array.isArray(values) && values.length && values.every(Number.isFinite))
    .map(([name, values]) => {
      const spread = metrics.spread?.[name] || {};
      const sorted = [...values].sort((a, b) => a - b), middle = spread.median ?? quantile(sorted, 0.5);
      return sampleRow(name.replace("_tok_s", " tok/s"), values, middle, spread.min ?? sorted[0], spread.max ?? sorted.at(-1));
    });
  const blocks = metrics.blocks || {};
  for (const [what, name] of [["kld", "KLD a token"], ["nll", "nats a token"]]) {
    if (!blocks[what]) continue;
    const means = blocks[what].map((sum, i) => sum / blocks.tokens[i]);
    const [middle, interval] = what === "kld" ? [metrics.kld?.mean, metrics.kld_interval] : [Math.log(metrics.perplexity), metrics.perplexity_interval?.map(Math.log)];
    rows.push(sampleRow(`${name}, by ${blocks.unit}`, means, middle, ...(interval || [null, null])));
  }
  return rows.length ? panel("Raw samples", h("div", { class: "strips" }, rows)) : null;
}

function sampleRow(name, values, middle, low, high) {
  const tell = (value) => (Math.abs(value) < 0.01 && value !== 0 ? scientific(value) : plain(Number(value.toPrecision(5))));
  const told = `${tell(middle)}${Number.isFinite(low) ? ` [${tell(low)}, ${tell(high)}]` : ""}`;
  return h("div", { class: "sample" }, h("span", null, name, h("small", null, count(values.length, "sample"))),
    strip(values, middle, low, high, `${name}: ${values.length} samples, ${told}`), h("span", { class: "told" }, told));
}

// Every convention that the run measured, each with all its fields.
function protocolPanels(metrics) {
  const conventions = Object.entries(metrics.protocols || {}).map(([name, found]) => [name, found]);
  if (!conventions.length && metrics.protocol) conventions.push([metrics.protocol.name, metrics]);
  return conventions.map(([name, found]) => panel(`Protocol ${name}`, definitions([
    ["perplexity", found.perplexity && `${found.perplexity.toFixed(4)}${found.perplexity_interval ? ` [${found.perplexity_interval.map((end) => end.toFixed(4)).join(", ")}]` : ""}`],
    ...Object.entries(found.protocol || {}).map(([field, value]) => [field.replaceAll("_", " "), plain(value)])])));
}

function tasksPanel(tasks) {
  const rows = Object.entries(tasks || {});
  if (!rows.length) return null;
  return panel("Tasks", h("table", { class: "small" }, h("thead", null, h("tr", null, ["task", "metric", "value", "error", "items"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map(([name, task]) => h("tr", null, h("th", { scope: "row" }, name), h("td", null, task.metric), h("td", null, plain(task.value)),
      h("td", null, plain(task.error)), h("td", null, plain(task.num_items)))))));
}

function profile(title, bins) {
  if (!bins?.length) return null;
  const most = Math.max(...bins.map((bin) => bin.mean || 0)) || 1;
  return panel(title, h("div", { class: "profile" }, bins.map((bin) => [h("span", null, `${plain(bin.low)} – ${plain(bin.high)}`),
    h("span", { class: "bar-track" }, h("span", { class: "bar-fill", style: `width:${(100 * (bin.mean || 0) / most).toFixed(1)}%` })),
    h("span", { class: "told" }, bin.mean === null ? MISSING : scientific(bin.mean))])));
}
