// Ticks of axes.

// Round steps of numbers that are counted in tens: about `count` of them in a span.
function decimalStep(span, count) {
  const rough = span / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= rough);
}

// Steps that are round in the units that bytes are shown in: where the largest value is shown in a
// larger unit than the step, in halves and quarters of that.
function byteStep(span, count, high) {
  const rough = Math.max(span / Math.max(count, 1), 1);
  const unit = 1024 ** Math.floor(Math.log(rough) / Math.log(1024));
  const round = [1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 50, 64, 100, 128, 200, 256, 400, 512, 1024];
  const halves = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const digits = high >= unit * 1024 ? halves : round;
  return unit * digits.find((digit) => digit * unit >= rough);
}

function ticks(low, high, step) {
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high; value += step) {
    found.push(value);
  }
  return found;
}

// Draws an axis of values from left to right below (or above) a plot, with faint lines through it.
function drawAxis(context, { left, top, width, height }, axis, format, labelY) {
  const step = Math.max(decimalStep(axis.span, width / 110), axis.tickStep ?? 0);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.lineWidth = 1;
  for (const value of ticks(axis.low, axis.high, step)) {
    const x = Math.round(left + ((value - axis.low) / axis.span) * width) + 0.5;
    context.strokeStyle = Theme.color("grid");
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
    if (x > left + 12 && x < left + width - 12) {
      context.fillStyle = Theme.color("faint");
      context.fillText(format(value, step, axis.high), x, labelY);
    }
  }
}

// A round number of bytes without the digits that say nothing.
function formatRound(bytes) {
  return bytes === 0 ? "0" : formatBytes(bytes).replace(/\.?0+ /, " ");
}

function drawByteAxis(context, { left, top, width, height }, low, high) {
  const step = byteStep(high - low, height / 44, high);
  context.lineWidth = 1;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const value of ticks(low, high, step)) {
    const y = Math.round(top + height - ((value - low) / (high - low)) * height) + 0.5;
    context.strokeStyle = Theme.color("grid");
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(left + width, y);
    context.stroke();
    context.fillStyle = Theme.color("faint");
    context.fillText(formatRound(value), left - 6, y);
  }
}

// A moment of an axis of nanoseconds that ends at `most`: all in its unit, with the step's digits.
function formatTick(ns, step, most) {
  const units = [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "µs"],
    [1, "ns"],
  ];
  const size = Math.max(Math.abs(most), step);
  const [unit, name] = units.find(([unit]) => size >= unit) ?? [1, "ns"];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return `${(ns / unit).toFixed(Math.min(digits, 9))} ${name}`;
}
