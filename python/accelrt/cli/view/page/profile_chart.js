// The tracks of a profile on a canvas that scrolls: processes with streams and threads, counters.

const LANE = {
  axis: 24,
  process: 22,
  row: 17,
  highest: 28,
  gap: 7,
  counter: 40,
  gutter: 190,
  right: 12,
  // What stands above and below the tracks in the window.
  around: 235,
};
// More arrows than this are only drawn for what is selected.
const MOST_ARROWS = 400;

class ProfileChart {
  constructor(model, shared) {
    this.model = model;
    this.shared = shared;
    this.layers = new Layers("tracks-view");
    this.spacer = h("div", { class: "spacer" }, this.layers.element);
    this.element = h("div", { class: "tracks" }, this.spacer);
    this.rowHeight = 0;
    this.element.addEventListener("scroll", () => this.shared.axis.changed.emit());
    addEventListener("resize", () => this.shared.axis.changed.emit());
    bindChart(
      this,
      [shared.marked, Theme.changed],
      () => this.plot,
      (hit) => shared.select(hit?.slice ?? -1),
      (hit, event) => {
        this.pointer = event?.offsetX ?? null;
        shared.point(hit, event);
        this.drawMarks();
      },
    );
  }

  // Rows are higher where there is room for it, and the chart is no higher than its tracks.
  fitRows() {
    const { processes, head } = this.model;
    const tracks = processes.reduce((sum, process) => sum + process.tracks.length, 0);
    const lanes = processes.length * LANE.process + tracks * LANE.gap;
    const fixed = LANE.axis + lanes + head.counters.length * LANE.counter + 8;
    const room = Math.max(innerHeight - LANE.around, 300);
    const share = (room - fixed) / Math.max(head.rows.length, 1);
    const rowHeight = Math.round(Math.min(Math.max(share, LANE.row), LANE.highest));
    if (rowHeight === this.rowHeight && room === this.room) return;
    [this.rowHeight, this.room] = [rowHeight, room];
    this.layOut();
    const height = `${Math.min(room, this.height)}px`;
    this.element.style.height = this.layers.element.style.height = height;
  }

  // Gives each process, track and counter its place from top to bottom.
  layOut() {
    this.lanes = [];
    this.topOf = new Map();
    let top = LANE.axis;
    const { counters } = this.model.head;
    const known = new Set();
    const add = (lane, height) => {
      this.lanes.push({ ...lane, top, height });
      top += height;
    };
    const addCounters = (name) =>
      counters.forEach(([process, counter, key], number) => {
        if (process !== name || known.has(number)) return;
        known.add(number);
        add(
          {
            kind: "counter",
            number,
            label: key === counter ? key : `${counter}: ${key}`,
          },
          LANE.counter,
        );
      });
    for (const process of this.model.processes) {
      add({ kind: "process", label: process.name }, LANE.process);
      for (const track of process.tracks) {
        this.topOf.set(track.number, top);
        const rows = Math.max(track.rows.length, 1);
        add({ kind: "track", track, label: track.thread }, rows * this.rowHeight + LANE.gap);
      }
      addCounters(process.name);
    }
    for (const [process] of counters) addCounters(process);
    this.height = top + 4;
    this.spacer.style.height = `${this.height}px`;
  }

  draw() {
    if (!this.layers.isNewFrame()) return;
    this.fitRows();
    this.layers.fit();
    const { width, height } = this.layers;
    this.plot = {
      left: LANE.gutter,
      width: Math.max(width - LANE.gutter - LANE.right, 10),
      top: LANE.axis,
      height: height - LANE.axis,
    };
    const context = this.layers.begin(this.layers.base);
    const colors = this.model.names.map((_, name) => cssHue(this.model.rank[name], -3));
    const scene = {
      context,
      axis: this.shared.axis,
      plot: this.plot,
      marks: this.shared.marks,
      colors,
    };
    context.font = "11px system-ui, sans-serif";
    const scroll = this.element.scrollTop;
    for (const lane of this.lanes) {
      const top = lane.top - scroll;
      if (top + lane.height >= LANE.axis && top <= height) this.drawLane(lane, top, scene);
    }
    this.drawArrows(context, scroll);
    context.fillStyle = Theme.color("panel");
    context.fillRect(0, 0, width, LANE.axis);
    drawAxis(context, this.plot, this.shared.axis, formatTick, LANE.axis / 2);
    this.drawMarks();
  }

