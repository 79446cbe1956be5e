// Reads the address and shows the page that it names.

const MAIN = document.getElementById("main");
let TABLE, RECORDS, TRAY;

async function show() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const [kind, ...names] = path.split("/").filter(Boolean).map(decodeURIComponent);
  const page = await pageOf(kind, names, query);
  MAIN.replaceChildren(page.node || page);
  if (page.update) page.update();
  document.title = [MAIN.querySelector("h1")?.textContent, "qbench"].filter(Boolean).join(" · ");
  document.body.dataset.page = kind || "table";
  document.body.dataset.shown = location.hash || "#/";
}

async function pageOf(kind, names, query) {
  if (!kind) return boardPage(query, {}, boardHead());
  if (["model", "recipe"].includes(kind) && TABLE.distinct(kind).map(String).includes(names[0])) {
    return boardPage(query, { [kind]: names[0] }, subjectHead(kind, names[0]));
  }
  const rows = names.map((name) => findRow(TABLE, name));
  if (kind === "row" && rows.length === 1 && rows[0] !== null) return passport(TABLE, rows[0], TRAY);
  if (kind === "compare" && rows.length === 2 && !rows.includes(null)) return comparePage(TABLE, ...rows);
  return h(
    "article",
    null,
    h("h1", null, "Nothing here"),
    h("p", { class: "note" }, `This page has no ${[kind, ...names].join(" ")}. `, h("a", { href: "#/" }, "All rows")),
  );
}

function boardPage(query, fixed, head) {
  const board = new Board(TABLE, parseState(query), fixed, TRAY);
  return {
    node: h("div", null, head, board.node),
    update: () => {
      BOARD = board;
      board.update();
    },
  };
}

let BOARD = null;

function boardHead() {
  return h("div", null, h("h1", null, ABOUT.title), h("p", { class: "lead" }, ABOUT.lead));
}

// Values that all rows of a model or a recipe share, and the machines that measured them.
function subjectHead(kind, name) {
  const { codes, values } = TABLE.column(kind),
    code = values.findIndex((value) => String(value) === name),
    rows = [];
  for (let row = 0; row < TABLE.rows; row++) if (codes[row] === code) rows.push(row);
  const told = (key, tell = String) => {
    const found = [...new Set(rows.map((row) => TABLE.value(key, row)))]
      .filter((value) => value !== null)
      .sort(inOrder)
      .map(tell);
    return found.length > 6 ? `${found.slice(0, 6).join(", ")} and ${found.length - 6} more` : found.join(", ");
  };
  const failed = rows.filter((row) => TABLE.value("status", row) !== "ok").length;
  return h(
    "div",
    null,
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "All rows"), ` / ${kind}s`),
    h("h1", null, name),
    h(
      "p",
      { class: "lead" },
      kind === "model" ? `Every recipe measured on this model.` : `This recipe on every model that it was measured on.`,
    ),
    h(
      "details",
      { class: "panel passport" },
      h("summary", null, `Passport: ${count(rows.length, "row")}${failed ? `, ${failed} failed` : ""}`),
      definitions([
        ["models", kind === "recipe" ? told("model") : null],
        ["recipes", kind === "model" ? told("recipe") : null],
        ["family", kind === "recipe" ? told("family") : null],
        ["KV format", told("kv_format")],
        ["protocols", told("protocol")],
        ["protocol hashes", told("protocol_hash")],
        ["processors", told("cpu")],
        ["machines", told("machine")],
        ["threads", told("threads")],
        ["what ran", told("impls")],
        ["commits", told("commit", shortCommit)],
        ["measured", told("time", (time) => time.slice(0, 10))],
      ]),
    ),
  );
}

const THEMES = { "": "as the system", light: "light", dark: "dark" };
let SHOWN_THEME = "";

function nextTheme() {
  const names = Object.keys(THEMES),
    now = document.documentElement.dataset.theme || "";
  SHOWN_THEME = names[(names.indexOf(now) + 1) % names.length];
  document.getElementById("theme").textContent = `Theme: ${THEMES[SHOWN_THEME]}`;
  inTheme(SHOWN_THEME);
}

// Paper is white, so the page is printed in the light theme whatever the screen has.
function inTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  redraw();
}

function redraw() {
  if (BOARD?.node.isConnected) BOARD.update();
}

async function start() {
  TABLE = await Table.unpack(unbase64("table"));
  RECORDS = new Records(ABOUT.rows_of_records);
  TRAY = new Tray(TABLE, document.getElementById("tray"));
  document.getElementById("theme").addEventListener("click", nextTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => inTheme("light"));
  addEventListener("afterprint", () => inTheme(SHOWN_THEME));
  let pending,
    width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar comes and goes
    width = innerWidth;
    clearTimeout(pending);
    pending = setTimeout(redraw, 150);
  });
  addEventListener("hashchange", async () => {
    await show();
    scrollTo(0, 0);
    MAIN.focus({ preventScroll: true });
  });
  await show();
}

start();
