// The chart of memory over time: the stacked picture, lines of reserved bytes, marks, an overview.

const PLOT = { left: 74, right: 14, top: 20, bottom: 24 };

class MemoryChart {
  // `shared` has what the parts of a view have in common; see `MemoryView`.
  constructor(model, shared) {
    this.model = model;
    this.shared = shared;
    this.layers = new Layers("chart");
    this.overview = new Layers("overview");
    this.element = h("div", { class: "chart-box" }, this.layers.element, this.overview.element);
    bindChart(
      this,
      [shared.colored],
      () => this.plot,
      (hit) => shared.click(hit),
      (hit, event) => shared.hover(hit, event),
    );
    shared.moved.listen(() => this.drawMarks());
    this.bindOverview();
  }

  bindOverview() {
    const { axis } = this.shared;
    const strip = this.overview.marks;
    const move = (event) => {
      if (event.buttons !== 1) return;
      const { left, width } = this.stripPlot();
      const whole = axis.most - axis.least;
      const middle = axis.least + ((event.offsetX - left) / width) * whole;
      axis.show(middle - axis.span / 2, middle + axis.span / 2);
    };
    strip.addEventListener("pointerdown", move);
    strip.addEventListener("pointermove", move);
  }

  draw() {
    if (!this.layers.isNewFrame()) return;
    this.layers.fit();
    const { width, height } = this.layers;
    this.plot = {
      left: PLOT.left,
      top: PLOT.top,
      width: Math.max(width - PLOT.left - PLOT.right, 10),
      height: Math.max(height - PLOT.top - PLOT.bottom, 10),
    };
    const context = this.layers.begin(this.layers.base);
    const ratio = this.layers.ratio;
    const columns = Math.max(Math.round(this.plot.width * ratio), 1);
    const rows = Math.max(Math.round(this.plot.height * ratio), 1);
    this.states = columnStates(this.model, this.shared.axis, columns);
    this.findRange();
    const image = context.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(pixelOf(Theme.color("plot")));
    const scale = rows / (this.high - this.low);
    paintStack(this.model, this.states, {
      pixels,
      width: columns,
      height: rows,
      low: this.low,
      scale,
      ...this.shared.paint,
    });
    context.putImageData(image, Math.round(PLOT.left * ratio), Math.round(PLOT.top * ratio));
    drawByteAxis(context, this.plot, this.low, this.high);
    drawAxis(context, this.plot, this.shared.axis, this.shared.formatX, height - 10);
    this.drawLines(context);
    this.drawEvents(context);
    this.drawPeak(context);
    this.drawOverview();
    this.drawMarks();
  }

  // The range of bytes: from zero, or from what stays in all of the window.
  findRange() {
    const { total } = this.model;
    let [least, most] = [Infinity, 1];
    for (const state of this.states) {
      least = Math.min(least, total[state]);
      most = Math.max(most, total[state]);
    }
    // Lines far above would leave little room for what is cut out.
    const lines = this.shared.isClipped ? [] : this.shared.lines.filter((line) => line.isShown);
    for (const line of lines) {
      for (const state of this.states) most = Math.max(most, line.at(state));
    }
    this.low = this.shared.isClipped ? Math.max(0, least - (most - least) * 0.1) : 0;
    this.high = most + (most - this.low) * 0.04;
  }

  yOf(bytes) {
    const { top, height } = this.plot;
    return top + height - ((bytes - this.low) / (this.high - this.low)) * height;
  }

  xOf(value) {
    const { axis } = this.shared;
    return this.plot.left + ((value - axis.low) / axis.span) * this.plot.width;
  }

  drawLines(context) {
    const { left, top, width, height } = this.plot;
    const step = width / this.states.length;
    const draw = (line) => {
      context.strokeStyle = line.color();
      context.lineWidth = 1.75;
      context.setLineDash(line.dash ?? []);
      context.beginPath();
      this.states.forEach((state, column) => {
        const y = this.yOf(line.at(state));
        context.lineTo(left + column * step, y);
        context.lineTo(left + (column + 1) * step, y);
      });
      context.stroke();
    };
    const shown = this.shared.lines.filter((line) => line.isShown);
    drawInside(context, left, top, width, height, () => shown.forEach(draw));
  }