  drawLane(lane, top, scene) {
    const { context } = scene;
    const { width } = this.layers;
    context.textBaseline = "middle";
    context.textAlign = "left";
    if (lane.kind === "process") {
      context.fillStyle = Theme.color("text");
      context.font = "600 12px system-ui, sans-serif";
      context.fillText(lane.label, 2, top + LANE.process / 2 + 2, LANE.gutter + 300);
      context.font = "11px system-ui, sans-serif";
      return;
    }
    context.fillStyle = Theme.color("lane");
    context.fillRect(0, top, width, lane.height - LANE.gap / 2);
    let note = "";
    drawInside(context, this.plot.left, top, this.plot.width, lane.height, () => {
      if (lane.kind === "counter") note = this.drawCounter(lane, top, scene);
      else note = this.drawTrack(lane, top, scene);
    });
    this.label(context, lane.label, 10, top + 10, LANE.gutter - 66);
    context.textAlign = "right";
    context.fillStyle = Theme.color("faint");
    context.fillText(note, LANE.gutter - 8, top + 10);
  }

  label(context, text, left, y, width) {
    context.textAlign = "left";
    context.fillStyle = Theme.color("text");
    let shown = text;
    while (shown.length > 2 && context.measureText(shown).width > width)
      shown = `${shown.slice(0, -2)}…`;
    context.fillText(shown, left, y);
  }

  drawTrack(lane, top, scene) {
    const { model } = this;
    scene.context.textAlign = "left";
    lane.track.rows.forEach((row, depth) => {
      paintRow(model, row, top + 2 + depth * this.rowHeight, this.rowHeight - 2, scene);
    });
    this.drawInstants(lane.track.number, top, scene.context);
    const busy = model.last ? model.busy[lane.track.number] / model.last : 0;
    return lane.track.rows.length ? formatPercent(busy) : "";
  }

  drawInstants(track, top, context) {
    const { instant_time: times, instant_track: tracks } = this.model.columns;
    const { axis } = this.shared;
    context.fillStyle = Theme.color("found");
    for (let k = upperBound(times, axis.low); k < times.length && times[k] <= axis.high; k += 1) {
      if (tracks[k] !== track) continue;
      const x = this.xOf(times[k]);
      context.beginPath();
      context.moveTo(x, top + 9);
      context.lineTo(x - 4, top);
      context.lineTo(x + 4, top);
      context.fill();
    }
  }

  drawCounter(lane, top, scene) {
    const { columns } = this.model;
    const [times, values] = ["time", "value"].map(
      (part) => columns[`counter${lane.number}_${part}`],
    );
    const most = this.model.counterMost(lane.number);
    const color = cssHue(lane.number);
    paintCounter(times, values, most, top, lane.height - LANE.gap, scene, color);
    return formatCounter(lane.label, most);
  }

  xOf(time) {
    const { axis } = this.shared;
    return this.plot.left + ((time - axis.low) / axis.span) * this.plot.width;
  }

  // The middle of the slice that is on a track at a time, as far as one is.
  yOf(track, time) {
    const top = this.topOf.get(track);
    if (top === undefined) return null;
    const lane = this.lanes.find((one) => one.kind === "track" && one.track.number === track);
    for (let depth = lane.track.rows.length - 1; depth > 0; depth -= 1) {
      if (this.model.sliceAt(lane.track.rows[depth], time, 0) >= 0) {
        return top + 2 + (depth + 0.5) * this.rowHeight;
      }
    }
    return top + 2 + this.rowHeight / 2;
  }

