// Views out of the page: base64, gzip, a head in JSON, and columns of numbers behind it.

const ARRAYS = { Uint8Array, Uint16Array, Int32Array, Uint32Array, Float64Array };

async function loadView(element) {
  const bytes = decodeBase64(element.textContent.trim());
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const content = await new Response(unpacked).arrayBuffer();
  const headLength = new DataView(content).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 4, headLength)));
  const columns = {};
  for (const [name, [kind, offset, length]] of Object.entries(head.columns)) {
    const place = 4 + headLength + offset;
    columns[name] =
      kind === "steps"
        ? sums(new Uint32Array(content, place, length))
        : new ARRAYS[kind](content, place, length);
  }
  return { kind: element.dataset.kind, name: element.dataset.name, head, columns };
}

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

function sums(steps) {
  const values = new Float64Array(steps.length);
  let value = 0;
  for (let i = 0; i < steps.length; i += 1) {
    value += steps[i];
    values[i] = value;
  }
  return values;
}

// The first index whose value is above `value`.
function upperBound(values, value, from = 0, to = values.length) {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
