// The two rows picked for comparison, at the foot of the window.

class Tray {
  constructor(table, node) {
    Object.assign(this, { table, node, rows: [], onchange: () => {} });
  }

  has(row) {
    return this.rows.includes(row);
  }

  // A third pick takes the place of the second.
  toggle(row) {
    if (this.has(row)) this.rows = this.rows.filter((other) => other !== row);
    else this.rows = [...this.rows.slice(0, 1), row];
    this.draw();
    this.onchange();
  }

  draw() {
    const { table, rows } = this;
    const name = (row) => `${recipeAs(table, row)} · ${table.value("model", row)}`;
    this.node.classList.toggle("shown", rows.length > 0);
    if (!rows.length) return this.node.replaceChildren();
    const clear = h(
      "button",
      {
        type: "button",
        class: "plain",
        onclick: () => {
          this.rows = [];
          this.draw();
          this.onchange();
        },
      },
      "Clear",
    );
    const next =
      rows.length === 2
        ? h("a", { class: "button", href: compareLink(table, ...rows) }, "Compare")
        : h("span", { class: "note" }, "pick another row to compare it with");
    return this.node.replaceChildren(
      h(
        "span",
        { class: "picked" },
        rows.map((row, i) => h("span", null, h("b", null, "AB"[i]), " ", name(row))),
      ),
      next,
      clear,
    );
  }
}
