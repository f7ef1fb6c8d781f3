// A snapshot or a table: figures, the chart, what is live at the cursor, segments or replays.

class MemoryAxis extends AxisWindow {
  constructor(model) {
    super(0, model.entries + 1, 4);
    this.model = model;
    this.tickStep = 1;
    this.mode = "entries";
  }

  setMode(mode) {
    this.mode = mode;
    if (mode === "time") {
      // A snapshot is an entry of its own, and may be long after all that it shows.
      const last = this.model.time[Math.max(this.model.head.lastEvent, 0)];
      this.tickStep = 0;
      this.setBounds(0, Math.max(last * 1e3 * 1.002, 1e3), 1e3);
    } else {
      this.tickStep = 1;
      this.setBounds(0, this.model.entries + 1, 4);
    }
  }

  // The state that holds at a value of the axis.
  stateAt(value) {
    if (this.mode === "time") return upperBound(this.model.time, value / 1e3);
    return Math.min(Math.max(Math.floor(value), 0), this.model.entries);
  }

  // Where a state begins.
  valueOf(state) {
    if (this.mode === "time") return state === 0 ? 0 : this.model.time[state - 1] * 1e3;
    return state;
  }

  // Where a moment is, in us since the first entry.
  ofTime(us) {
    return this.mode === "time" ? us * 1e3 : upperBound(this.model.time, us);
  }
}

class MemoryView {
  constructor(view) {
    this.model = new MemoryModel(view);
    this.axis = new MemoryAxis(this.model);
    for (const name of ["colored", "moved", "chosen"]) this[name] = new Signal();
    this.hovered = null;
    this.pinned = null;
    this.selected = -1;
    this.isClipped = false;
    this.colorBy = "site";
    this.lines = this.makeLines();
    this.recolor(null);
    this.chart = new MemoryChart(this.model, this);
    this.side = new MemorySide(this.model, this);
    this.map = this.model.reserved ? new SegmentMap(this.model, this) : null;
    this.curves = view.head.replays?.length ? new ReplayPanel(view) : null;
    this.tip = h("div", { class: "tip", hidden: true });
    this.element = h(
      "div",
      { class: "memory" },
      tiles(this.figures()),
      h(
        "div",
        { class: "columns" },
        h("section", { class: "panel main" }, this.toolbar(), this.chart.element, this.legend()),
        this.side.element,
      ),
      this.map?.element,
      this.curves?.element,
      this.tip,
    );
    Theme.changed.listen(() => this.recolor(this.paint.marks));
    this.side.draw();
  }

  // Lines above the stack: what the device gave, recorded or replayed.
  makeLines() {
    const lines = [];
    const { model } = this;
    if (model.reserved) {
      const isKnown = model.head.segmentEvents.length > 0;
      lines.push({
        name: isKnown ? "reserved" : "reserved at the end",
        at: (state) => model.reserved[state],
        color: () => Theme.color("text"),
        dash: isKnown ? null : [6, 4],
        isShown: true,
      });
    }
    if (model.kind === "table") {
      (model.head.replays ?? []).forEach((replay, number) => {
        if (!replay.error) lines.push(replayLine(model, replay, number));
      });
    }
    return lines;
  }

  figures() {
    const { model } = this;
    const peak = model.total[model.peakState];
    const figure = (label, bytes, note) => ({
      label,
      value: bytes,
      text: formatBytes(bytes),
      note,
    });
    const shortages = model.head.shortages?.length ?? 0;
    return [
      figure("Peak live", peak, `after entry ${formatCount(model.peakState)}`),
      figure(
        "Live at the end",
        model.total[model.entries],
        `of ${counted(model.allocationCount, "allocation")}`,
      ),
      ...this.segmentFigures(figure),
      ...this.replayFigures(figure),
      this.timeFigure(),
      {
        label: "Entries",
        value: model.entries,
        text: formatCount(model.entries),
        note: `${counted(model.count - model.allocationCount, "block")} from before`,
      },
      model.head.dropped > 0 && {
        label: "Entries lost",
        value: model.head.dropped,
        text: formatCount(model.head.dropped),
        note: "older than the first one here",
      },
      shortages > 0 && {
        label: "Out of memory",
        value: shortages,
        text: formatCount(shortages),
        isBad: true,
      },
    ];
  }

