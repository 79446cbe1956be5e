// Data of the page: the table column by column, and the records of its rows, all deflated.

const ABOUT = JSON.parse(document.getElementById("about").textContent);

function unbase64(id) {
  const text = atob(document.getElementById(id).textContent),
    bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// A JSON head with its length before it, and the rest.
function withHead(bytes) {
  const start = 4 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  return { head: JSON.parse(new TextDecoder().decode(bytes.subarray(4, start))), body: bytes.subarray(start) };
}

// The layout of columnar.py. A column is decoded when it is first asked for; one that the page has not is all missing.
class Table {
  static async unpack(bytes) {
    const { head, body } = withHead(bytes);
    let at = 0;
    const packed = head.columns.map(({ name, size }) => [name, body.subarray(at, (at += size))]);
    return new Table(head.rows, await Promise.all(packed.map(async ([name, column]) => [name, await inflate(column)])));
  }

  constructor(rows, columns) {
    this.rows = rows;
    this.packed = new Map(columns);
    this.decoded = new Map();
  }

  has(name) {
    return this.packed.has(name);
  }

  // {codes, values} for texts and repeated numbers, {numbers} for the rest
  column(name) {
    if (!this.decoded.has(name))
      this.decoded.set(name, this.has(name) ? this.decode(this.packed.get(name)) : this.missing());
    return this.decoded.get(name);
  }

  missing() {
    return { codes: new Uint32Array(this.rows), values: [null] };
  }

  decode(bytes) {
    const {
      head: { type, values },
      body,
    } = withHead(bytes);
    const n = this.rows,
      width = type === "float64" ? 8 : 4,
      joined = new Uint8Array(width * n);
    for (let plane = 0; plane < width; plane++) {
      for (let i = 0; i < n; i++) joined[width * i + plane] = body[plane * n + i];
    }
    if (type === "codes") return { codes: new Uint32Array(joined.buffer), values };
    return { numbers: type === "float64" ? new Float64Array(joined.buffer) : new Float32Array(joined.buffer) };
  }

  // null if it is missing
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

  has(row) {
    return this.place.has(row);
  }

  async of(row) {
    if (!this.has(row)) return null;
    this.lines ??= inflate(unbase64("records")).then((bytes) => new TextDecoder().decode(bytes).split("\n"));
    return JSON.parse((await this.lines)[this.place.get(row)]);
  }
}
