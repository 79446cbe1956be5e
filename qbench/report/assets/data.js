// What the page carries: the table column by column, the records of its rows, and the plotting library, all deflated.

const ABOUT = JSON.parse(document.getElementById("about").textContent);

async function inflate(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The layout of columnar.py. A column is decoded when it is first asked for.
class Table {
  constructor(bytes) {
    const header = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    const { rows, columns } = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + header)));
    this.rows = rows;
    this.heads = new Map();
    this.decoded = new Map();
    let at = 4 + header;
    for (const head of columns) {
      this.heads.set(head.name, { ...head, bytes: bytes.subarray(at, at + head.size) });
      at += head.size;
    }
  }

  has(name) { return this.heads.has(name); }

  // {codes, values} for texts and repeated numbers, {numbers} for the rest
  column(name) {
    if (!this.decoded.has(name)) this.decoded.set(name, this.decode(this.heads.get(name)));
    return this.decoded.get(name);
  }

  decode({ bytes, type, values }) {
    const n = this.rows, width = type === "float64" ? 8 : 4, joined = new Uint8Array(width * n);
    for (let plane = 0; plane < width; plane++) {
      for (let i = 0; i < n; i++) joined[width * i + plane] = bytes[plane * n + i];
    }
    if (type === "codes") return { codes: new Uint32Array(joined.buffer), values };
    return { numbers: type === "float64" ? new Float64Array(joined.buffer) : new Float32Array(joined.buffer) };
  }

  // null where it is missing
  value(name, row) {
    const column = this.column(name);
    if (column.values) return column.values[column.codes[row]];
    return Number.isNaN(column.numbers[row]) ? null : column.numbers[row];
  }

  // Every value of a column once, in the order of people: 2 before 10.
  distinct(name) {
    const { values } = this.column(name);
    return values.filter((value) => value !== null).sort(inOrder);
  }

  anyKnown(name) {
    const { values, numbers } = this.column(name);
    return values ? values.length > 1 : numbers.some((number) => !Number.isNaN(number));
  }
}

const COLLATOR = new Intl.Collator("en", { numeric: true });
const inOrder = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : COLLATOR.compare(a, b));

// The whole records of those rows for which the page has room: lines of JSON, parsed when one is asked for.
class Records {
  constructor(rows) {
    this.place = new Map(rows.map((row, place) => [row, place]));
  }

  has(row) { return this.place.has(row); }

  async of(row) {
    if (!this.has(row)) return null;
    this.lines ??= inflate("records").then((bytes) => new TextDecoder().decode(bytes).split("\n"));
    return JSON.parse((await this.lines)[this.place.get(row)]);
  }
}

let plotlyReady;
function loadPlotly() {
  plotlyReady ??= inflate("plotly").then((bytes) => {
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(bytes);
    document.head.append(script);
  });
  return plotlyReady;
}
