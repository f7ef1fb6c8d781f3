// The map of segments: all of them as one ribbon in lines, and what is in them in a state.

const RIBBON = { line: 20, gap: 7, between: 4, least: 5 };

class SegmentMap {
  constructor(model, shared) {
    this.model = model;
    this.shared = shared;
    this.layers = new Layers("map");
    this.caption = h("span", { class: "caption" });
    this.element = h(
      "section",
      { class: "panel map-panel" },
      h("h2", null, "Segments ", this.caption),
      this.layers.element,
      this.legend(),
    );
    this.findSegments();
    const redraw = () => this.draw();
    for (const signal of [this.layers.resized, shared.moved, shared.colored]) signal.listen(redraw);
    const canvas = this.layers.marks;
    canvas.addEventListener("pointermove", (event) => {
      const hit = this.hit(event.offsetX, event.offsetY);
      shared.point(hit, event);
    });
    canvas.addEventListener("pointerleave", () => shared.point(null, null));
    canvas.addEventListener("click", (event) => {
      const hit = this.hit(event.offsetX, event.offsetY);
      if (hit && hit.allocation >= 0) shared.select(hit.allocation);
    });
  }

  legend() {
    const entry = (className, text) =>
      h("span", { class: "key" }, h("i", { class: className }), text);
    return h(
      "p",
      { class: "legend" },
      entry("swatch allocated", "allocated, in the colours of the chart"),
      entry("swatch waiting", "freed, a stream still uses it"),
      entry("swatch free", "free in its segment"),
    );
  }

  // The segments at the end, and those that went back before it.
  findSegments() {
    const { segments, segmentEvents } = this.model.head;
    const known = segments.map((segment, number) => ({
      ...segment,
      number,
      born: -1,
      died: this.model.entries,
    }));
    const alive = new Map(known.map((segment) => [segment.address, segment]));
    for (const [entry, kind, address, size] of [...segmentEvents].reverse()) {
      if (kind === 1) {
        const segment = { address, size, number: -1, born: -1, died: entry };
        known.push(segment);
        alive.set(address, segment);
      } else if (kind === 0 && alive.has(address)) {
        alive.get(address).born = entry;
        alive.delete(address);
      }
    }
    this.segments = known;
    this.byAddress = [...known].sort((a, b) => a.address - b.address);
    this.order = [...known].sort((a, b) => b.size - a.size || a.address - b.address);
    this.total = known.reduce((sum, segment) => sum + segment.size, 0);
  }

  // What the cursor points at, else the end, which the snapshot itself has.
  state() {
    return this.shared.cursor() ?? this.model.entries;
  }

  exists(segment, state) {
    return segment.born < state && segment.died >= state;
  }

  // Gives each segment its place on the ribbon: so many pixels, of which a line has a width.
  layOut() {
    const { width, height } = this.layers;
    const lines = Math.max(Math.floor(height / (RIBBON.line + RIBBON.gap)), 1);
    const between = this.order.length * (RIBBON.between + RIBBON.least);
    const room = Math.max(lines * width - between, width / 4);
    this.scale = room / Math.max(this.total, 1);
    let place = 0;
    for (const segment of this.order) {
      segment.place = place;
      segment.length = Math.max(segment.size * this.scale, RIBBON.least);
      place += segment.length + RIBBON.between;
    }
    this.lineBytes = width / this.scale;
  }

  // Calls `draw` with the rectangles of a part of the ribbon.
  eachPart(from, to, draw) {
    const { width } = this.layers;
    for (let line = Math.floor(from / width); line <= Math.floor((to - 1e-6) / width); line += 1) {
      const left = Math.max(from - line * width, 0);
      const right = Math.min(to - line * width, width);
      const top = line * (RIBBON.line + RIBBON.gap);
      if (right > left) draw(left, top, right - left, RIBBON.line);
    }
  }

