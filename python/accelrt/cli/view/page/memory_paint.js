// The stacked picture, pixel column by pixel column.
//
// A column shows the state with the most live bytes among those that fall into it, so no peak is
// lost however much a pixel stands for. One sweep over the entries keeps what is live in a linked
// list, in the order of the stack; allocations below a pixel share theirs.

// The state that each column shows.
function columnStates(model, axis, width) {
  const states = new Int32Array(width);
  let first = axis.stateAt(axis.low);
  for (let x = 0; x < width; x += 1) {
    const next = axis.stateAt(axis.low + ((x + 1) / width) * axis.span);
    let best = first;
    for (let state = first + 1; state < next; state += 1) {
      if (model.total[state] > model.total[best]) best = state;
    }
    states[x] = best;
    first = next;
  }
  return states;
}

// More steps than this are made in fewer columns, which are then drawn several pixels wide.
const MOST_STEPS = 6e7;

// Paints the columns into `pixels`, `width` by `height`, each allocation in its shade.
// `shades` has for each number the pixel of the area, of its upper edge, and of the dimmed area.
function paintStack(model, states, { pixels, width, height, low, scale, shades, shadeOf, marks }) {
  const { size, asked, died } = model;
  const list = new LiveList(model, states[0] ?? 0);
  for (let x = 0; x < width; x += 1) {
    const state = states[x];
    const isRepeated =
      x > 0 && (state === states[x - 1] || (x % list.columnsFor(width) !== 0 && x < width - 1));
    if (isRepeated) {
      for (let place = x; place < pixels.length; place += width) pixels[place] = pixels[place - 1];
      continue;
    }
    list.advance(state);
    let bytes = -low;
    let row = 0;
    for (let i = list.first(); i !== list.end; i = list.next[i]) {
      bytes += size[i];
      const top = Math.min(Math.round(bytes * scale), height);
      if (top <= row) continue;
      const shade = shadeOf[i] * 3;
      const area = marks !== null && !marks[i] ? shades[shade + 2] : shades[shade];
      const isWaiting = asked[i] < state && asked[i] < died[i];
      const hasEdge = top - row > 2;
      for (let y = row; y < top; y += 1) {
        const isEdge = (hasEdge && y === top - 1) || (isWaiting && (y & 3) === 0);
        pixels[(height - 1 - y) * width + x] =
          isEdge && area === shades[shade] ? shades[shade + 1] : area;
      }
      row = top;
      if (row >= height) break;
    }
  }
}

// What is live in a state that only grows, in the order of the stack.
class LiveList {
  constructor(model, state) {
    this.model = model;
    this.end = model.count;
    this.next = new Int32Array(model.count + 1);
    this.before = new Int32Array(model.count + 1);
    this.next[this.end] = this.before[this.end] = this.end;
    this.state = state;
    this.length = 0;
    for (const i of model.liveIn(state)) this.append(i);
  }

  first() {
    return this.next[this.end];
  }

  append(i) {
    const last = this.before[this.end];
    this.next[last] = i;
    this.before[i] = last;
    this.next[i] = this.end;
    this.before[this.end] = i;
    this.length += 1;
  }

  remove(i) {
    this.next[this.before[i]] = this.next[i];
    this.before[this.next[i]] = this.before[i];
    this.length -= 1;
  }

  advance(state) {
    const { startedAt, endedAt } = this.model;
    for (; this.state < state; this.state += 1) {
      // An entry may end what had the address before.
      if (endedAt[this.state]) this.remove(endedAt[this.state] - 1);
      if (startedAt[this.state]) this.append(startedAt[this.state] - 1);
    }
  }

  // How many pixels wide a column is, so that all of them take a bounded number of steps.
  columnsFor(width) {
    return Math.max(1, Math.ceil((this.length * width) / MOST_STEPS));
  }
}
