// What is shown now, and what the controls do to it.
const state = { shown: [], graph: null, made: null, view: "importance", threshold: 0, node: null, target: 0, stretch: false };
const byId = (id) => document.getElementById(id);
const main = new Drawing(byId("canvas"));
let multiples = [];

function sentence(graph) {
  if (CONTENT.classes) {
    const given = graph.actual === null ? "" : `, class ${className(graph.actual)}`;
    return `predicted ${className(graph.predicted)} (probability ${number(confidence(graph))})${given}`;
  }
  const t = state.target, given = graph.actual === null ? "" : `, actual ${figures(graph.actual[t])}`;
  return `${CONTENT.targets[t]}: predicted ${figures(graph.predicted[t])}${given}`;
}

async function choice(graph) {
  state.graph = graph;
  mark();
  const made = await unpack(graph);
  if (state.graph !== graph) return;
  state.made = made;
  state.node = null;
  byId("name").textContent = nameOf(graph);
  const right = CONTENT.classes ? isRight(graph) : null;
  byId("verdict").replaceChildren(tag("span", { text: sentence(graph) + " " }),
    ...(right === null ? [] : [tag("span", { className: `badge ${right ? "right" : "wrong"}`, text: right ? "right" : "wrong" })]));
  byId("canvas").setAttribute("aria-label", `Drawing of ${nameOf(graph)}, ${nodesOf(graph, graph.nodes)}, ${edgesOf(graph)}`);
  draw();
  showPrediction(graph);
  showHistograms(made);
  showTable(made);
  point(null);
  cut();
}

function draw() {
  const all = state.view === "all";
  byId("canvas").hidden = all;
  byId("multiples").hidden = !all;
  for (const id of ["in", "out", "fit"]) byId(id).disabled = all;
  for (const button of byId("tabs").children) {
    const chosen = button.dataset.view === String(state.view);
    button.setAttribute("aria-selected", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
  }
  if (!state.made) return;
  if (all) {
    if (!multiples.length) startMultiples();
    arrangeMultiples();
    multiples.forEach((drawing, k) => { drawing.resize(); drawing.show(state.graph, state.made, k); });
  } else {
    main.resize();
    if (main.made !== state.made) main.show(state.graph, state.made, state.view);
    main.refresh(state.view);
  }
  legend();
}

function startMultiples() {
  const box = byId("multiples");
  multiples = Array.from({ length: CONTENT.layers }, (_, k) => {
    const inner = tag("div"), outer = tag("div", {}, tag("span", { text: viewName(k) }), inner);
    inner.style.cssText = "position:absolute;inset:1.6rem 0 0";  // below the name, which would hide nodes
    outer.addEventListener("click", () => setView(k));
    box.append(outer);
    const drawing = new Drawing(inner, { zoom: false });
    drawing.onHover = (v) => point(v, drawing);
    return drawing;
  });
}

// As many columns as let this graph be drawn largest.
function arrangeMultiples() {
  const box = byId("multiples"), { x, y } = state.made, layers = CONTENT.layers;
  const span = (values) => values.reduce((a, v) => Math.max(a, v), 0) - values.reduce((a, v) => Math.min(a, v), UNIT) + 60;
  const wide = span(x), high = span(y);
  const size = (columns) => Math.min(box.clientWidth / columns / wide, box.clientHeight / Math.ceil(layers / columns) / high);
  const best = Array.from({ length: layers }, (_, i) => i + 1).reduce((a, b) => size(b) > size(a) ? b : a);
  box.style.gridTemplateColumns = `repeat(${best}, minmax(0, 1fr))`;
}

function repaint() {
  for (const drawing of state.view === "all" ? multiples : [main]) drawing.refresh();
}

function setView(view) {
  state.view = view;
  point(null);
  draw();
}

// The threshold has changed, or the graph.
function cut() {
  const { graph, made, threshold } = state, value = CONTENT.thresholds[threshold];
  byId("threshold").value = threshold;
  byId("limit").textContent = number(value);
  byId("threshold").setAttribute("aria-valuetext", number(value));
  const left = made.stays.reduce((sum, s) => sum + (s > threshold), 0);
  const now = graph.curve[threshold];
  const cutOff = graph.nodes < graph.whole ? ` (the drawing has ${graph.nodes.toLocaleString("en")} of ${nodesOf(graph, graph.whole)}, around the most important one)` : "";
  let said;
  if (CONTENT.classes) {
    const best = now.indexOf(Math.max(...now)), changed = best !== graph.predicted;
    said = `the model says ${CONTENT.classes[best]} with probability ${number(now[best])}${changed ? `, no longer ${CONTENT.classes[graph.predicted]}` : ""}.`;
  } else {
    said = `the model says ${figures(now[state.target])} instead of ${figures(graph.predicted[state.target])}.`;
  }
  byId("kept").textContent = threshold === 0 ? `All ${nodesOf(graph, graph.nodes)} drawn${cutOff}.`
    : `${left.toLocaleString("en")} of ${nodesOf(graph, graph.nodes)} left${cutOff}: ${said}`;
  showCurve(graph);
  repaint();
}

function setThreshold(value) {
  state.threshold = Math.min(CONTENT.thresholds.length - 1, Math.max(0, value));
  if (state.made) cut();
}

function point(v, drawing = state.view === "all" ? multiples[0] : main) {
  state.node = v;
  if (!state.made) return;
  showNode(state.made, v);
  if (drawing) showTip(drawing, v);
  repaint();
}

function nextNode(by) {
  if (!state.made) return;
  const order = state.made.order, at = state.node === null ? (by > 0 ? -1 : order.length) : order.indexOf(state.node);
  point(order[(at + by + order.length) % order.length]);
}

function legend() {
  const bar = shape(null, "svg", { width: 120, height: 10, "aria-hidden": "true" });
  for (let i = 0; i < 60; i++) shape(bar, "rect", { x: 2 * i, width: 2.5, height: 10, fill: scale(theme()).colours[Math.round(255 * i / 59)] });
  const [low, high] = endsOf(state.made, state.view === "all" ? 0 : state.view);
  byId("scale").replaceChildren(tag("span", { text: `${wordOf(state.view === "all" ? 0 : state.view)} ${low}` }), bar, tag("span", { text: high }));
  const parts = [];
  if (CONTENT.roles) CONTENT.roles.forEach((role, r) => {
    const ring = shape(null, "svg", { width: 12, height: 12, "aria-hidden": "true" });
    shape(ring, "circle", { cx: 6, cy: 6, r: 4.5, fill: "none", stroke: OUTLINES[r % OUTLINES.length] || look().rim, "stroke-width": r ? 2.2 : 1 });
    parts.push(tag("span", {}, ring, ` ${role}`));
  });
  const graph = state.graph;
  parts.push(tag("span", { text: `${nodesOf(graph, graph.nodes)}, ${edgesOf(graph)}` }));
  if (graph.nodes < graph.whole) parts.push(tag("span", { text: `of ${nodesOf(graph, graph.whole)}, around the most important one` }));
  byId("legend").replaceChildren(...parts);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=search], select")) return;
  const { key } = event;
  const actions = {
    "j": () => goBy(1), "k": () => goBy(-1), "a": () => setView("all"), "i": () => setView("importance"),
    "e": () => CONTENT.effects && setView("effect"),
    "s": () => byId("stretch").click(), "[": () => setThreshold(state.threshold - 1), "]": () => setThreshold(state.threshold + 1),
    "n": () => nextNode(1), "p": () => nextNode(-1), "Escape": () => point(null),
  };
  // By their buttons, which are off where there is nothing to zoom.
  for (const [id, keys] of [["in", "+="], ["out", "-"], ["fit", "f"]]) for (const k of keys) actions[k] = () => byId(id).click();
  if (event.target === byId("canvas")) Object.assign(actions, {
    "ArrowLeft": () => main.moveBy(-1, 0), "ArrowRight": () => main.moveBy(1, 0),
    "ArrowUp": () => main.moveBy(0, -1), "ArrowDown": () => main.moveBy(0, 1),
  });
  const layer = /^[1-9]$/.test(key) ? Number(key) - 1 : -1;
  if (layer >= 0 && layer < CONTENT.layers) setView(layer);
  else if (actions[key]) actions[key]();
  else return;
  event.preventDefault();
}