  draw() {
    this.layers.fit();
    this.layOut();
    const state = this.state();
    const context = this.layers.begin(this.layers.base);
    let reserved = 0;
    let count = 0;
    for (const segment of this.order) {
      if (!this.exists(segment, state)) continue;
      reserved += segment.size;
      count += 1;
      this.eachPart(segment.place, segment.place + segment.length, (...part) => {
        context.fillStyle = Theme.color("free");
        context.fillRect(...part);
      });
    }
    this.drawAllocations(context, state);
    for (const segment of this.order) {
      if (!this.exists(segment, state)) continue;
      this.eachPart(segment.place, segment.place + segment.length, (x, y, width, height) => {
        context.strokeStyle = Theme.color("edge");
        context.strokeRect(x + 0.5, y + 0.5, Math.max(width - 1, 0.5), height - 1);
      });
    }
    const isEnd = state === this.model.entries ? "at the end" : `after entry ${formatCount(state)}`;
    this.caption.textContent =
      `${formatCount(count)} with ${formatBytes(reserved)} ${isEnd}; ` +
      `a full line is ${formatBytes(this.lineBytes)}`;
  }

  drawAllocations(context, state) {
    const { model, shared } = this;
    let last = -1;
    for (const i of model.liveIn(state)) {
      const segment = this.segmentOf(model.address[i]);
      if (!segment) continue;
      const start = (model.address[i] - segment.address) * (segment.length / segment.size);
      const bytes = this.blockBytes(i, state);
      const length = Math.max(bytes * (segment.length / segment.size), 0.6);
      const from = segment.place + start;
      if (length < 1 && Math.floor(from) === last) continue;
      last = Math.floor(from);
      const isWaiting = model.isAwaitingFree(i, state);
      const to = Math.min(from + length, segment.place + segment.length);
      this.eachPart(from, to, (x, y, width, height) => {
        context.fillStyle = isWaiting ? Theme.color("waiting") : shared.cssOf(i);
        context.globalAlpha = shared.isMarked(i) ? 1 : 0.18;
        context.fillRect(x, y + 1, width, height - 2);
        if (width > 3) {
          context.fillStyle = Theme.color("seam");
          context.fillRect(x + width - 1, y + 1, 1, height - 2);
        }
      });
      context.globalAlpha = 1;
    }
  }

  // What an allocation takes: known of the blocks at the end, else the request in whole units.
  blockBytes(allocation) {
    if (!this.blockOf) {
      this.blockOf = new Map();
      const { block_owner: owner, block_size: size } = this.model;
      owner.forEach((of, block) => of && this.blockOf.set(of - 1, size[block]));
    }
    const known = this.blockOf.get(allocation);
    return known ?? Math.ceil(this.model.size[allocation] / 512) * 512;
  }

  segmentOf(address) {
    let low = 0;
    let high = this.byAddress.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.byAddress[middle].address <= address) low = middle + 1;
      else high = middle;
    }
    // The same address may have been a segment's before.
    for (let i = low - 1; i >= 0 && i >= low - 4; i -= 1) {
      const segment = this.byAddress[i];
      const isInside = address >= segment.address && address < segment.address + segment.size;
      if (isInside && this.exists(segment, this.state())) return segment;
    }
    return null;
  }

  hit(x, y) {
    if (!this.scale) return null;
    const line = Math.floor(y / (RIBBON.line + RIBBON.gap));
    if (y - line * (RIBBON.line + RIBBON.gap) > RIBBON.line) return null;
    const place = line * this.layers.width + x;
    const state = this.state();
    const segment = this.order.find(
      (one) => place >= one.place && place < one.place + one.length && this.exists(one, state),
    );
    if (!segment) return null;
    const offset = ((place - segment.place) / segment.length) * segment.size;
    const address = segment.address + offset;
    let [before, after] = [segment.address, segment.address + segment.size];
    for (const i of this.model.liveIn(state)) {
      const start = this.model.address[i];
      const end = start + this.blockBytes(i, state);
      if (address >= start && address < end) return { state, allocation: i, segment };
      if (end <= address && end > before) before = end;
      if (start > address && start < after) after = start;
    }
    return { state, allocation: -1, segment, holeBytes: after - before };
  }
}
