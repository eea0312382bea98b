// The panels beside the graph: probabilities, the curve over thresholds, one node, histograms, a table.
function level(name, value, text, said) {
  const bar = tag("i");
  bar.style.width = `${(100 * value).toFixed(1)}%`;
  return tag("div", { className: said ? "level said" : "level" }, tag("span", { text: name, title: name }),
    tag("span", { className: "meter", "aria-hidden": "true" }, bar), tag("span", { text }));
}

function showPrediction(graph) {
  const bars = document.getElementById("bars");
  if (!CONTENT.classes) {
    const t = state.target, row = (name, values) =>
      tag("div", { className: "level" }, tag("span", { text: name }), tag("span"), tag("span", { text: figures(values[t]) }));
    bars.replaceChildren(row("predicted", graph.predicted), ...(graph.actual ? [row("actual", graph.actual)] : []));
    return;
  }
  const order = graph.probabilities.map((_, c) => c).sort((a, b) => graph.probabilities[b] - graph.probabilities[a]);
  bars.replaceChildren(...order.slice(0, 8).map((c) =>
    level(CONTENT.classes[c], graph.probabilities[c], number(graph.probabilities[c]), c === graph.predicted)));
}

function showCurve(graph) {
  const box = document.getElementById("curve"), out = CONTENT.classes ? graph.predicted : state.target;
  document.getElementById("curve-name").textContent = CONTENT.classes
    ? `Probability of ${CONTENT.classes[out]} over the threshold` : `${CONTENT.targets[out]} over the threshold`;
  const values = graph.curve.map((row) => row[out]);
  let [low, high] = CONTENT.classes ? [0, 1] : [Math.min(...values), Math.max(...values)];
  if (high - low < 1e-9) { low -= 0.5; high += 0.5; }
  const wide = 240, tall = 92, left = CONTENT.classes ? 24 : 52, bottom = 16;
  const x = (i) => left + (wide - left - 6) * i / (values.length - 1), y = (v) => 6 + (tall - bottom - 6) * (high - v) / (high - low);
  const chart = shape(null, "svg", { class: "chart", viewBox: `0 0 ${wide} ${tall}`, role: "img",
    "aria-label": `from ${figures(values[0])} with all nodes to ${figures(values.at(-1))} with the most important ones only` });
  for (const v of [low, high]) {
    shape(chart, "path", { class: "base", d: `M${left} ${y(v)}H${wide - 6}` });
    shape(chart, "text", { x: left - 4, y: y(v) + 4, "text-anchor": "end" }, CONTENT.classes ? String(v) : figures(v));
  }
  for (const t of [0, 0.5, 1]) shape(chart, "text", { x: x(t * (values.length - 1)), y: tall - 2, "text-anchor": "middle" }, String(t));
  shape(chart, "path", { class: "line", d: values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join("") });
  const now = state.threshold;
  shape(chart, "path", { class: "mark", d: `M${x(now)} 4V${tall - bottom}` });
  shape(chart, "circle", { class: "dot", cx: x(now), cy: y(values[now]), r: 4 });
  box.replaceChildren(chart);
}

function nodeFacts(made, v) {
  const label = word(made, v);
  const facts = [["importance", number(made.importance[v]), made.importance[v]],
    ...(made.effect ? [["without it", signed(made.effect[v]), made.share[v]]] : []),
    ...made.masks.map((m, k) => [`layer ${k + 1}`, number(m[v]), m[v]])];
  const name = state.graph.bonds ? [`Atom ${made.own[v]}`, label] : [`Node ${made.own[v]}`, label && `label ${label}`];
  const head = [...name, CONTENT.roles && CONTENT.roles[made.role[v]],
    plural(made.degree[v], "neighbour")].filter(Boolean).join(", ");
  return { head, facts };
}

function showNode(made, v) {
  const box = document.getElementById("node");
  if (v === null) {
    box.replaceChildren(tag("p", { className: "soft", text: `Point at ${state.graph.bonds ? "an atom" : "a node"}, or press n for the most important one.` }));
    return;
  }
  const { head, facts } = nodeFacts(made, v);
  box.replaceChildren(tag("p", { text: head }), ...facts.map(([name, text, value]) => level(name, value, text)));
}

function showTip(drawing, v) {
  const tip = document.getElementById("tip");
  tip.hidden = v === null;
  if (v === null) return;
  const { head, facts } = nodeFacts(drawing.made, v);
  tip.replaceChildren(tag("strong", { text: head }), ...facts.map(([name, text]) => tag("div", { text: `${name} ${text}` })));
  const view = document.getElementById("view").getBoundingClientRect(), box = drawing.box.getBoundingClientRect();
  const at = drawing.where(v), x = at.x + box.left - view.left, y = at.y + box.top - view.top;
  const { offsetWidth: wide, offsetHeight: tall } = tip;
  tip.style.left = `${Math.max(4, x + 14 + wide > view.width ? x - wide - 14 : x + 14)}px`;
  tip.style.top = `${Math.max(4, Math.min(y - tall / 2, view.height - tall - 4))}px`;
}

function showHistograms(made) {
  const bins = 20, wide = 240, tall = 56, bottom = 15;
  document.getElementById("histograms").replaceChildren(...made.masks.map((mask, k) => {
    const counts = new Array(bins).fill(0);
    for (const m of mask) counts[Math.min(bins - 1, Math.floor(m * bins))]++;
    const most = Math.max(...counts), each = wide / bins;
    const mean = mask.reduce((a, b) => a + b, 0) / mask.length;
    const chart = shape(null, "svg", { class: "chart", viewBox: `0 0 ${wide} ${tall}`, role: "img",
      "aria-label": `Layer ${k + 1}: mean mask ${number(mean)}` });
    counts.forEach((c, b) => {
      const high = c ? Math.max(1, (tall - bottom) * c / most) : 0;
      const bar = shape(chart, "rect", { x: b * each + 0.5, y: tall - bottom - high, width: each - 1, height: high });
      shape(bar, "title", {}, `${plural(c, "node")} from ${number(b / bins)} to ${number((b + 1) / bins)}`);
    });
    shape(chart, "path", { class: "base", d: `M0 ${tall - bottom}H${wide}` });
    for (const [value, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]])
      shape(chart, "text", { x: value * wide, y: tall - 3, "text-anchor": anchor }, String(value));
    return tag("div", {}, tag("h4", { text: `Layer ${k + 1}, mean ${number(mean)}` }), chart);
  }));
}

function showTable(made) {
  const details = document.getElementById("table");
  if (!details.open) return;
  const head = ["node", ...(CONTENT.words ? ["label"] : []), ...(CONTENT.roles ? ["role"] : []), "neighbours", "importance",
    ...made.masks.map((_, k) => `layer ${k + 1}`)];
  const rows = made.order.slice(0, 100).map((v) => tag("tr", {}, tag("th", { scope: "row", text: made.own[v] }),
    ...[...(CONTENT.words ? [word(made, v)] : []), ...(CONTENT.roles ? [CONTENT.roles[made.role[v]]] : []), made.degree[v],
      number(made.importance[v]), ...made.masks.map((m) => number(m[v]))].map((text) => tag("td", { text }))));
  details.querySelector(".scroll").replaceChildren(tag("table", {},
    tag("thead", {}, tag("tr", {}, ...head.map((text) => tag("th", { scope: "col", text })))), tag("tbody", {}, ...rows)));
}