  segmentFigures(figure) {
    const { model } = this;
    if (!model.reserved) return [];
    const { block_state: state, block_size: size } = model;
    let [free, largest] = [0, 0];
    for (let i = 0; i < state.length; i += 1) {
      if (state[i] !== 0) continue;
      free += size[i];
      largest = Math.max(largest, size[i]);
    }
    const count = model.head.segments.length;
    let most = 0;
    for (const bytes of model.reserved) most = Math.max(most, bytes);
    const peak = model.total[model.peakState];
    return [
      model.head.segmentEvents.length > 0 &&
        figure("Peak reserved", most, `${(most / Math.max(peak, 1)).toFixed(3)} of peak live`),
      figure("Reserved at the end", model.reservedAtEnd, `in ${counted(count, "segment")}`),
      figure("Free in segments", free, `largest hole ${formatBytes(largest)}`),
    ];
  }

  replayFigures(figure) {
    const replays = this.model.kind === "table" ? (this.model.head.replays ?? []) : [];
    return replays
      .filter((replay) => !replay.error)
      .map((replay) =>
        figure(
          `Reserved by ${replay.policy}`,
          replay.peakReserved,
          `${(replay.peakReserved / Math.max(replay.peakLive, 1)).toFixed(3)} of peak live`,
        ),
      );
  }

  timeFigure() {
    if (!this.model.time) return null;
    const us = this.model.time[this.model.entries - 1];
    return {
      label: "Recorded",
      value: us,
      text: formatNs(us * 1e3),
      note: "first to last entry",
    };
  }

  toolbar() {
    this.box = h("input", {
      type: "search",
      placeholder: this.model.hasStacks ? "Search function, file or tag" : "Search a size",
      "aria-label": "Search",
      oninput: () => this.applySearch(),
    });
    this.found = h("span", { class: "found" });
    const colors = [
      ["site", this.model.hasStacks ? "Call site" : "Size"],
      this.model.hasTags && ["tag", "Tag"],
      ["stream", "Stream"],
      ["one", "Each"],
    ].filter((color) => color);
    const axes = [
      ["entries", "Entries"],
      ["time", "Time"],
    ];
    const clip = h(
      "label",
      null,
      h("input", {
        type: "checkbox",
        onchange: (event) => {
          this.isClipped = event.target.checked;
          this.axis.changed.emit();
        },
      }),
      "cut what stays",
    );
    return h(
      "div",
      { class: "toolbar" },
      this.box,
      this.found,
      h("span", { class: "space" }),
      choice("Colour", colors, this.colorBy, (by) => {
        this.colorBy = by;
        this.drawKeys();
        this.recolor(this.paint.marks);
      }),
      this.model.time
        ? choice("Axis", axes, "entries", (mode) => {
            this.axis.setMode(mode);
          })
        : null,
      h("span", { title: "Leave out the bytes that are live in all of the window" }, clip),
    );
  }

  legend() {
    const lines = this.lines.map((line) => {
      const swatch = h("i", { class: `line${line.dash ? " dashed" : ""}` });
      const box = h("input", {
        type: "checkbox",
        checked: line.isShown,
        onchange: (event) => {
          line.isShown = event.target.checked;
          this.axis.changed.emit();
        },
      });
      const paint = () => swatch.style.setProperty("border-color", line.color());
      Theme.changed.listen(paint);
      paint();
      return h("label", { class: "key" }, box, swatch, line.name);
    });
    this.keys = h("span", { class: "keys" });
    this.drawKeys();
    return h("p", { class: "legend" }, lines, this.keys);
  }

  // The first of what the colours stand for.
  drawKeys() {
    const { rankedSites, rankedTags } = this.model;
    const groups = { site: rankedSites, tag: rankedTags }[this.colorBy] ?? [];
    const keys = groups.slice(0, 6).map(({ text, rank }) =>
      h(
        "button",
        { type: "button", class: "key link", title: text, onclick: () => this.search(text) },
        this.side.swatch(rank),
        text,
      ),
    );
    this.keys.replaceChildren(...keys);
  }

  recolor(marks) {
    const { model } = this;
    const { rankedSites, rankedTags } = model;
    const numbers = { site: rankedSites.length, tag: rankedTags.length }[this.colorBy] ?? 256;
    const plot = pixelOf(Theme.color("plot"));
    // The last shade is grey.
    const grey = Math.min(numbers, 65534);
    const shades = new Uint32Array((grey + 1) * 3);
    for (let number = 0; number <= grey; number += 1) {
      const area = pixelOf(cssHue(number < grey ? number : GREY));
      shades.set([area, mixPixels(area, plot, 0.35), mixPixels(area, plot, 0.82)], number * 3);
    }
    const shadeOf = new Uint16Array(model.count);
    for (let i = 0; i < model.count; i += 1) {
      const hue = this.hueOf(i);
      shadeOf[i] = hue === GREY ? grey : Math.min(hue, grey - 1);
    }
    this.paint = { shades, shadeOf, marks };
    this.colored.emit();
  }

