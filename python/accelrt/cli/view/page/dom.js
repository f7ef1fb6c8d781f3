// Elements and signals. Texts of files only ever become text nodes, so none of them is markup.

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined),
  );
  return element;
}

// Calls its listeners, each at most once before the next picture is drawn.
class Signal {
  constructor() {
    this.listeners = [];
    this.isPending = false;
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  emit() {
    if (this.isPending) return;
    this.isPending = true;
    requestAnimationFrame(() => {
      this.isPending = false;
      for (const listener of this.listeners) listener();
    });
  }
}

// A row of figures; tests and people read the same ones.
function tiles(figures) {
  const shown = figures.filter((figure) => figure);
  return h(
    "dl",
    { class: "tiles" },
    shown.map(({ label, name, value, text, note, isBad }) =>
      h(
        "div",
        { class: isBad ? "tile bad" : "tile", title: note },
        h("dt", null, label),
        h("dd", { "data-figure": name ?? label, "data-value": value }, text),
        note ? h("dd", { class: "note" }, note) : null,
      ),
    ),
  );
}

// Buttons of which one is pressed.
function choice(label, options, current, onChoose) {
  const buttons = options.map(([value, text, title]) =>
    h("button", { type: "button", title, "data-value": value }, text),
  );
  const show = (chosen) => {
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(button.dataset.value === chosen));
    }
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      show(button.dataset.value);
      onChoose(button.dataset.value);
    });
  }
  show(current);
  const element = h("span", { class: "choice", role: "group", "aria-label": label }, buttons);
  element.prepend(h("span", { class: "choice-label" }, label));
  element.show = show;
  return element;
}

// Draws what is inside of a rectangle of a canvas.
function drawInside(context, left, top, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  draw();
  context.restore();
}

// Two canvases on each other: what is drawn, and the marks that move with the pointer.
class Layers {
  constructor(className) {
    this.base = h("canvas", { class: "base" });
    this.marks = h("canvas", { class: "marks", tabindex: "0" });
    this.element = h("div", { class: `layers ${className}` }, this.base, this.marks);
    this.resized = new Signal();
    new ResizeObserver(() => this.resized.emit()).observe(this.element);
  }

  // Returns True once for each picture of the browser: several signals may ask for the same one.
  isNewFrame() {
    const frame = document.timeline.currentTime;
    const isNew = frame === null || frame !== this.frame;
    this.frame = frame;
    return isNew;
  }

  // Fits both canvases to the element; returns the size in CSS pixels.
  fit() {
    this.ratio = Math.min(window.devicePixelRatio || 1, 3);
    this.width = Math.max(this.element.clientWidth, 50);
    this.height = Math.max(this.element.clientHeight, 20);
    for (const canvas of [this.base, this.marks]) {
      const width = Math.round(this.width * this.ratio);
      const height = Math.round(this.height * this.ratio);
      if (canvas.width !== width || canvas.height !== height) {
        canvas.width = width;
        canvas.height = height;
      }
    }
  }

  // Returns a cleared context that draws in CSS pixels.
  begin(canvas) {
    const context = canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    return context;
  }
}
