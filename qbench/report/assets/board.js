// Filters, scatters and the table: the page itself, and the parts of the pages of a model and of a recipe.

const FILTER_NAMES = {
  model: "Model",
  recipe: "Recipe",
  family: "Recipe family",
  kv_format: "KV",
  policy: "Policy",
  machine: "Machine",
  protocol: "Protocol",
  commit: "Commit",
};

class Board {
  // fixed: {model: NAME} or {recipe: NAME} on their pages
  constructor(table, state, fixed, tray) {
    Object.assign(this, { table, fixed, tray, state: { ...state, ...fixed }, frontsOfAll: {} });
    this.rowTable = new RowTable(table, {
      sort: (key) => this.sort(key),
      link: (row) => rowLink(table, row),
      pick: (row) => tray.toggle(row),
      isPicked: (row) => tray.has(row),
    });
    this.told = h("p", { class: "told", role: "status" });
    this.legend = h("ul", { class: "key" });
    this.plots = COSTS.map((cost) =>
      h(
        "figure",
        null,
        h("figcaption", null, cost.caption, h("span")),
        h("div", { class: "plot", id: `plot-${cost.front}` }),
      ),
    );
    this.policies = h("section", { class: "policies", hidden: true });
    this.columnBox = h("div", { class: "choices" });
    this.node = h(
      "div",
      null,
      this.filters(),
      h("div", { class: "over" }, this.legend, this.quality),
      h("div", { class: "plots" }, this.plots),
      this.policies,
      h("div", { class: "above" }, this.told, this.columnMenu()),
      this.rowTable.node.parentNode,
    );
    tray.onchange = () => this.rowTable.markPicked();
  }

  filters() {
    this.search = h("input", {
      type: "search",
      placeholder: "Search: q4 avx512 llama",
      "aria-label": "Search",
      value: this.state.q,
      oninput: () => {
        this.state.q = this.search.value;
        this.later();
      },
    });
    this.selects = FILTERS.filter((name) => !this.fixed[name])
      .map((name) => [name, this.table.distinct(name)])
      .filter(([name, values]) => values.length > 1 || this.state[name])
      .map(([name, values]) =>
        this.select(FILTER_NAMES[name], name, [
          ["", "all"],
          ...values.map((value) => [String(value), tellValue(name, value)]),
        ]),
      );
    this.quality = this.select("Quality", "quality", []);
    this.reset = h("button", { type: "button", class: "plain", onclick: () => this.clear() }, "Clear");
    const narrow = matchMedia("(max-width: 700px)").matches;
    const active = FILTERS.some((name) => this.state[name] && !this.fixed[name]);
    return h(
      "div",
      { class: "filters" },
      this.search,
      h(
        "details",
        { class: "more", hidden: !this.selects.length, open: !narrow || active },
        h("summary", null, "Filters"),
        h("div", { class: "selects" }, this.selects, this.reset),
      ),
    );
  }

  select(label, name, options) {
    const box = h(
      "select",
      {
        name,
        onchange: () => {
          this.state[name] = box.value || null;
          this.update();
        },
      },
      options.map(([value, text]) => h("option", { value }, text)),
    );
    box.value = this.state[name] || "";
    return h("label", null, h("span", null, label), box);
  }

  columnMenu() {
    return h("details", { class: "columns" }, h("summary", null, "Columns"), this.columnBox);
  }

  // The columns to show: those chosen, else the usual ones that have anything to say here.
  columns(rows) {
    const known = ABOUT.columns.filter(({ key }) => key === "pareto" || this.table.anyKnown(key));
    if (this.state.columns) return known.filter(({ key }) => key === "recipe" || this.state.columns.includes(key));
    const said = (key) => key === "pareto" || rows.some((row) => this.table.value(key, row) !== null);
    const differing = Object.keys(ABOUT.if_rows_differ).filter((key) => differ(this.table, key, rows));
    const added = new Set(differing.flatMap((key) => [key, ...ABOUT.if_rows_differ[key]]));
    return known.filter(({ key, on_page }) => (on_page || added.has(key)) && said(key));
  }

  drawColumnMenu(shown) {
    const keys = shown.map(({ key }) => key);
    this.columnBox.replaceChildren(
      ...ABOUT.columns
        .filter(({ key }) => key !== "recipe" && (key === "pareto" || this.table.anyKnown(key)))
        .map(({ key, heading }) => {
          const box = h("input", {
            type: "checkbox",
            name: key,
            onchange: () => {
              this.state.columns = box.checked ? [...keys, key] : keys.filter((other) => other !== key);
              this.update(true);
            },
          });
          box.checked = keys.includes(key);
          return h("label", null, box, " ", heading);
        }),
      ...(ABOUT.left_out.length
        ? [h("p", { class: "note" }, `For want of room this page has no ${ABOUT.left_out.join(", ")}.`)]
        : []),
    );
  }

  clear() {
    Object.assign(this.state, emptyState(), this.fixed);
    this.search.value = "";
    for (const label of this.selects) label.querySelector("select").value = "";
    this.update();
  }

  sort(key) {
    const again = this.state.sort === key;
    this.state.descending = again && !this.state.descending;
    this.state.sort = key;
    this.update(true);
    this.rowTable.head.querySelector(`[data-key="${key}"]`).focus();
  }

