// The panels of a passport, each one side of a record.

function divergencePanels(metrics) {
  if (!metrics.kld) return [];
  const facts = Object.entries(metrics.kld)
    .sort(([a], [b]) => rankOf(a) - rankOf(b))
    .map(([name, value]) => [name.replace(/^(p\d\d)(\d)$/, "$1.$2").replace("p00.1", "p0.1"), scientific(value)]);
  return [
    panel(
      "Divergence, nats",
      definitions([
        ...facts,
        ["measured from", metrics.reference],
        ["its logits kept", metrics.kld_reference && plain(metrics.kld_reference)],
      ]),
    ),
    profile("Divergence by position", metrics.kld_by_position),
    profile("Divergence by the reference's confidence", metrics.kld_by_confidence),
  ];
}

// The mean, then the least, the percentiles and the most: "p001" is the 0.1th, "p05" the 5th, "p999" the 99.9th.
function rankOf(name) {
  const place = { mean: -1, min: 0, median: 50, max: 100 }[name];
  return place ?? Number(`${name.slice(1, 3)}.${name.slice(3)}`);
}

function kernelsPanel(metrics) {
  if (!metrics.impls) return null;
  return panel(
    "What ran",
    definitions([
      ...Object.entries(metrics.impls).map(([name, number]) => [name, count(number, "linear")]),
      ["instruction set", metrics.isa],
      ["device", metrics.device],
      ["threads", metrics.threads],
      ["processors", metrics.affinity],
    ]),
  );
}

function machinePanel(machine, metrics) {
  return panel(
    "Machine",
    definitions([
      ["processor", machine.cpu],
      ["id", machine.id],
      ["cores", machine.cores],
      ["memory", machine.memory_gib && `${machine.memory_gib} GiB`],
      ["system", machine.system],
      ["instruction sets", machine.features && plain(machine.features)],
      ["load before", metrics.load_average && plain(metrics.load_average.before)],
      [
        "energy",
        metrics.energy &&
          (metrics.energy.joules ? `${plain(metrics.energy.joules)} J` : `n/a: ${metrics.energy.reason}`),
      ],
    ]),
  );
}

function codePanel(record) {
  return panel(
    "Code",
    definitions([
      ["commit", record.commit && record.commit.slice(0, 10) + (record.dirty ? " with changes" : "")],
      ["code", record.code],
      ...Object.entries(record.versions || {}),
      ["measured", record.time],
      ["key", record.key],
    ]),
  );
}

const panel = (title, body) => h("section", { class: "panel" }, h("h2", null, title), body);

function samplesPanel(metrics) {
  const rows = Object.entries(metrics.samples || {})
    .filter(([, values]) => Array.isArray(values) && values.length && values.every(Number.isFinite))
    .map(([name, values]) => {
      const spread = metrics.spread?.[name] || {};
      const sorted = [...values].sort((a, b) => a - b),
        middle = spread.median ?? quantile(sorted, 0.5);
      return sampleRow(
        name.replace("_tok_s", " tok/s"),
        values,
        middle,
        spread.min ?? sorted[0],
        spread.max ?? sorted.at(-1),
      );
    });
  const blocks = metrics.blocks || {};
  for (const [what, name, sizes] of [
    ["kld", "KLD per token", blocks.tokens],
    ["nll", blocks.units ? "nats per unit" : "nats per token", blocks.units || blocks.tokens],
  ]) {
    if (!blocks[what]) continue;
    const means = blocks[what].map((sum, i) => sum / sizes[i]);
    const [middle, interval] =
      what === "kld"
        ? [metrics.kld?.mean, metrics.kld_interval]
        : [Math.log(metrics.perplexity), metrics.perplexity_interval?.map(Math.log)];
    rows.push(sampleRow(`${name}, by ${blocks.unit}`, means, middle, ...(interval || [null, null])));
  }
  return rows.length ? panel("Raw samples", h("div", { class: "strips" }, rows)) : null;
}

function sampleRow(name, values, middle, low, high) {
  const tell = (value) =>
    Math.abs(value) < 0.01 && value !== 0 ? scientific(value) : plain(Number(value.toPrecision(5)));
  const told = `${tell(middle)}${Number.isFinite(low) ? ` [${tell(low)}, ${tell(high)}]` : ""}`;
  return h(
    "div",
    { class: "sample" },
    h("span", null, name, h("small", null, count(values.length, "sample"))),
    strip(values, middle, low, high, `${name}: ${values.length} samples, ${told}`),
    h("span", { class: "told" }, told),
  );
}

function withEnds(value, interval) {
  const ends = interval ? ` [${interval.map((end) => end.toFixed(4)).join(", ")}]` : "";
  return value.toFixed(4) + ends;
}

// Every convention that the run measured, each with all its fields.
function protocolPanels(metrics) {
  const conventions = Object.entries(metrics.protocols || {}).map(([name, found]) => [name, found]);
  if (!conventions.length && metrics.protocol) conventions.push([metrics.protocol.name, metrics]);
  return conventions.map(([name, found]) =>
    panel(
      `Protocol ${name}`,
      definitions([
        ["perplexity", found.perplexity && withEnds(found.perplexity, found.perplexity_interval)],
        ...Object.entries(found.protocol || {}).map(([field, value]) => [field.replaceAll("_", " "), plain(value)]),
      ]),
    ),
  );
}

function tasksPanel(tasks) {
  const rows = Object.entries(tasks || {});
  if (!rows.length) return null;
  return panel(
    "Tasks",
    h(
      "table",
      { class: "small" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["task", "metric", "value", "error", "items"].map((name, i) =>
            h("th", { scope: "col", class: i < 2 ? "text" : "" }, name),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map(([name, task]) =>
          h(
            "tr",
            null,
            h("th", { scope: "row", class: "text" }, name),
            h("td", { class: "text" }, task.metric),
            h("td", null, plain(task.value)),
            h("td", null, plain(task.error)),
            h("td", null, plain(task.num_items)),
          ),
        ),
      ),
    ),
  );
}

function profile(title, bins) {
  if (!bins?.length) return null;
  const most = Math.max(...bins.map((bin) => bin.mean || 0)) || 1;
  return panel(
    title,
    h(
      "div",
      { class: "profile" },
      bins.map((bin) => [
        h("span", null, `${plain(bin.low)} – ${plain(bin.high)}`),
        h(
          "span",
          { class: "bar-track" },
          h("span", { class: "bar-fill", style: `width:${((100 * (bin.mean || 0)) / most).toFixed(1)}%` }),
        ),
        h("span", { class: "told" }, bin.mean === null ? MISSING : scientific(bin.mean)),
      ]),
    ),
  );
}