  hueOf(i) {
    if (this.colorBy === "stream") return this.model.stream[i] % 256;
    if (this.colorBy === "one") return (i * 7) % 48;
    if (this.colorBy === "tag") return this.model.tags[this.model.tag[i]].rank;
    return this.model.sites[this.model.site[i]].rank;
  }

  cssOf(i) {
    return cssHue(this.hueOf(i));
  }

  isMarked(i) {
    return this.paint.marks === null || this.paint.marks[i] === 1;
  }

  // The pinned state, else that under the pointer, else null.
  cursor() {
    return this.pinned ?? this.hovered?.state ?? null;
  }

  hover(hit, event) {
    this.hovered = hit;
    this.point(hit, event);
    this.moved.emit();
  }

  point(hit, event) {
    showTip(this.tip, event, hit && this.tipContent(hit));
  }

  tipContent(hit) {
    const { model } = this;
    if (hit.allocation < 0 && !hit.segment) {
      return [
        h("b", null, formatBytes(model.total[hit.state])),
        " live",
        h("br"),
        `after ${counted(hit.state, "entry", "entries")}${this.timeText(hit.state)}`,
      ];
    }
    const segment =
      hit.segment &&
      h(
        "div",
        { class: "soft" },
        `segment of ${formatBytes(hit.segment.size)}, ${hit.segment.class ?? "given back"}` +
          `${hit.segment.isExpandable ? ", expandable" : ""}, ` +
          formatAddress(hit.segment.address),
      );
    if (hit.allocation < 0) return [h("b", null, `${formatBytes(hit.holeBytes)} free`), segment];
    const i = hit.allocation;
    const frames = model.framesOf(model.stack[i]);
    const ofPython = frames.filter(isPythonFrame);
    const shown = (ofPython.length ? ofPython : frames).slice(0, 6);
    return [
      h("b", null, formatBytes(model.size[i])),
      model.isAwaitingFree(i, hit.state) ? " freed, still used by a stream" : "",
      h("div", null, this.side.swatch(this.hueOf(i)), model.sites[model.site[i]].text),
      model.tag[i] ? h("div", { class: "soft" }, `tag: ${model.tags[model.tag[i]].text}`) : "",
      h(
        "ol",
        { class: "frames" },
        shown.map((frame) => h("li", null, frameText(frame))),
      ),
      segment,
    ];
  }

  // A click on an allocation shows it; on nothing it pins the cursor, or lets it go.
  click(hit) {
    if (hit === null) return;
    this.pinned = this.pinned === null || hit.allocation >= 0 ? hit.state : null;
    this.select(hit.allocation >= 0 && hit.allocation !== this.selected ? hit.allocation : -1);
    if (this.selected < 0 && hit.allocation >= 0) this.pinned = null;
    this.moved.emit();
  }

  select(allocation) {
    this.selected = allocation;
    if (allocation < 0) this.applySearch();
    else {
      const marks = new Uint8Array(this.model.count);
      marks[allocation] = 1;
      this.mark(marks);
    }
    this.chosen.emit();
  }

  search(text) {
    this.box.value = this.box.value === text ? "" : text;
    this.applySearch();
  }

  applySearch() {
    const marks = this.model.matches(this.box.value);
    if (marks === null) this.found.textContent = "";
    else {
      const [count, bytes] = this.sum(marks);
      this.found.textContent = `${formatCount(count)} found, ${formatBytes(bytes)} at the peak`;
    }
    this.mark(marks);
  }

  sum(marks) {
    let [count, bytes] = [0, 0];
    for (let i = 0; i < this.model.count; i += 1) {
      if (!marks[i]) continue;
      count += 1;
      if (this.model.isLive(i, this.model.peakState)) bytes += this.model.size[i];
    }
    return [count, bytes];
  }

  mark(marks) {
    this.paint = { ...this.paint, marks };
    this.colored.emit();
  }

  get formatX() {
    return this.axis.mode === "time" ? formatTick : (value) => formatCount(value);
  }

  timeText(state) {
    if (!this.model.time || state === 0) return "";
    return ` (${formatNs(this.model.time[state - 1] * 1e3)})`;
  }

  key(event) {
    if (event.key === "/") this.box.focus();
    else if (event.key === "Escape") {
      this.pinned = null;
      this.box.value = "";
      this.select(-1);
      this.axis.reset();
      this.moved.emit();
    } else return axisKey(this.axis, event.key);
    return true;
  }
}

// Shows a tip beside the pointer, inside of the window; null hides it.
function showTip(tip, event, content) {
  tip.hidden = !content;
  if (!content) return;
  tip.replaceChildren(...content.filter((part) => part));
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left =
    event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  const top = Math.min(event.clientY + 14, innerHeight - height - 6);
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${Math.max(top, 4)}px`;
}
