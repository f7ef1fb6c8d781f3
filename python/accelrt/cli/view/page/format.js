// Numbers as people read them.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// Three digits that count, in the largest unit of which there is at least one.
function formatBytes(bytes) {
  const sign = bytes < 0 ? "−" : "";
  let value = Math.abs(bytes);
  let unit = 0;
  while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${sign}${unit === 0 ? value : significant(value)} ${BYTE_UNITS[unit]}`;
}

function significant(value) {
  if (value >= 100) return value.toFixed(value < 999.95 ? 1 : 0);
  return value.toFixed(value >= 10 ? 1 : 2);
}

function formatCount(count) {
  return Math.round(count).toLocaleString("en-US");
}

// A count with its noun, of which another one may be told.
function counted(count, noun, nouns = `${noun}s`) {
  return `${formatCount(count)} ${count === 1 ? noun : nouns}`;
}

// A duration in nanoseconds.
function formatNs(ns) {
  const value = Math.abs(ns);
  if (value < 1e3) return `${Math.round(ns)} ns`;
  if (value < 1e6) return `${significantSigned(ns / 1e3)} µs`;
  if (value < 1e9) return `${significantSigned(ns / 1e6)} ms`;
  return `${significantSigned(ns / 1e9)} s`;
}

function significantSigned(value) {
  return value < 0 ? `−${significant(-value)}` : significant(value);
}

function formatPercent(share) {
  return `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

function formatAddress(address) {
  return `0x${address.toString(16)}`;
}

// The file's name without its folders.
function baseName(path) {
  return path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1);
}