  drawArrows(context, scroll) {
    const {
      arrow_from_time: from,
      arrow_from_track: out,
      arrow_to_time: to,
      arrow_to_track: into,
    } = this.model.columns;
    const { axis, selected } = this.shared;
    let shown = [];
    for (let i = 0; i < from.length && shown.length <= MOST_ARROWS; i += 1) {
      if (from[i] <= axis.high && to[i] >= axis.low) shown.push(i);
    }
    if (shown.length > MOST_ARROWS) shown = [];
    const chosen = selected >= 0 ? new Set(this.model.arrowsOf(selected)) : new Set();
    const draw = (i, color, width) => {
      const [y0, y1] = [this.yOf(out[i], from[i]), this.yOf(into[i], to[i])];
      if (y0 === null || y1 === null) return;
      context.strokeStyle = context.fillStyle = color;
      context.lineWidth = width;
      paintArrow(context, this.xOf(from[i]), y0 - scroll, this.xOf(to[i]), y1 - scroll);
    };
    drawInside(context, this.plot.left, LANE.axis, this.plot.width, this.layers.height, () => {
      context.globalAlpha = 0.6;
      for (const i of shown) if (!chosen.has(i)) draw(i, Theme.color("soft"), 1);
      context.globalAlpha = 1;
      for (const i of chosen) draw(i, Theme.color("found"), 2);
    });
  }

  // What is at a point: a slice, or a counter with its value there.
  hit(x, y) {
    if (!this.plot || x < this.plot.left || y < LANE.axis) return null;
    const at = y + this.element.scrollTop;
    const lane = this.lanes.find((one) => at >= one.top && at < one.top + one.height);
    if (!lane || lane.kind === "process") return null;
    const { axis } = this.shared;
    const time = axis.low + ((x - this.plot.left) / this.plot.width) * axis.span;
    if (lane.kind === "counter") {
      const { columns } = this.model;
      const place = upperBound(columns[`counter${lane.number}_time`], time) - 1;
      const value = place < 0 ? 0 : columns[`counter${lane.number}_value`][place];
      return { slice: -1, text: `${lane.label}: ${formatCounter(lane.label, value)}`, time };
    }
    const depth = Math.floor((at - lane.top - 2) / this.rowHeight);
    const row = lane.track.rows[depth];
    if (row === undefined) return null;
    const slice = this.model.sliceAt(row, time, (3 / this.plot.width) * axis.span);
    return slice >= 0 ? { slice, time } : null;
  }

  drawMarks() {
    if (!this.plot) return;
    const context = this.layers.begin(this.layers.marks);
    const { height } = this.layers;
    const { selected } = this.shared;
    if (this.pointer && this.pointer > this.plot.left) {
      context.fillStyle = Theme.color("grid");
      context.fillRect(this.pointer, LANE.axis, 1, height);
    }
    if (this.selection) {
      const [from, to] = this.selection.map((time) => this.xOf(time));
      context.fillStyle = Theme.color("select");
      context.fillRect(from, LANE.axis, to - from, height);
      context.fillStyle = Theme.color("text");
      context.font = "600 11px system-ui, sans-serif";
      context.fillText(formatNs(this.selection[1] - this.selection[0]), from + 4, LANE.axis + 12);
    }
    if (selected < 0) return;
    const [track, depth] = this.model.head.rows[this.model.row[selected]];
    const y = this.topOf.get(track) + 2 + depth * this.rowHeight - this.element.scrollTop;
    if (y < LANE.axis) return;
    const left = Math.max(this.xOf(this.model.start[selected]), this.plot.left);
    const right = Math.min(this.xOf(this.model.end(selected)), this.plot.left + this.plot.width);
    context.strokeStyle = Theme.color("found");
    context.lineWidth = 2;
    if (right >= left)
      context.strokeRect(left - 1, y - 1, Math.max(right - left, 2) + 2, this.rowHeight);
  }

  // Scrolls so that a track is in sight.
  reveal(track) {
    const top = this.topOf.get(track) ?? 0;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop + LANE.axis || top > scrollTop + clientHeight - 40) {
      this.element.scrollTop = Math.max(top - clientHeight / 2, 0);
    }
  }
}

// Counters of bytes are shown as such.
function formatCounter(label, value) {
  return /byte|memory|alloc|reserv/i.test(label) ? formatBytes(value) : formatCount(value);
}