function startTabs() {
  const views = [...(CONTENT.effects ? ["effect"] : []), "importance", ...Array.from({ length: CONTENT.layers }, (_, k) => k), "all"];
  byId("tabs").append(...views.map((view) => {
    const button = tag("button", { type: "button", role: "tab", "aria-controls": "view", text: viewName(view) });
    button.dataset.view = view;
    button.addEventListener("click", () => setView(view));
    return button;
  }));
  byId("tabs").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const at = (views.indexOf(state.view) + by + views.length) % views.length;
    setView(views[at]);
    byId("tabs").children[at].focus();
  });
}

function start() {
  setTheme(system.matches ? "dark" : "light");
  const changed = (name) => { setTheme(name); draw(); };
  system.addEventListener("change", (event) => changed(event.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => changed(theme() === "dark" ? "light" : "dark"));
  // Where effects are known they say most: masks of molecules are often alike.
  if (CONTENT.effects) state.view = "effect";
  startTabs();
  startList();
  main.onHover = (v) => point(v);
  byId("threshold").max = CONTENT.thresholds.length - 1;
  byId("threshold").addEventListener("input", (event) => setThreshold(Number(event.target.value)));
  byId("stretch").addEventListener("input", (event) => { state.stretch = event.target.checked; draw(); });
  byId("in").addEventListener("click", () => main.zoomBy(1.25));
  byId("out").addEventListener("click", () => main.zoomBy(0.8));
  byId("fit").addEventListener("click", () => main.fit());
  byId("svg").addEventListener("click", () => downloadSvg(state.graph, state.made, state.view));
  byId("png").addEventListener("click", () => downloadPng(state.graph, state.made, state.view));
  byId("table").addEventListener("toggle", () => state.made && showTable(state.made));
  if (CONTENT.targets && CONTENT.targets.length > 1) {
    byId("by-target").hidden = false;
    byId("target").append(...CONTENT.targets.map((text, t) => tag("option", { value: t, text })));
    byId("target").addEventListener("input", (event) => {
      state.target = Number(event.target.value);
      fillList();
      choice(state.graph);
    });
  }
  document.addEventListener("keydown", onKey);
  fillList();
}
start();
