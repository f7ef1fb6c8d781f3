// The visible part of a long axis, and the mouse and keys that move it.

class AxisWindow {
  constructor(least, most, leastSpan) {
    this.changed = new Signal();
    this.setBounds(least, most, leastSpan);
  }

  setBounds(least, most, leastSpan) {
    this.least = least;
    this.most = Math.max(most, least + leastSpan);
    this.leastSpan = leastSpan;
    this.low = this.least;
    this.high = this.most;
    this.changed.emit();
  }

  get span() {
    return this.high - this.low;
  }

  isWhole() {
    return this.low <= this.least && this.high >= this.most;
  }

  show(low, high) {
    const span = Math.min(Math.max(high - low, this.leastSpan), this.most - this.least);
    const middle = (low + high) / 2;
    this.low = Math.min(Math.max(middle - span / 2, this.least), this.most - span);
    this.high = this.low + span;
    this.changed.emit();
  }

  // Makes the span `factor` times as large; what is at `at` stays where it is.
  zoom(factor, at = (this.low + this.high) / 2) {
    const span = this.span;
    const next = Math.min(Math.max(span * factor, this.leastSpan), this.most - this.least);
    const low = at - ((at - this.low) / span) * next;
    this.show(low, low + next);
  }

  pan(share) {
    const step = this.span * share;
    this.show(this.low + step, this.high + step);
  }

  reset() {
    this.show(this.least, this.most);
  }
}

// Has a chart drawn when one of the signals says so, and lets the pointer move its window. The
// chart has `layers`, `shared.axis`, a `selection` that its marks show, `hit(x, y)`, `draw()` and
// `drawMarks()`. `plot` is as below; `onClick` and `onHover` get what was hit, and `onHover` null
// for both when the pointer has left.
function bindChart(chart, signals, plot, onClick, onHover) {
  for (const signal of [chart.layers.resized, chart.shared.axis.changed, ...signals]) {
    signal.listen(() => chart.draw());
  }
  const canvas = chart.layers.marks;
  const hit = (event) => chart.hit(event.offsetX, event.offsetY);
  chart.selection = null;
  bindPointer(
    canvas,
    chart.shared.axis,
    plot,
    (range) => {
      chart.selection = range;
      chart.drawMarks();
    },
    (event) => onClick(hit(event)),
  );
  canvas.addEventListener("pointermove", (event) => onHover(hit(event), event));
  canvas.addEventListener("pointerleave", () => onHover(null, null));
}

// Lets the pointer on a canvas move a window: Ctrl and wheel zoom, dragging shows what was dragged
// over, Shift and dragging pans, a double click shows all. `plot` returns the left end and the
// width of the axis on the canvas, `onSelect` gets the dragged range while it grows, then null.
function bindPointer(canvas, axis, plot, onSelect, onClick) {
  let drag = null;
  const valueAt = (x) => {
    const { left, width } = plot();
    return axis.low + ((x - left) / width) * axis.span;
  };
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        axis.zoom(
          Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120),
          valueAt(event.offsetX),
        );
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        axis.pan((event.deltaX || event.deltaY) / 1200);
      }
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = {
      x: event.offsetX,
      y: event.offsetY,
      low: axis.low,
      high: axis.high,
      pans: event.shiftKey,
    };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const moved = event.offsetX - drag.x;
    if (drag.pans) {
      const step = (-moved / plot().width) * (drag.high - drag.low);
      axis.show(drag.low + step, drag.high + step);
    } else if (Math.abs(moved) > 4) {
      onSelect([valueAt(drag.x), valueAt(event.offsetX)].sort((a, b) => a - b));
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { x, pans } = drag;
    drag = null;
    onSelect(null);
    if (pans) return;
    if (Math.abs(event.offsetX - x) > 4) {
      axis.show(...[valueAt(x), valueAt(event.offsetX)].sort((a, b) => a - b));
    } else {
      onClick(event);
    }
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
    onSelect(null);
  });
  canvas.addEventListener("dblclick", () => axis.reset());
}

// Returns what keys do with a window; false for a key that does nothing.
function axisKey(axis, key) {
  const actions = {
    w: () => axis.zoom(0.6),
    "+": () => axis.zoom(0.6),
    "=": () => axis.zoom(0.6),
    s: () => axis.zoom(1 / 0.6),
    "-": () => axis.zoom(1 / 0.6),
    a: () => axis.pan(-0.25),
    ArrowLeft: () => axis.pan(-0.25),
    d: () => axis.pan(0.25),
    ArrowRight: () => axis.pan(0.25),
    0: () => axis.reset(),
    Home: () => axis.reset(),
  };
  const action = actions[key];
  if (action) action();
  return Boolean(action);
}
