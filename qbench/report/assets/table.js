// The table: only the rows in sight are in the document, so that a hundred thousand scroll like ten.

const ROW_HEIGHT = 44; // pixels; a value and its interval below
const EXTRA_ROWS = 12; // drawn above and below the visible rows
const MOST_LETTERS = 32; // a longer text has small letters and up to three lines, which fill the row
const MEASURED_ROWS = 400; // enough to find the widest text of a column

class RowTable {
  // actions: {sort(key), pick(row), isPicked(row), link(row)}
  constructor(table, actions) {
    Object.assign(this, { table, actions, rows: new Uint32Array(), columns: [], derived: {} });
    this.head = h("thead");
    this.body = h("tbody");
    this.sizes = h("colgroup");
    this.node = h("table", null, this.sizes, this.head, this.body);
    this.scroller = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Measurements" }, this.node);
    this.scroller.addEventListener("scroll", () => this.window(), { passive: true });
    this.drawnFrom = Infinity; // nothing is drawn yet
    new ResizeObserver(() => this.window()).observe(this.scroller);
  }

  // state: {sort, descending, below: the column shown below a recipe's name, or null}
  // derived: {key: row -> text} for columns that are computed from the rows in view
  show(rows, columns, state, derived) {
    Object.assign(this, { rows, columns, derived, below: state.below });
    this.node.setAttribute("aria-rowcount", rows.length + 1);
    this.measure();
    this.head.replaceChildren(
      h(
        "tr",
        null,
        h("th", { scope: "col", class: "pick" }, h("span", { class: "hidden" }, "compare")),
        columns.map((column) => this.heading(column, state)),
      ),
    );
    this.scroller.scrollTop = 0;
    this.redraw();
  }

  heading(column, state) {
    const sorted = state.sort === column.key ? (state.descending ? "descending" : "ascending") : null;
    return h(
      "th",
      { scope: "col", class: column.kind === "text" ? "text" : "", "aria-sort": sorted, title: column.meaning || null },
      h(
        "button",
        { type: "button", "data-key": column.key, onclick: () => this.actions.sort(column.key) },
        h("span", { class: "head" }, column.heading),
        column.ends ? h("small", null, column.ends_name) : null,
      ),
    );
  }

  // Fixed widths: they must not jump as other rows come into sight.
  measure() {
    const step = Math.max(1, Math.floor(this.rows.length / MEASURED_ROWS));
    const widths = this.columns.map((column) => {
      let widest = textWidth(column.heading, `12.5px ${family()}`) + 14; // and the arrow of a sorted column
      for (let i = 0; i < this.rows.length; i += step) widest = Math.max(widest, this.width(column, this.rows[i]));
      return Math.min(260, Math.max(48, widest + 17));
    });
    this.sizes.replaceChildren(
      h("col", { style: "width:40px" }),
      ...widths.map((width) => h("col", { style: `width:${Math.ceil(width)}px` })),
    );
    this.node.style.width = `max(100%, ${Math.ceil(widths.reduce((a, b) => a + b, 40))}px)`;
  }

  width(column, row) {
    const text = this.text(column, row),
      both = ends(column, this.table, row),
      small = `11.5px ${family()}`;
    if (column.key === "pareto") return text ? textWidth(text, `600 ${small}`) + 18 * text.split(" ").length : 0;
    const below = both
      ? both.join("\u2009–\u2009")
      : column.key === "recipe" && this.below
        ? this.table.value("model", row)
        : "";
    return Math.max(
      textWidth(text, column.key === "recipe" ? "600 13px monospace" : `13.5px ${family()}`),
      textWidth(below, small),
    );
  }

  text(column, row) {
    if (this.derived[column.key]) return this.derived[column.key](row);
    return column.key === "commit"
      ? shortCommit(this.table.value("commit", row) ?? MISSING)
      : written(column, this.table.value(column.key, row));
  }

  // The rows in sight and a few more each way; nothing to do while the drawn ones still cover the visible area.
  window() {
    const first = Math.floor(this.scroller.scrollTop / ROW_HEIGHT);
    const last = Math.min(this.rows.length, first + Math.ceil((this.scroller.clientHeight || 800) / ROW_HEIGHT));
    if (first >= this.drawnFrom && last <= this.drawnTo) return;
    this.drawnFrom = Math.max(0, first - EXTRA_ROWS);
    this.drawnTo = Math.min(this.rows.length, last + EXTRA_ROWS);
    const drawn = [];
    for (let i = this.drawnFrom; i < this.drawnTo; i++) drawn.push(this.row(this.rows[i], i));
    this.body.replaceChildren(spacer(this.drawnFrom), ...drawn, spacer(this.rows.length - this.drawnTo));
  }

  redraw() {
    this.drawnFrom = Infinity;
    this.window();
  }

  // Only the boxes: a row that is drawn again would lose the focus.
  markPicked() {
    for (const box of this.body.querySelectorAll("input"))
      box.checked = this.actions.isPicked(Number(box.closest("tr").dataset.row));
  }

  row(row, index) {
    const failed = this.table.value("status", row) !== "ok";
    const kind = failed ? "failed" : this.table.value("is_baseline", row) ? "baseline" : "";
    const name = `${recipeAs(this.table, row)} on ${this.table.value("model", row)}`;
    const box = h("input", {
      type: "checkbox",
      "aria-label": `compare ${name}`,
      onchange: () => this.actions.pick(row),
    });
    box.checked = this.actions.isPicked(row);
    return h(
      "tr",
      { class: kind, "aria-rowindex": index + 2, "data-row": row },
      h("td", { class: "pick" }, h("label", null, box)),
      this.columns.map((column) => this.cell(column, row, failed)),
    );
  }

  cell(column, row, failed) {
    const text = this.text(column, row),
      cls = [column.kind === "text" && "text", text === MISSING && "missing"].filter(Boolean).join(" ");
    if (column.key === "recipe") {
      const model = this.below && this.table.value("model", row);
      const small =
        failed || model
          ? h(
              "small",
              null,
              failed && h("b", { class: "error" }, "failed "),
              model && h("a", { href: modelLink(model) }, model),
            )
          : null;
      return h(
        "th",
        { scope: "row", class: "text", title: text },
        h("a", { href: this.actions.link(row) }, text),
        small,
      );
    }
    if (column.key === "model") return h("td", { class: "text", title: text }, h("a", { href: modelLink(text) }, text));
    if (column.key === "pareto")
      return h(
        "td",
        { class: "text" },
        text
          .split(" ")
          .filter(Boolean)
          .map((mark) => h("span", { class: "badge" }, mark)),
      );
    const both = ends(column, this.table, row);
    return h(
      "td",
      { class: cls, title: column.kind === "text" ? text : null },
      column.kind === "text" ? h("span", { class: text.length > MOST_LETTERS ? "lines" : null }, text) : text,
      both ? h("small", null, both.join("\u2009–\u2009")) : null,
    );
  }
}

const spacer = (rows) => h("tr", { class: "spacer", "aria-hidden": "true", style: `height:${rows * ROW_HEIGHT}px` });
