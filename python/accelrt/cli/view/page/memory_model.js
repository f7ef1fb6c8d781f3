// Allocations over time: the columns of a snapshot's trace or of a table, and what follows of them.
//
// A *state* is what is live after so many entries of the trace: state 0 is the beginning, and an
// allocation is live in the states above `born` up to `died`.

const LIBRARY =
  /site-packages|dist-packages|torchinductor|[\\/](torch|triton)[\\/]|[\\/]lib[\\/]python/;
// Parts of functions, which stand for the function around them.
const ANONYMOUS = /^<(listcomp|setcomp|dictcomp|genexpr|lambda)>$/;
const PYTHON = /\.py$|^<|\.ipynb|ipykernel/;

class MemoryModel {
  constructor(view) {
    Object.assign(this, view.columns);
    this.head = view.head;
    this.name = view.name;
    this.kind = view.kind;
    this.entries = view.head.entries;
    this.count = this.size.length;
    this.startedAt = new Int32Array(this.entries);
    this.endedAt = new Int32Array(this.entries);
    this.findTotals();
    this.findReserved();
    this.findSites();
    this.findTags();
  }

  // Live bytes in each state, and which allocation each entry starts and ends (plus one).
  findTotals() {
    const change = new Float64Array(this.entries + 1);
    for (let i = 0; i < this.count; i += 1) {
      const state = this.born[i] + 1;
      change[state] += this.size[i];
      if (state > 0) this.startedAt[state - 1] = i + 1;
      if (this.died[i] < this.entries) {
        change[this.died[i] + 1] -= this.size[i];
        this.endedAt[this.died[i]] = i + 1;
      }
    }
    this.total = change;
    this.peakState = 0;
    for (let state = 1; state <= this.entries; state += 1) {
      change[state] += change[state - 1];
      if (change[state] > change[this.peakState]) this.peakState = state;
    }
    this.allocationCount = 0;
    for (let i = 0; i < this.count; i += 1) this.allocationCount += this.born[i] >= 0 ? 1 : 0;
  }

  // Reserved bytes in each state, backwards from the segments at the end; null without any.
  findReserved() {
    const { segments, segmentEvents } = this.head;
    this.reserved = null;
    if (!segments || segments.length + segmentEvents.length === 0) return;
    this.reservedAtEnd = segments.reduce((sum, segment) => sum + segment.size, 0);
    this.reserved = new Float64Array(this.entries + 1).fill(this.reservedAtEnd);
    if (!segmentEvents.length) return;
    let next = segmentEvents.length - 1;
    let bytes = this.reservedAtEnd;
    for (let state = this.entries; state >= 0; state -= 1) {
      this.reserved[state] = Math.max(bytes, 0);
      while (next >= 0 && segmentEvents[next][0] === state - 1) {
        const [, kind, , size] = segmentEvents[next];
        bytes += kind === 0 || kind === 2 ? -size : size;
        next -= 1;
      }
    }
  }

  // The call site of each allocation: the innermost frame of the program itself.
  findSites() {
    const { stacks = [], frames = [] } = this.head;
    const names = new Map();
    const number = (key, text) => {
      if (!names.has(key)) names.set(key, { number: names.size, text, bytes: 0, count: 0 });
      return names.get(key).number;
    };
    const ofStack = stacks.map((stack) => {
      const frame = programFrame(stack, frames);
      return frame === null ? -1 : number(`f${frame}`, frameText(frames[frame]));
    });
    const early = () => {
      const site = number("early", "before the recording");
      names.get("early").isUnknown = true;
      return site;
    };
    const unknown = () => number("unknown", "no call stack");
    this.hasStacks = stacks.length > 0;
    this.site = new Int32Array(this.count);
    for (let i = 0; i < this.count; i += 1) {
      const known = this.stack[i] >= 0 ? ofStack[this.stack[i]] : -1;
      if (known >= 0) this.site[i] = known;
      else if (!this.hasStacks) this.site[i] = number(this.size[i], formatBytes(this.size[i]));
      else this.site[i] = this.born[i] < 0 ? early() : unknown();
    }
    this.sites = [...names.values()];
    this.rankedSites = this.ranked(this.sites, this.site);
  }

