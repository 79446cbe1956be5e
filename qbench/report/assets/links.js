// Addresses within the page: #/, #/model/NAME, #/recipe/NAME, #/row/KEY, #/compare/KEY/KEY.

const modelLink = (name) => `#/model/${encodeURIComponent(name)}`;
const recipeLink = (name) => `#/recipe/${encodeURIComponent(name)}`;

// A case has one key on every machine: the machine is named too if that is needed to find the row.
function rowName(table, row) {
  const key = table.value("key", row);
  return rowsOfKey(table, key).length > 1 ? `${key}@${table.value("machine", row)}` : key;
}

const rowLink = (table, row) => `#/row/${encodeURIComponent(rowName(table, row))}`;
const compareLink = (table, a, b) =>
  `#/compare/${[a, b].map((row) => encodeURIComponent(rowName(table, row))).join("/")}`;

// "KEY", "KEY@MACHINE", the key or its first digits -> row, or null
function findRow(table, name) {
  const [key, machine] = name.split("@");
  const rows = rowsOfKey(table, key).filter((row) => !machine || table.value("machine", row) === machine);
  return rows.length ? rows[0] : null;
}

function rowsOfKey(table, key) {
  if (!table.rowsByKey) {
    table.rowsByKey = new Map();
    for (let row = 0; row < table.rows; row++) {
      const own = table.value("key", row),
        rows = table.rowsByKey.get(own);
      if (rows) rows.push(row);
      else table.rowsByKey.set(own, [row]);
    }
  }
  // The page may hold as many digits of a key as distinguish the rows.
  return table.rowsByKey.get(key) || table.rowsByKey.get(key.slice(0, ABOUT.key_digits)) || [];
}
