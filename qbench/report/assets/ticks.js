// Where an axis has its numbers, and how they are written.

// About this many round numbers: steps of 1, 2 or 5.
function roundTicks(low, high, most, tell = grouped) {
  const rough = (high - low) / most,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough);
  const values = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) values.push(Number((i * step).toPrecision(12)));
  return values.map((value) => ({ value, text: tell(value) }));
}

// Every power of ten; within less than three of them, digits between as well.
function logTicks([low, high]) {
  if (high - low >= 2.5) {
    const powers = [];
    for (let power = Math.ceil(low); power <= high; power++) powers.push(power);
    return powers.map((power) => ({ value: 10 ** power, text: shortNumber(10 ** power) }));
  }
  const ticks = ticks125(10 ** low, 10 ** high, shortNumber, false);
  return ticks.length > 1 ? ticks : roundTicks(10 ** low, 10 ** high, 5, (value) => String(Number(value.toPrecision(3))));
}

// Ticks at 1, 2 and 5 times the powers of ten, or at these powers alone if there are many.
function ticks125(low, high, tell, sparse) {
  const decades = Math.log10(high / low),
    digits = decades > 3.5 || (sparse && decades > 2) ? [1] : sparse && decades > 1 ? [1, 3] : [1, 2, 5];
  const values = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const digit of digits) {
      const value = Number(`${digit}e${power}`);
      if (value >= low && value <= high) values.push({ value, text: tell(value) });
    }
  return values;
}

const grouped = (value) => value.toLocaleString("en", { maximumFractionDigits: 6 });

function shortNumber(value) {
  return value < 1e-3 || value >= 1e6 ? value.toExponential(0).replace("e+", "e") : String(Number(value.toPrecision(1)));
}

function bytesText(bytes) {
  const [size, unit] = bytes >= 1e9 ? [1e9, "GB"] : bytes >= 1e6 ? [1e6, "MB"] : bytes >= 1e3 ? [1e3, "kB"] : [1, "B"];
  return `${Number((bytes / size).toPrecision(2))} ${unit}`;
}
