// The page: a tab for each view, the theme, the keys, and how long opening took.

const VIEWS = { snapshot: MemoryView, table: MemoryView, profile: ProfileView };

async function startPage() {
  Theme.start();
  const elements = [...document.querySelectorAll('script[type="application/x-accelrt-view"]')];
  const loaded = elements.map(() => null);
  const load = (index) => (loaded[index] ??= loadView(elements[index]));
  const names = elements.map((element) => element.dataset.name);
  const makers = elements.map((_, index) => async () => {
    const view = await load(index);
    return new VIEWS[view.kind](view);
  });
  if (document.documentElement.dataset.compares === "true") {
    names.unshift("comparison");
    makers.unshift(async () => new CompareView(await load(0), await load(1)));
  }
  const holder = document.getElementById("view");
  const opened = makers.map(() => null);
  let current = -1;
  const tabs = names.map((name, index) =>
    h("button", { type: "button", role: "tab", title: name, onclick: () => show(index) }, name),
  );
  async function show(index) {
    if (index === current) return;
    current = index;
    tabs.forEach((tab, i) => tab.setAttribute("aria-selected", String(i === index)));
    const view = (opened[index] ??= await makers[index]());
    if (current === index) holder.replaceChildren(view.element);
  }
  document.getElementById("tabs").replaceChildren(...tabs);
  bindKeys(() => opened[current]);
  bindHelp();
  await show(0);
  // Behind two frames: the first draws what was put in, the second begins when that is there.
  await nextFrame();
  await nextFrame();
  const ms = performance.now();
  document.documentElement.dataset.state = "ready";
  document.documentElement.dataset.openedMs = ms.toFixed(0);
  document.getElementById("timing").textContent = `opened in ${(ms / 1000).toFixed(2)} s`;
}

// Without frames, as in a tab behind others, a while will do.
function nextFrame() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve, 0));
    setTimeout(resolve, 500);
  });
}

function bindKeys(view) {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement && event.target.type === "search";
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // The keys belong to an open dialog: the browser closes it on Escape unless that is prevented.
    if (document.querySelector("dialog[open]")) return;
    if (isTyping && event.key === "Escape") event.target.blur();
    else if (isTyping && event.key !== "Enter") return;
    if (event.key === "?") document.getElementById("help").showModal();
    else if (!view()?.key(event)) return;
    event.preventDefault();
  });
}

function bindHelp() {
  const help = document.getElementById("help");
  const rows = [
    ["drag", "zoom into a range"],
    ["Ctrl + wheel, W, S", "zoom in and out at the pointer or the middle"],
    ["Shift + drag, Shift + wheel, A, D", "move along the axis"],
    ["double click, 0", "everything again"],
    ["click", "details; in a chart of memory it pins the cursor there"],
    ["/", "search"],
    ["Enter", "the next that was found (profiles)"],
    ["Esc", "let go of selection, search and cursor"],
  ];
  help.replaceChildren(
    h("h2", null, "Keys and mouse"),
    h(
      "dl",
      { class: "facts" },
      rows.flatMap(([keys, text]) => [h("dt", null, keys), h("dd", null, text)]),
    ),
    h("form", { method: "dialog" }, h("button", null, "Close")),
  );
  document.getElementById("help-button").addEventListener("click", () => help.showModal());
}

startPage().catch((error) => {
  document.documentElement.dataset.state = "failed";
  document
    .getElementById("view")
    .replaceChildren(h("p", { class: "wait" }, `This page cannot be shown: ${error.message}`));
  throw error;
});