  // What allocations are for, where the program says so.
  findTags() {
    const { tags = [""] } = this.head;
    this.hasTags = tags.length > 1;
    this.tags = tags.map((text) => ({
      text: text || "no tag",
      bytes: 0,
      count: 0,
      isUnknown: !text,
    }));
    this.rankedTags = this.ranked(this.tags, this.tag);
  }

  // Groups by what they hold at the peak, then by all that they ever asked for; `numberOf` has the
  // group of each allocation.
  ranked(groups, numberOf) {
    for (let i = 0; i < this.count; i += 1) {
      const group = groups[numberOf[i]];
      group.bytes += this.size[i];
      group.count += 1;
      if (this.isLive(i, this.peakState)) group.peakBytes = (group.peakBytes ?? 0) + this.size[i];
    }
    const order = [...groups].sort(
      (a, b) => (b.peakBytes ?? 0) - (a.peakBytes ?? 0) || b.bytes - a.bytes,
    );
    let rank = 0;
    for (const group of order) {
      group.rank = group.isUnknown ? GREY : rank;
      rank += group.isUnknown ? 0 : 1;
    }
    return order;
  }

  isLive(allocation, state) {
    return this.born[allocation] < state && this.died[allocation] >= state;
  }

  // The indices of what is live in a state, in the order of the stack.
  liveIn(state) {
    const found = [];
    for (let i = 0; i < this.count && this.born[i] < state; i += 1) {
      if (this.died[i] >= state) found.push(i);
    }
    return found;
  }

  // The live bytes and the number of allocations of each site in a state, the largest first.
  sitesIn(state) {
    return this.sumsIn(state, this.sites, this.site);
  }

  tagsIn(state) {
    return this.sumsIn(state, this.tags, this.tag);
  }

  sumsIn(state, groups, numberOf) {
    const sums = new Map();
    for (const i of this.liveIn(state)) {
      const entry = sums.get(numberOf[i]) ?? { group: groups[numberOf[i]], bytes: 0, count: 0 };
      entry.bytes += this.size[i];
      entry.count += 1;
      sums.set(numberOf[i], entry);
    }
    return [...sums.values()].sort((a, b) => b.bytes - a.bytes);
  }

  // Whether an allocation waits in a state for streams that still use it.
  isAwaitingFree(allocation, state) {
    return this.asked[allocation] < state && this.asked[allocation] < this.died[allocation];
  }

  // Frames of a stack as [name, file, line], the innermost first.
  framesOf(stack) {
    return stack < 0 ? [] : this.head.stacks[stack].map((frame) => this.head.frames[frame]);
  }

  // Marks of the allocations whose frames, tag or address have a text; null for no text.
  matches(text) {
    const words = text.trim().toLowerCase();
    if (!words) return null;
    const { frames = [], stacks = [], tags = [] } = this.head;
    const hasWords = (value) => value.toLowerCase().includes(words);
    const frameHas = frames.map((frame) => hasWords(`${frame[0]} ${frame[1]}:${frame[2]}`));
    const stackHas = stacks.map((stack) => stack.some((frame) => frameHas[frame]));
    const tagHas = tags.map(hasWords);
    const siteHas = this.sites.map((site) => hasWords(site.text));
    const marks = new Uint8Array(this.count);
    for (let i = 0; i < this.count; i += 1) {
      const found =
        siteHas[this.site[i]] ||
        (this.stack[i] >= 0 && stackHas[this.stack[i]]) ||
        tagHas[this.tag[i]] ||
        (words.startsWith("0x") && formatAddress(this.address[i]).startsWith(words));
      marks[i] = found ? 1 : 0;
    }
    return marks;
  }
}

function isPythonFrame(frame) {
  return PYTHON.test(frame[1]);
}

// The frame that says most about where a stack comes from; null when there is none.
function programFrame(stack, frames) {
  const ofPython = stack.filter((frame) => isPythonFrame(frames[frame]));
  const ofProgram = ofPython.filter((frame) => !LIBRARY.test(frames[frame][1]));
  const known = stack.filter((frame) => frames[frame][0] || frames[frame][1]);
  const named = ofProgram.find((frame) => !ANONYMOUS.test(frames[frame][0]));
  return named ?? ofProgram[0] ?? ofPython[0] ?? known[0] ?? null;
}

function frameText([name, file, line]) {
  const where = file && file !== "??" ? `${baseName(file)}${line ? `:${line}` : ""}` : "";
  return [name, where].filter(Boolean).join(" · ");
}
