// Visible rows, their order, and the link to this view.

const FILTERS = ["model", "recipe", "family", "kv_format", "policy", "machine", "protocol", "commit"];
// Columns that a search reads.
const SEARCHED = [
  "model",
  "recipe",
  "family",
  "kv_format",
  "cache",
  "policy",
  "prefill",
  "impls",
  "isa",
  "device",
  "protocol",
  "machine",
  "cpu",
  "commit",
];

function emptyState() {
  return {
    q: "",
    sort: null,
    descending: false,
    columns: null,
    quality: null,
    ...Object.fromEntries(FILTERS.map((f) => [f, null])),
  };
}

// Whether rows have different values in a column; a missing one counts.
function differ(table, key, rows) {
  const first = table.value(key, rows[0]);
  return rows.some((row) => table.value(key, row) !== first);
}

// "q=q4&model=ref%3Allama&sort=-kld_mean" <-> state
function parseState(query) {
  const given = new URLSearchParams(query),
    state = emptyState();
  for (const name of ["q", "quality", ...FILTERS]) if (given.has(name)) state[name] = given.get(name);
  const sort = given.get("sort");
  if (sort) {
    state.descending = sort.startsWith("-");
    state.sort = sort.replace(/^-/, "");
    if (!COLUMN.has(state.sort)) state.sort = null;
  }
  if (given.has("columns"))
    state.columns = given
      .get("columns")
      .split(",")
      .filter((key) => COLUMN.has(key));
  return state;
}

function stateQuery(state, fixed = null) {
  const given = new URLSearchParams();
  for (const name of ["q", "quality", ...FILTERS]) if (state[name] && name !== fixed) given.set(name, state[name]);
  if (state.sort) given.set("sort", (state.descending ? "-" : "") + state.sort);
  if (state.columns) given.set("columns", state.columns.join(","));
  return given.toString();
}

// Rows that pass every filter and hold every word of the search in one of their texts, [M] uint32
function visibleRows(table, state) {
  const tests = FILTERS.filter((name) => state[name]).map((name) => {
    const { codes, values } = table.column(name);
    const code = values.findIndex((value) => value !== null && String(value) === state[name]);
    return (row) => codes[row] === code;
  });
  for (const word of state.q.toLowerCase().split(/\s+/).filter(Boolean)) {
    const found = SEARCHED.map((name) => table.column(name)).map(({ codes, values }) => ({
      codes,
      hit: values.map((value) => value !== null && String(value).toLowerCase().includes(word)),
    }));
    tests.push((row) => found.some(({ codes, hit }) => hit[codes[row]]));
  }
  const rows = new Uint32Array(table.rows);
  let kept = 0;
  for (let row = 0; row < table.rows; row++) if (tests.every((test) => test(row))) rows[kept++] = row;
  return rows.subarray(0, kept);
}

// Sorted in place by a column; missing values come last in either direction, equals stay in the records' order.
function sortRows(table, rows, key, descending, derived = {}) {
  const rank = derived[key] || ranks(table, key);
  const sign = descending ? -1 : 1;
  return rows.sort((a, b) => {
    const x = rank(a),
      y = rank(b),
      lacks = Number.isNaN(x) - Number.isNaN(y);
    return lacks || (Number.isNaN(x) ? 0 : sign * (x - y)) || a - b;
  });
}

// row -> number to sort by, NaN for a missing value
function ranks(table, key) {
  const { codes, values, numbers } = table.column(key);
  if (numbers) return (row) => numbers[row];
  const order = values
    .map((_, code) => code)
    .filter((code) => values[code] !== null)
    .sort((a, b) => inOrder(values[a], values[b]));
  const rank = new Float64Array(values.length).fill(NaN);
  order.forEach((code, place) => {
    rank[code] = place;
  });
  return (row) => rank[codes[row]];
}
