// Segments over time: regions of addresses, and which parts of them were memory when.
//
// A *part* was memory in the states above `born` up to `died`. A segment that grows has a part for
// each time that memory was mapped or unmapped; parts that touch share a *region*, whatever their
// times, so that it keeps its place on the map. Each other segment is a region of one part.

class Segments {
  // `segments` are those of the end: the events are undone from there, the last one first.
  constructor({ segments, segmentEvents }, entries) {
    this.parts = [];
    // What is memory before the events that were undone, by address.
    this.live = [];
    segments.forEach(({ address, size, isExpandable, class: name }, number) => {
      const part = { address, end: address + size, died: entries };
      this.add({ ...part, number, class: name, isExpandable });
    });
    for (const [entry, kind, address, size] of [...segmentEvents].reverse()) {
      const end = address + size;
      if (kind === 0 || kind === 2) this.cut(address, end, entry);
      else this.add({ address, end, died: entry, number: -1, isExpandable: kind === 3 });
    }
    for (const part of this.live) this.parts.push({ ...part, born: -1 });
    delete this.live;
    this.findRegions();
  }

  // Of a record that contradicts itself, what is there already stays.
  add(part) {
    const index = firstEndingBehind(this.live, part.address);
    const end = Math.min(part.end, this.live[index]?.address ?? part.end);
    if (end > part.address) this.live.splice(index, 0, { ...part, end });
  }

  // What was not memory before an entry was born there.
  cut(address, end, born) {
    const first = firstEndingBehind(this.live, address);
    let behind = first;
    const left = [];
    for (; behind < this.live.length && this.live[behind].address < end; behind += 1) {
      const part = this.live[behind];
      const [from, to] = [Math.max(part.address, address), Math.min(part.end, end)];
      this.parts.push({ ...part, address: from, end: to, born });
      if (part.address < from) left.push({ ...part, end: from });
      if (part.end > to) left.push({ ...part, address: to });
    }
    this.live.splice(first, behind - first, ...left);
  }

  findRegions() {
    this.parts.sort((a, b) => a.address - b.address || a.born - b.born);
    this.byAddress = [];
    let growing = null;
    for (const part of this.parts) {
      if (part.isExpandable && growing && part.address <= growing.end) {
        growing.end = Math.max(growing.end, part.end);
        growing.parts.push(part);
        continue;
      }
      const region = { address: part.address, end: part.end, parts: [part] };
      this.byAddress.push(region);
      if (part.isExpandable) growing = region;
    }
    for (const region of this.byAddress) region.size = region.end - region.address;
    this.bySize = [...this.byAddress].sort((a, b) => b.size - a.size || a.address - b.address);
    this.total = this.byAddress.reduce((sum, region) => sum + region.size, 0);
  }

  // The segments in a state, by address: parts that touch are one, unless they are two at the end.
  runsIn(state) {
    if (this.known?.state === state) return this.known.runs;
    const runs = [];
    for (const region of this.byAddress) {
      let [run, before] = [null, null];
      for (const part of region.parts) {
        if (part.born >= state || part.died < state) continue;
        const isOne =
          before?.end === part.address &&
          (before.number === part.number || before.number < 0 || part.number < 0);
        if (isOne) {
          run.end = part.end;
          run.class ??= part.class;
        } else {
          run = { ...part, region };
          runs.push(run);
        }
        before = part;
      }
    }
    for (const run of runs) run.size = run.end - run.address;
    runs.sort((a, b) => a.address - b.address);
    this.known = { state, runs };
    return runs;
  }

  // The segment that has an address in a state, or null.
  runAt(address, state) {
    const runs = this.runsIn(state);
    const run = runs[firstEndingBehind(runs, address)];
    return run && run.address <= address ? run : null;
  }
}

// The first index of what ends behind an address; `ranges` ascend and do not overlap.
function firstEndingBehind(ranges, address) {
  let [low, high] = [0, ranges.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranges[middle].end <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}
