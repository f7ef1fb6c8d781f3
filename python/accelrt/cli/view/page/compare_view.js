// Two snapshots or tables beside each other: figures, live bytes over their course, and what each
// call site holds in both, the largest differences first.

const COURSE_POINTS = 1000;

class CompareView {
  constructor(before, after) {
    this.models = [new MemoryModel(before), new MemoryModel(after)];
    this.when = "peak";
    this.by = "line";
    this.holder = h("div", { class: "lines" });
    this.heads = h("tr");
    this.body = h("tbody");
    this.caption = h("p", { class: "where" });
    this.box = h("input", {
      type: "search",
      placeholder: "Search function or file",
      "aria-label": "Search",
      oninput: () => this.drawTable(),
    });
    this.element = h(
      "div",
      { class: "compare" },
      h("p", { class: "names" }, this.name(0), this.name(1)),
      tiles(this.figures()),
      h(
        "section",
        { class: "panel" },
        h("h2", null, "Live bytes over each recording"),
        this.holder,
      ),
      h(
        "section",
        { class: "panel wide" },
        h("h2", null, "What holds the memory"),
        this.toolbar(),
        this.caption,
        h("div", { class: "scroll" }, h("table", null, h("thead", null, this.heads), this.body)),
      ),
    );
    this.resized = new Signal();
    this.resized.listen(() => this.drawCourse());
    new ResizeObserver(() => this.resized.emit()).observe(this.holder);
    Theme.changed.listen(() => this.drawCourse());
    this.drawTable();
  }

  name(side) {
    return h(
      "span",
      { class: "key" },
      h("i", { class: "swatch", style: `background:${cssHue(side)}` }),
      h("b", null, "AB"[side]),
      this.models[side].name,
    );
  }

  figures() {
    const [a, b] = this.models;
    const pair = (label, first, second) => ({
      label: `${label}, B − A`,
      name: `${label}, B - A`,
      value: second - first,
      text: difference(second - first),
      note: `A ${formatBytes(first)}, B ${formatBytes(second)}`,
    });
    const shown = [
      pair("Peak live", a.total[a.peakState], b.total[b.peakState]),
      pair("Live at the end", a.total[a.entries], b.total[b.entries]),
    ];
    if (a.reserved && b.reserved) {
      shown.push(pair("Reserved at the end", a.reservedAtEnd, b.reservedAtEnd));
    }
    const counts = [a.allocationCount, b.allocationCount];
    const more = counts[1] - counts[0];
    shown.push({
      label: "Allocations, B − A",
      value: more,
      text: `${more > 0 ? "+" : ""}${formatCount(more).replace("-", "−")}`,
      note: `A ${formatCount(counts[0])}, B ${formatCount(counts[1])}`,
    });
    return shown;
  }

  toolbar() {
    const again = (name) => (value) => {
      this[name] = value;
      this.drawTable();
    };
    const whens = [
      ["peak", "at the peak"],
      ["end", "at the end"],
    ];
    const bys = [
      ["line", "line"],
      ["function", "function", "Lines move between versions of a program"],
    ];
    return h(
      "div",
      { class: "toolbar" },
      this.box,
      h("span", { class: "space" }),
      choice("Live", whens, this.when, again("when")),
      choice("By", bys, this.by, again("by")),
    );
  }

  // Each recording from its beginning to its end, whatever their lengths: peaks of equal parts.
  drawCourse() {
    if (!this.holder.clientWidth) return;
    const courses = this.models.map((model) => {
      const axis = {
        low: 0,
        span: model.entries + 1,
        stateAt: (x) => Math.min(Math.floor(x), model.entries),
      };
      return Array.from(columnStates(model, axis, COURSE_POINTS), (state) => model.total[state]);
    });
    const shares = Array.from({ length: COURSE_POINTS }, (_, i) => (i + 0.5) / COURSE_POINTS);
    const series = [
      { label: "part of the recording" },
      ...this.models.map((_, side) => lineOf("AB"[side], cssHue(side, Theme.isDark() ? 8 : -6))),
    ];
    this.plot?.destroy();
    this.plot = linePlot(
      this.holder,
      210,
      series,
      [shares, ...courses],
      (share) => `${(share * 100).toFixed(0)} %`,
    );
  }

  // For each site its live bytes and blocks in both.
  rows() {
    const rows = new Map();
    this.models.forEach((model, side) => {
      const state = this.when === "peak" ? model.peakState : model.entries;
      for (const { group: site, bytes, count } of model.sitesIn(state)) {
        const key = this.by === "line" ? site.text : site.text.replace(/:\d+$/, "");
        if (!rows.has(key)) rows.set(key, { key, bytes: [0, 0], count: [0, 0] });
        rows.get(key).bytes[side] += bytes;
        rows.get(key).count[side] += count;
      }
    });
    const words = this.box.value.trim().toLowerCase();
    return [...rows.values()]
      .filter((row) => row.key.toLowerCase().includes(words))
      .sort(
        (a, b) =>
          Math.abs(b.bytes[1] - b.bytes[0]) - Math.abs(a.bytes[1] - a.bytes[0]) ||
          b.bytes[1] - a.bytes[1],
      );
  }

  drawTable() {
    const heads = ["Call site", "A", "B", "B − A", "Blocks A", "Blocks B"];
    if (!this.models.some((model) => model.hasStacks)) heads[0] = "Size";
    this.heads.replaceChildren(
      ...heads.map((head, i) => h("th", { class: i ? "number" : null }, head)),
    );
    const rows = this.rows();
    const most = Math.max(...rows.map((row) => Math.abs(row.bytes[1] - row.bytes[0])), 1);
    this.caption.textContent = `${counted(rows.length, "place")}, the largest differences first`;
    this.body.replaceChildren(
      ...rows.slice(0, 200).map((row) => {
        const more = row.bytes[1] - row.bytes[0];
        const style = `--part:${((Math.abs(more) / most) * 100).toFixed(1)}%`;
        return h(
          "tr",
          null,
          h("td", { class: "name" }, row.key),
          row.bytes.map((bytes) => h("td", { class: "number" }, bytes ? formatBytes(bytes) : "–")),
          h(
            "td",
            {
              class: `number bar ${more > 0 ? "up" : more < 0 ? "down" : ""}`,
              style,
              "data-value": more,
            },
            more ? difference(more) : "=",
          ),
          row.count.map((count) => h("td", { class: "number" }, formatCount(count))),
        );
      }),
    );
  }

  key(event) {
    if (event.key === "/") this.box.focus();
    else if (event.key === "Escape") {
      this.box.value = "";
      this.drawTable();
    } else return false;
    return true;
  }
}

function difference(bytes) {
  return `${bytes > 0 ? "+" : ""}${formatBytes(bytes)}`;
}
