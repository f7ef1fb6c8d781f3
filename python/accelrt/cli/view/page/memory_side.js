// The side of a memory view: what is live at the cursor by size and by call site, and details.

const MOST_ROWS = 60;

class MemorySide {
  constructor(model, shared) {
    this.model = model;
    this.shared = shared;
    this.where = h("p", { class: "where" });
    this.title = h("h2", null);
    this.body = h("tbody");
    this.heads = h("tr");
    this.details = h("div", { class: "details" });
    this.what = "sites";
    const kinds = [
      ["sites", model.hasStacks ? "Call sites" : "Sizes", "Sums over equal places"],
      model.hasTags && ["tags", "Tags", "Sums over equal tags"],
      ["largest", "Largest", "The largest allocations"],
    ].filter((kind) => kind);
    this.element = h(
      "aside",
      { class: "panel side" },
      this.details,
      this.title,
      this.where,
      choice("", kinds, this.what, (what) => {
        this.what = what;
        this.draw();
      }),
      h("div", { class: "scroll" }, h("table", null, h("thead", null, this.heads), this.body)),
    );
    this.drawn = null;
    shared.moved.listen(() => this.draw());
    shared.colored.listen(() => {
      this.drawn = null;
      this.draw();
    });
    shared.chosen.listen(() => this.drawDetails());
  }

  draw() {
    const cursor = this.shared.cursor();
    const state = cursor ?? this.model.peakState;
    const key = `${state} ${this.what} ${this.shared.selected}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const { model } = this;
    const live = model.liveIn(state);
    const bytes = model.total[state];
    const place = cursor === null ? "Live at the peak" : "Live at the cursor";
    this.title.textContent = place;
    this.where.replaceChildren(
      h("b", { "data-figure": place, "data-value": bytes }, formatBytes(bytes)),
      ` in ${counted(live.length, "allocation")}, `,
      state === model.entries ? "at the end" : `after ${counted(state, "entry", "entries")}`,
      this.shared.timeText(state),
      this.shared.pinned === null
        ? ""
        : h("span", { class: "pin" }, " pinned: click again to let go"),
    );
    const label = model.hasStacks ? "Call site" : "Size";
    if (this.what === "sites") this.drawSums(label, model.sitesIn(state), bytes);
    else if (this.what === "tags") this.drawSums("Tag", model.tagsIn(state), bytes);
    else this.drawLargest(live, bytes);
  }

  drawSums(label, sums, bytes) {
    this.heads.replaceChildren(
      h("th", null, label),
      h("th", { class: "number" }, "Live"),
      h("th", { class: "number" }, "Blocks"),
    );
    const rows = sums.slice(0, MOST_ROWS).map(({ group, bytes: part, count }) =>
      h(
        "tr",
        { onclick: () => this.shared.search(group.text), title: group.text },
        h("td", { class: "name" }, this.swatch(group.rank), group.text),
        this.share(part, bytes),
        h("td", { class: "number" }, formatCount(count)),
      ),
    );
    this.body.replaceChildren(...rows);
  }

  drawLargest(live, bytes) {
    const { model } = this;
    this.heads.replaceChildren(
      h("th", null, "Allocation"),
      h("th", { class: "number" }, "Size"),
      h("th", { class: "number" }, "Since"),
    );
    const largest = live.sort((a, b) => model.size[b] - model.size[a]).slice(0, MOST_ROWS);
    const rows = largest.map((i) => {
      const site = model.sites[model.site[i]];
      return h(
        "tr",
        {
          onclick: () => this.shared.select(i),
          title: site.text,
          class: i === this.shared.selected ? "selected" : null,
        },
        h("td", { class: "name" }, this.swatch(this.shared.hueOf(i)), site.text),
        this.share(model.size[i], bytes),
        h("td", { class: "number" }, model.born[i] < 0 ? "before" : formatCount(model.born[i] + 1)),
      );
    });
    this.body.replaceChildren(...rows);
  }

  swatch(hue) {
    return h("i", { class: "swatch", style: `background:${cssHue(hue)}` });
  }

  share(bytes, all) {
    const part = all ? (bytes / all) * 100 : 0;
    return h(
      "td",
      { class: "number bar", style: `--part:${part.toFixed(1)}%` },
      formatBytes(bytes),
    );
  }

  drawDetails() {
    const { selected } = this.shared;
    this.drawn = null;
    this.draw();
    if (selected < 0) {
      this.details.replaceChildren();
      return;
    }
    const close = h(
      "button",
      { type: "button", title: "Close (Esc)", onclick: () => this.shared.select(-1) },
      "×",
    );
    this.details.replaceChildren(
      h("h2", null, `Allocation of ${formatBytes(this.model.size[selected])}`, close),
      h(
        "dl",
        { class: "facts" },
        this.facts(selected).flatMap(([name, text]) => [h("dt", null, name), h("dd", null, text)]),
      ),
      this.frames("Allocated at", this.model.stack[selected]) ?? "",
      this.frames("Freed at", this.model.free_stack[selected]) ?? "",
    );
  }

  facts(i) {
    const { model, shared } = this;
    const bytes = counted(model.size[i], "byte");
    const facts = [
      ["Size", bytes],
      ["Stream", model.head.streams[model.stream[i]] ?? "?"],
    ];
    if (model.address[i]) facts.push(["Address", formatAddress(model.address[i])]);
    if (model.tag[i]) facts.push(["Tag", model.head.tags[model.tag[i]]]);
    const moment = (entry) => `entry ${formatCount(entry + 1)}${shared.timeText(entry + 1)}`;
    facts.push(["Allocated", model.born[i] < 0 ? "before the recording" : moment(model.born[i])]);
    if (model.asked[i] < model.died[i] && model.asked[i] < model.entries) {
      facts.push(["Free asked", moment(model.asked[i])]);
    }
    facts.push([
      "Freed",
      model.died[i] < model.entries ? moment(model.died[i]) : "not in the recording",
    ]);
    return facts;
  }

  frames(title, stack) {
    const frames = this.model.framesOf(stack);
    if (!frames.length) return null;
    const ofPython = frames.filter(isPythonFrame);
    const list = (shown) =>
      h(
        "ol",
        { class: "frames" },
        shown.map((frame) =>
          h(
            "li",
            { title: `${frame[1]}:${frame[2]}` },
            h("b", null, frame[0]),
            " ",
            h("span", null, frameText(["", frame[1], frame[2]])),
          ),
        ),
      );
    const holder = h("div", null, list(ofPython.length ? ofPython : frames));
    const more = frames.length - ofPython.length;
    const all =
      ofPython.length && more
        ? h(
            "button",
            {
              type: "button",
              class: "link",
              onclick: (event) => {
                holder.replaceChildren(list(frames));
                event.currentTarget.remove();
              },
            },
            `frames of C++ too (${formatCount(more)})`,
          )
        : null;
    return h("div", null, h("h3", null, title), holder, all);
  }
}
