// Building elements. Text goes in as text, so that a name out of a record is never taken for markup.

function h(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function svg(tag, properties, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties || {})) node.setAttribute(name, value);
  node.append(...children.flat(Infinity));
  return node;
}

const definitions = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );

// A value of a record as text: lists with commas.
function plain(value) {
  if (value === null || value === undefined) return "none";
  if (Array.isArray(value)) return value.map(plain).join(", ");
  if (typeof value === "object")
    return Object.entries(value)
      .map(([name, inner]) => `${name} ${plain(inner)}`)
      .join(", ");
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(6))) : String(value);
}