  later() {
    clearTimeout(this.pending);
    this.pending = setTimeout(() => this.update(), 120);
  }

  // Draw the state. keepPlots: the rows are the same, only their order or columns changed.
  update(keepPlots = false) {
    const { table, state } = this;
    const rows = visibleRows(table, state);
    if (!keepPlots) this.measure(rows);
    const marks = (row) =>
      COSTS.map(({ front }) => front)
        .filter((front) => this.fronts[front].has(row))
        .join(" ");
    const rank = (row) => -marks(row).length || NaN;
    if (state.sort) sortRows(table, rows, state.sort, state.descending, { pareto: rank });
    const columns = this.columns(rows).map((column) => ({ ...column, heading: headingOf(table, column, rows) }));
    const told =
      columns.some(({ key }) => key === "model") || this.fixed.model || this.table.distinct("model").length < 2;
    this.rowTable.show(rows, columns, { ...state, below: told ? null : "model" }, { pareto: marks });
    this.drawColumnMenu(columns);
    this.told.textContent =
      rows.length === table.rows
        ? count(rows.length, "row")
        : `${rows.length.toLocaleString("en")} of ${count(table.rows, "row")}`;
    history.replaceState(null, "", this.address());
    if (!keepPlots) this.draw(rows);
  }

  measure(rows) {
    const known = qualitiesOf(this.table, rows);
    this.shownQuality = known.find(({ key }) => key === this.state.quality) || known[0] || QUALITIES[0];
    this.shownFronts = frontsOf(this.table, rows, this.shownQuality);
    // Counts all rows, filtered ones included.
    this.frontsOfAll[this.shownQuality.key] ??= frontsOf(
      this.table,
      Uint32Array.from({ length: this.table.rows }, (_, row) => row),
      this.shownQuality,
    );
    this.fronts = this.frontsOfAll[this.shownQuality.key];
    const box = this.quality.querySelector("select");
    box.replaceChildren(...known.map(({ key, name }) => h("option", { value: key }, name)));
    box.value = this.shownQuality.key;
    this.quality.hidden = known.length < 2;
  }

  address() {
    const [name] = Object.keys(this.fixed);
    const query = stateQuery(this.state, name);
    const path = name ? `#/${name}/${encodeURIComponent(this.fixed[name])}` : "#/";
    return path + (query ? `?${query}` : "");
  }

  draw(rows) {
    // A policy changes neither the weights nor their size: policies have separate plots, or the table alone.
    const full = rows.filter((row) => isFull(this.table, row));
    const { groups, left } = drawnGroups(this.table, full.length ? full : rows, this.shownQuality);
    const policies = policyGroups(this.table, rows);
    for (const [i, each] of COSTS.entries()) {
      const cost = comparableCost(this.table, groups, each);
      const known = groups.some((group) => group.rows.some((row) => table_has(this.table, cost.key, row)));
      this.plots[i].hidden = !known || !this.isSpread(cost);
      if (this.plots[i].hidden) continue;
      drawScatter(this.plots[i].lastChild, this.table, groups, this.shownQuality, cost, this.shownFronts[cost.front]);
    }
    const isDrawn = this.plots.some((plot) => !plot.hidden),
      where = isDrawn && full.length && full.length < rows.length ? wherePoliciesAre(policies) : "";
    this.drawLegend(isDrawn ? groups : [], `${left} ${where}`.trim());
    drawPolicies(this.policies, this.table, policies);
    document.body.dataset.drawn = Number(document.body.dataset.drawn || 0) + 1;
  }

  // Whether the rows of the page differ in a cost: a plot of a single cost shows nothing that the table does not.
  isSpread({ key }) {
    const { table } = this;
    const known = Array.from({ length: table.rows }, (_, row) => row).filter((row) => table_has(table, key, row));
    const full = known.filter((row) => isFull(table, row));
    return differ(table, key, full.length ? full : known);
  }

  drawLegend(groups, left) {
    const one = groups.length === 1;
    const shapes = one
      ? [
          h("li", null, h("i", { class: "dot" }), "on the Pareto front of the shown rows"),
          h("li", null, h("i", { class: "dot beaten" }), "beaten by another"),
        ]
      : [
          ...groups.map((group) => h("li", null, symbolOf(group), group.name)),
          h("li", null, "filled: on its Pareto front of the shown rows"),
        ];
    this.legend.replaceChildren(
      ...(groups.length ? [...shapes, h("li", null, h("i", { class: "dot baseline" }), "unquantized")] : []),
      ...(left ? [h("li", { class: "left-out" }, left)] : []),
    );
  }
}

const wherePoliciesAre = (drawn) =>
  drawn.length
    ? "Rows with a cache policy have separate plots below."
    : "Rows with a cache policy are in the table only.";
const table_has = (table, key, row) => table.value(key, row) !== null;
const tellValue = (name, value) => (name === "commit" ? shortCommit(String(value)) : String(value));

// The marker of a group, as the plots draw it.
function symbolOf({ symbol, colour: name }) {
  const path = svg("path", { d: markerPath(symbol, 5), fill: ink(name) });
  return svg("svg", { viewBox: "-8 -8 16 16", width: 14, height: 14, "aria-hidden": "true" }, path);
}
