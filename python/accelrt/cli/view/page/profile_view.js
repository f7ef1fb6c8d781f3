// A profile: figures, the tracks, and the names, tracks and the slice that was clicked beside them.

class ProfileView {
  constructor(view) {
    this.model = new ProfileModel(view);
    this.axis = new AxisWindow(0, this.model.last * 1.001 + 1, 20);
    this.marked = new Signal();
    this.marks = null;
    this.selected = -1;
    this.what = "names";
    this.chart = new ProfileChart(this.model, this);
    this.tip = h("div", { class: "tip", hidden: true });
    this.details = h("div", { class: "details" });
    this.heads = h("tr");
    this.body = h("tbody");
    this.caption = h("p", { class: "where" });
    this.element = h(
      "div",
      { class: "profile" },
      tiles(this.figures()),
      h(
        "div",
        { class: "columns fill" },
        h("section", { class: "panel main" }, this.toolbar(), this.chart.element, this.notes()),
        this.side(),
      ),
      this.tip,
    );
    // The table needs all slices of the window: only when it has come to rest.
    this.axis.changed.listen(() => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.drawTable(), 120);
    });
    Theme.changed.listen(() => this.drawTable());
    this.drawTable();
  }

  figures() {
    const { model } = this;
    const tracks = model.slices.filter((count) => count > 0).length;
    const busiest = model.busy.reduce((most, busy) => Math.max(most, busy), 0);
    const share = (part, all) => (all > 0 ? part / all : 0);
    return [
      {
        label: "Duration",
        value: model.last,
        text: formatNs(model.last),
        note: "first to last record",
      },
      {
        label: "Slices",
        value: model.count,
        text: formatCount(model.count),
        note: `of ${counted(model.names.length, "name")}`,
      },
      model.head.dropped > 0 && {
        label: "Records missing",
        value: model.head.dropped,
        text: formatCount(model.head.dropped),
        note: "found no room: not complete",
        isBad: true,
      },
      {
        label: "Tracks",
        value: tracks,
        text: formatCount(tracks),
        note: "streams and threads",
      },
      {
        label: "Busiest track",
        value: busiest,
        text: formatPercent(share(busiest, model.last)),
        note: formatNs(busiest),
      },
      {
        label: "Overlap",
        value: model.overlap,
        text: formatPercent(share(model.overlap, model.covered)),
        note: "two or more streams busy",
      },
      {
        label: "Arrows",
        value: model.columns.arrow_from_time.length,
        text: formatCount(model.columns.arrow_from_time.length),
        note: "records to waits",
      },
    ];
  }

  toolbar() {
    this.box = h("input", {
      type: "search",
      placeholder: "Search names",
      "aria-label": "Search",
      oninput: () => this.applySearch(),
    });
    this.found = h("span", { class: "found" });
    const step = (direction, text, title) =>
      h("button", { type: "button", title, onclick: () => this.goTo(direction) }, text);
    return h(
      "div",
      { class: "toolbar" },
      this.box,
      step(-1, "◂", "Found before (Shift+Enter)"),
      step(1, "▸", "Next found (Enter)"),
      this.found,
      h("span", { class: "space" }),
      h("span", { class: "caption" }, "drag to zoom, double click for all, ? for keys"),
    );
  }

  // What of the file is not in the picture.
  notes() {
    const { skipped, detailsLeftOut } = this.model.head;
    const parts = Object.entries(skipped).map(
      ([phase, count]) =>
        phase === "bad records"
          ? counted(count, "bad record")
          : `${formatCount(count)} of phase ${phase}`,
    );
    if (detailsLeftOut) parts.push(`details of ${counted(detailsLeftOut, "slice")}`);
    return parts.length ? h("p", { class: "legend" }, `Not shown: ${parts.join(", ")}.`) : null;
  }

  side() {
    const kinds = [
      ["names", "Names"],
      ["tracks", "Tracks"],
    ];
    return h(
      "aside",
      { class: "panel side" },
      this.details,
      this.caption,
      choice("", kinds, this.what, (what) => {
        this.what = what;
        this.drawTable();
      }),
      h("div", { class: "scroll" }, h("table", null, h("thead", null, this.heads), this.body)),
    );
  }

  drawTable() {
    const { axis, model } = this;
    const part = axis.isWhole() ? "In all" : `In ${formatNs(axis.span)}`;
    this.caption.replaceChildren(
      h("b", null, part),
      axis.isWhole() ? "" : ` from ${formatNs(axis.low)}`,
    );
    const head = (...names) =>
      this.heads.replaceChildren(
        ...names.map((name, i) => h("th", { class: i ? "number" : null }, name)),
      );
    if (this.what === "tracks") {
      head("Track", "Busy", "Slices");
      const tracks = model.processes.flatMap((process) => process.tracks);
      this.body.replaceChildren(
        ...tracks.map((track) =>
          h(
            "tr",
            { title: track.process, onclick: () => this.chart.reveal(track.number) },
            h("td", { class: "name" }, `${track.process} · ${track.thread}`),
            this.bar(model.busy[track.number], model.last),
            h("td", { class: "number" }, formatCount(model.slices[track.number])),
          ),
        ),
      );
      return;
    }
    head("Name", "Time", "Count", "Mean");
    const names = model.namesIn(axis.low, axis.high);
    const most = names[0]?.time ?? 0;
    this.body.replaceChildren(
      ...names.slice(0, 80).map((sum) =>
        h(
          "tr",
          {
            title: model.names[sum.name],
            onclick: () => this.search(model.names[sum.name]),
          },
          h("td", { class: "name" }, this.swatch(sum.name), model.names[sum.name]),
          this.bar(sum.time, most),
          h("td", { class: "number" }, formatCount(sum.count)),
          h("td", { class: "number" }, formatNs(sum.time / sum.count)),
        ),
      ),
    );
  }

  swatch(name) {
    return h("i", {
      class: "swatch",
      style: `background:${cssHue(this.model.rank[name], -3)}`,
    });
  }

  bar(ns, all) {
    const part = all ? (ns / all) * 100 : 0;
    return h("td", { class: "number bar", style: `--part:${part.toFixed(1)}%` }, formatNs(ns));
  }

  point(hit, event) {
    const content = hit && (hit.slice >= 0 ? this.describe(hit.slice) : [h("div", null, hit.text)]);
    showTip(this.tip, event, content);
  }

  describe(slice) {
    const { model } = this;
    const track = model.head.tracks[model.trackOf(slice)];
    return [
      h("b", null, model.names[model.nameOf[slice]]),
      h("div", null, `${formatNs(model.duration[slice])} from ${formatNs(model.start[slice])}`),
      h("div", { class: "soft" }, `${track.process} · ${track.thread}`),
      ...this.detailRows(slice)
        .slice(0, 6)
        .map(([name, text]) => h("div", { class: "soft" }, `${name}: ${text}`)),
    ];
  }

  detailRows(slice) {
    const text = this.model.head.details[this.model.detailOf[slice]];
    return text
      ? Object.entries(JSON.parse(text)).map(([name, value]) => [name, String(value)])
      : [];
  }

  select(slice) {
    this.selected = slice;
    this.marked.emit();
    if (slice < 0) {
      this.details.replaceChildren();
      return;
    }
    const { model } = this;
    const track = model.head.tracks[model.trackOf(slice)];
    const close = h(
      "button",
      { type: "button", title: "Close (Esc)", onclick: () => this.select(-1) },
      "×",
    );
    const facts = [
      ["Duration", formatNs(model.duration[slice])],
      ["Start", formatNs(model.start[slice])],
      ["Track", `${track.process} · ${track.thread}`],
      ["Arrows", formatCount(model.arrowsOf(slice).length)],
      ...this.detailRows(slice),
    ];
    this.details.replaceChildren(
      h("h2", null, model.names[model.nameOf[slice]], close),
      h(
        "dl",
        { class: "facts" },
        facts.flatMap(([name, text]) => [h("dt", null, name), h("dd", null, text)]),
      ),
    );
  }

  search(text) {
    this.box.value = this.box.value === text ? "" : text;
    this.applySearch();
  }

  applySearch() {
    const found = this.model.matches(this.box.value);
    this.marks = found?.marks ?? null;
    this.found.textContent = found ? `${formatCount(found.count)} found` : "";
    this.marked.emit();
  }

  // Selects the next slice that was found, in time, and brings it into sight.
  goTo(direction) {
    const { model, marks } = this;
    if (!marks || !model.count) return;
    const start = this.selected >= 0 ? this.selected : direction > 0 ? -1 : model.count;
    for (let step = 1; step <= model.count; step += 1) {
      const slice = (start + direction * step + model.count * 2) % model.count;
      if (!marks[model.nameOf[slice]]) continue;
      this.select(slice);
      const middle = model.start[slice] + model.duration[slice] / 2;
      if (middle < this.axis.low || middle > this.axis.high) {
        this.axis.show(middle - this.axis.span / 2, middle + this.axis.span / 2);
      }
      this.chart.reveal(model.trackOf(slice));
      return;
    }
  }

  key(event) {
    if (event.key === "/") this.box.focus();
    else if (event.key === "Enter") this.goTo(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      this.box.value = "";
      this.applySearch();
      this.select(-1);
      this.axis.reset();
    } else return axisKey(this.axis, event.key);
    return true;
  }
}
