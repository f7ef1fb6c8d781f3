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
    this.segments = new Segments(model.head, model.entries);
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

  // What the cursor points at, else the end, which the snapshot itself has.
  state() {
    return this.shared.cursor() ?? this.model.entries;
  }

  // Gives each region its place on the ribbon: so many pixels, of which a line has a width.
  layOut() {
    const { width, height } = this.layers;
    const { bySize, total } = this.segments;
    const lines = Math.max(Math.floor(height / (RIBBON.line + RIBBON.gap)), 1);
    const between = bySize.length * (RIBBON.between + RIBBON.least);
    const room = Math.max(lines * width - between, width / 4);
    const scale = room / Math.max(total, 1);
    let place = 0;
    for (const region of bySize) {
      region.place = place;
      region.length = Math.max(region.size * scale, RIBBON.least);
      place += region.length + RIBBON.between;
    }
    this.lineBytes = width / scale;
  }

  // Where an address of a region is on the ribbon.
  placeOf(region, address) {
    return region.place + ((address - region.address) / region.size) * region.length;
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
    const runs = this.segments.runsIn(state).map(({ region, address, end, size }) => ({
      from: this.placeOf(region, address),
      to: this.placeOf(region, end),
      size,
    }));
    for (const { from, to } of runs) {
      this.eachPart(from, to, (...part) => {
        context.fillStyle = Theme.color("free");
        context.fillRect(...part);
      });
    }
    this.drawAllocations(context, state);
    for (const { from, to } of runs) {
      this.eachPart(from, to, (x, y, width, height) => {
        context.strokeStyle = Theme.color("edge");
        context.strokeRect(x + 0.5, y + 0.5, Math.max(width - 1, 0.5), height - 1);
      });
    }
    const reserved = runs.reduce((sum, run) => sum + run.size, 0);
    const isEnd = state === this.model.entries ? "at the end" : `after entry ${formatCount(state)}`;
    this.caption.textContent =
      `${formatCount(runs.length)} with ${formatBytes(reserved)} ${isEnd}; ` +
      `a full line is ${formatBytes(this.lineBytes)}`;
  }

  drawAllocations(context, state) {
    const { model, shared } = this;
    let last = -1;
    for (const i of model.liveIn(state)) {
      const region = this.segments.runAt(model.address[i], state)?.region;
      if (!region) continue;
      const bytes = this.blockBytes(i, state);
      const length = Math.max(bytes * (region.length / region.size), 0.6);
      const from = this.placeOf(region, model.address[i]);
      if (length < 1 && Math.floor(from) === last) continue;
      last = Math.floor(from);
      const isWaiting = model.isAwaitingFree(i, state);
      const to = Math.min(from + length, region.place + region.length);
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

  hit(x, y) {
    if (!this.lineBytes) return null;
    const line = Math.floor(y / (RIBBON.line + RIBBON.gap));
    if (y - line * (RIBBON.line + RIBBON.gap) > RIBBON.line) return null;
    const place = line * this.layers.width + x;
    const state = this.state();
    const region = this.segments.bySize.find(
      (one) => place >= one.place && place < one.place + one.length,
    );
    if (!region) return null;
    const address = region.address + ((place - region.place) / region.length) * region.size;
    const segment = this.segments.runAt(address, state);
    if (segment?.region !== region) return null;
    let [before, after] = [segment.address, segment.end];
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