  // Where memory ran out, and the ranges that the program named.
  drawEvents(context) {
    const { shared, plot } = this;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const { entry, size } of this.model.head.shortages ?? []) {
      const x = this.xOf(shared.axis.valueOf(entry + 1));
      if (x < plot.left || x > plot.left + plot.width) continue;
      context.fillStyle = Theme.color("bad");
      context.fillRect(x - 1, plot.top, 2, plot.height);
      context.textAlign = x > plot.left + plot.width / 2 ? "right" : "left";
      const side = context.textAlign === "left" ? 5 : -5;
      context.fillText(`out of memory: ${formatBytes(size)}`, x + side, plot.top + 8);
    }
    context.textAlign = "left";
    for (const [name, start, end] of this.model.head.annotations ?? []) {
      const [from, to] = [start, end].map((us) => this.xOf(shared.axis.ofTime(us)));
      const left = Math.max(from, plot.left);
      const right = Math.min(to, plot.left + plot.width);
      if (right < plot.left || left > plot.left + plot.width) continue;
      context.fillStyle = Theme.color("range");
      context.fillRect(left, 2, Math.max(right - left, 2), 14);
      drawInside(context, left, 2, right - left, 14, () => {
        context.fillStyle = Theme.color("text");
        context.fillText(name, left + 5, 9.5);
      });
    }
  }

  drawPeak(context) {
    const { model, plot, shared } = this;
    const x = this.xOf(shared.axis.valueOf(model.peakState));
    const bytes = model.total[model.peakState];
    if (x < plot.left || x > plot.left + plot.width || bytes <= 0) return;
    const y = this.yOf(bytes);
    const isLeft = x > plot.left + plot.width - 130;
    context.fillStyle = Theme.color("text");
    context.beginPath();
    context.arc(x, y, 3, 0, 7);
    context.fill();
    context.textAlign = isLeft ? "right" : "left";
    const text = `peak ${formatBytes(bytes)}`;
    // Below the words of shortages, and on ground of its own: lines may go through there.
    const left = x + (isLeft ? -8 : 8);
    const middle = Math.max(y + 3, plot.top + 26);
    const width = context.measureText(text).width + 6;
    context.fillStyle = Theme.color("plot");
    context.fillRect(isLeft ? left - width + 3 : left - 3, middle - 8, width, 16);
    context.fillStyle = Theme.color("text");
    context.fillText(text, left, middle);
  }

  stripPlot() {
    return { left: PLOT.left, width: this.overview.width - PLOT.left - PLOT.right };
  }

  // All of the trace, with the part that the chart shows.
  drawOverview() {
    this.overview.fit();
    const context = this.overview.begin(this.overview.base);
    const { left, width } = this.stripPlot();
    const { height } = this.overview;
    const { axis } = this.shared;
    const whole = { ...axisLike(axis), low: axis.least, span: axis.most - axis.least };
    const columns = Math.max(Math.round(width), 1);
    const states = columnStates(this.model, whole, columns);
    const most = Math.max(this.model.total[this.model.peakState], 1);
    context.fillStyle = Theme.color("plot");
    context.fillRect(left, 0, width, height);
    context.fillStyle = Theme.color("accent-soft");
    states.forEach((state, x) => {
      const bar = (this.model.total[state] / most) * (height - 3);
      context.fillRect(left + x, height - bar, 1.2, bar);
    });
    const from = left + ((axis.low - axis.least) / whole.span) * width;
    const to = left + ((axis.high - axis.least) / whole.span) * width;
    context.fillStyle = Theme.color("veil");
    context.fillRect(left, 0, from - left, height);
    context.fillRect(to, 0, left + width - to, height);
    context.strokeStyle = Theme.color("accent");
    context.strokeRect(from + 0.5, 0.5, Math.max(to - from - 1, 2), height - 1);
    context.fillStyle = Theme.color("faint");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText("whole trace", left - 6, height / 2);
  }

  // What is under the pointer: a state, and the allocation there or -1.
  hit(x, y) {
    const { left, top, width, height } = this.plot;
    if (x < left || x >= left + width || y < 0 || y > top + height) return null;
    const column = Math.min(
      Math.floor(((x - left) / width) * this.states.length),
      this.states.length - 1,
    );
    const state = this.states[column];
    const bytes = this.low + ((top + height - y) / height) * (this.high - this.low);
    let sum = 0;
    for (const i of this.model.liveIn(state)) {
      sum += this.model.size[i];
      if (sum > bytes) return { state, allocation: i };
    }
    return { state, allocation: -1 };
  }

  drawMarks() {
    if (!this.plot) return;
    const context = this.layers.begin(this.layers.marks);
    const { left, top, width, height } = this.plot;
    const { shared } = this;
    const line = (state, color, dash) => {
      if (state === null) return;
      const x = Math.round(this.xOf(shared.axis.valueOf(state))) + 0.5;
      if (x < left || x > left + width) return;
      context.strokeStyle = color;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, top + height);
      context.stroke();
    };
    line(shared.pinned, Theme.color("accent"), []);
    line(shared.hovered?.state ?? null, Theme.color("text"), [3, 3]);
    if (this.selection) {
      const [from, to] = this.selection.map((value) => this.xOf(value));
      context.fillStyle = Theme.color("select");
      context.fillRect(from, top, to - from, height);
    }
  }
}

// An axis with another window: what `columnStates` needs of one.
function axisLike(axis) {
  return { stateAt: (value) => axis.stateAt(value) };
}
