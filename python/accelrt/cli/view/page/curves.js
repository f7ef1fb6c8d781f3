// Replays under several policies: lines of uPlot, and a table of their figures.

const POLICY_HUES = [0, 1, 2, 3, 4, 5];

function replayLine(model, replay, number) {
  const ends = model[`replay${number}_events`];
  const bytes = model[`replay${number}_reserved`];
  return {
    name: `reserved by ${replay.policy}`,
    at: (state) =>
      state === 0 ? 0 : bytes[Math.min(upperBound(ends, state - 1), bytes.length - 1)],
    color: () => cssHue(POLICY_HUES[number % POLICY_HUES.length], Theme.isDark() ? 12 : -14),
    dash: number === 0 ? null : [8 - number * 2, 3],
    isShown: number === 0,
  };
}

class ReplayPanel {
  constructor(view) {
    this.replays = view.head.replays.map((replay, number) => ({
      ...replay,
      number,
      ends: view.columns[`replay${number}_events`],
      live: view.columns[`replay${number}_live`],
      reserved: view.columns[`replay${number}_reserved`],
    }));
    this.holder = h("div", { class: "lines" });
    this.element = h(
      "section",
      { class: "panel replays" },
      h(
        "h2",
        null,
        "Replayed ",
        h(
          "span",
          { class: "caption" },
          "the same requests under each policy; drag to zoom, double click for all",
        ),
      ),
      h(
        "div",
        { class: "columns" },
        this.holder,
        h("div", { class: "scroll figures" }, this.table()),
      ),
    );
    this.resized = new Signal();
    this.resized.listen(() => this.draw());
    new ResizeObserver(() => this.resized.emit()).observe(this.holder);
    Theme.changed.listen(() => this.draw());
  }

  table() {
    const heads = ["Policy", "Peak reserved", "Over peak live", "Page operations", "Per event"];
    return h(
      "table",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          heads.map((head, i) => h("th", { class: i ? "number" : null }, head)),
        ),
      ),
      h(
        "tbody",
        null,
        this.replays.map((replay) => this.row(replay)),
      ),
    );
  }

  row(replay) {
    const name = h(
      "td",
      { class: "name" },
      h("i", {
        class: "swatch",
        style: `background:${cssHue(POLICY_HUES[replay.number % 6])}`,
      }),
      replay.policy,
    );
    if (replay.error) return h("tr", null, name, h("td", { colspan: 4 }, replay.error));
    const ratio = replay.peakReserved / Math.max(replay.peakLive, 1);
    const number = (text, figure, value) =>
      h(
        "td",
        {
          class: "number",
          "data-figure": `${figure} ${replay.policy}`,
          "data-value": value,
        },
        text,
      );
    const failed =
      replay.failedAt === null
        ? null
        : h(
            "tr",
            { class: "bad" },
            h("td", { colspan: 5 }, `ran out of memory at event ${formatCount(replay.failedAt)}`),
          );
    return [
      h(
        "tr",
        null,
        name,
        number(formatBytes(replay.peakReserved), "Peak reserved", replay.peakReserved),
        number(ratio.toFixed(4), "Ratio", ratio.toFixed(4)),
        number(formatCount(replay.pageOperations), "Page operations", replay.pageOperations),
        number(formatNs(replay.nsPerEvent), "Time", replay.nsPerEvent),
      ),
      failed,
    ].filter(Boolean);
  }

  draw() {
    const shown = this.replays.filter((replay) => !replay.error);
    if (!shown.length || !this.holder.clientWidth) return;
    const longest = shown.reduce((a, b) => (b.ends.length > a.ends.length ? b : a));
    const pad = (values) =>
      Array.from(longest.ends, (_, i) => (i < values.length ? values[i] : null));
    const data = [longest.ends, pad(longest.live), ...shown.map((replay) => pad(replay.reserved))];
    const series = [
      { label: "event" },
      lineOf("live", Theme.color("faint"), Theme.color("live-fill")),
      ...shown.map((replay) =>
        lineOf(
          `reserved, ${replay.policy}`,
          cssHue(POLICY_HUES[replay.number % 6], Theme.isDark() ? 8 : -8),
        ),
      ),
    ];
    this.plot?.destroy();
    this.plot = linePlot(this.holder, 250, series, data, (value) => formatCount(value));
  }
}

function lineOf(label, stroke, fill) {
  const value = (_plot, bytes) =>
    bytes === null || bytes === undefined ? "–" : formatBytes(bytes);
  return { label, stroke, fill, width: 1.5, value, points: { show: false } };
}

// A chart of lines over a common axis, in the colours of the page.
function linePlot(holder, height, series, data, formatX) {
  const axis = {
    stroke: Theme.color("faint"),
    grid: { stroke: Theme.color("grid"), width: 1 },
    ticks: { stroke: Theme.color("grid"), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  const splits = (plot, _axis, low, high) =>
    ticks(low, high, byteStep(high - low, plot.bbox.height / devicePixelRatio / 30, high));
  return new uPlot(
    {
      width: holder.clientWidth,
      height,
      series: [
        { ...series[0], value: (_plot, x) => (x === null ? "–" : formatX(x)) },
        ...series.slice(1),
      ],
      scales: {
        x: { time: false },
        y: { range: (_plot, _low, high) => [0, (high || 1) * 1.05] },
      },
      axes: [
        { ...axis, values: (_plot, values) => values.map((value) => formatX(value)) },
        { ...axis, size: 78, splits, values: (_plot, values) => values.map(formatRound) },
      ],
      cursor: { points: { size: 6 } },
    },
    data,
    holder,
  );
}
