// The list of graphs: filters, order, choice.
const list = document.getElementById("graphs");
const choose = { class: document.getElementById("class"), right: document.getElementById("right"),
  sort: document.getElementById("sort"), find: document.getElementById("find") };
const known = CONTENT.graphs.some((g) => g.actual !== null);

const ORDERS = CONTENT.classes ? {
  "number": (a, b) => a.number - b.number,
  "least confident": (a, b) => confidence(a) - confidence(b),
  "most confident": (a, b) => confidence(b) - confidence(a),
} : {
  "number": (a, b) => a.number - b.number,
  "largest prediction": (a, b) => b.predicted[state.target] - a.predicted[state.target],
  "smallest prediction": (a, b) => a.predicted[state.target] - b.predicted[state.target],
  ...(known ? { "largest error": (a, b) => error(b) - error(a) } : {}),
};
Object.assign(ORDERS, { "largest": (a, b) => b.whole - a.whole, "smallest": (a, b) => a.whole - b.whole });

function startList() {
  choose.sort.replaceChildren(...Object.keys(ORDERS).map((name) => tag("option", { value: name, text: name })));
  document.getElementById("by-class").hidden = !CONTENT.classes;
  document.getElementById("by-right").hidden = !CONTENT.classes || !known;
  const what = known ? "is" : "predicted";
  choose.class.replaceChildren(tag("option", { value: "", text: "all" }),
    ...(CONTENT.classes || []).map((text, c) => tag("option", { value: String(c), text: known ? text : `${what} ${text}` })));
  for (const input of Object.values(choose)) input.addEventListener("input", fillList);
  list.addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item) choice(state.shown[[...list.children].indexOf(item)]);
  });
  list.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    goBy(by);
  });
}

function fillList() {
  const find = choose.find.value.trim().toLowerCase();
  state.shown = CONTENT.graphs.filter((g) =>
    (choose.class.value === "" || String(known ? g.actual : g.predicted) === choose.class.value)
    && (choose.right.value === "" || isRight(g) === (choose.right.value === "1"))
    && (!find || `${g.name} graph ${g.number}`.toLowerCase().includes(find)));
  state.shown.sort((a, b) => ORDERS[choose.sort.value](a, b) || a.number - b.number);
  list.replaceChildren(...state.shown.map(item));
  const all = CONTENT.graphs.length;
  document.getElementById("count").textContent = state.shown.length === all
    ? plural(all, "graph") : `${state.shown.length.toLocaleString("en")} of ${plural(all, "graph")}`;
  if (state.shown.length && !state.shown.includes(state.graph)) choice(state.shown[0]);
  else mark();
}

function item(graph, place) {
  const right = CONTENT.classes ? isRight(graph) : null;
  const given = graph.actual === null ? "" : ` (actual ${figures([graph.actual].flat()[state.target])})`;
  const said = CONTENT.classes ? `${className(graph.predicted)}, ${number(confidence(graph))}`
    : `${figures(graph.predicted[state.target])}${given}`;
  const sign = right === null ? "" : right ? "\u2713 right" : "\u2717 wrong";
  return tag("li", { role: "option", id: `item-${place}`, "aria-selected": "false" },
    tag("span", { className: "facts" }, tag("b", { text: nameOf(graph), title: nameOf(graph) }),
      tag("span", { className: "end", text: nodesOf(graph, graph.whole) })),
    tag("span", { className: "facts" }, tag("span", { text: said }),
      tag("span", { className: `end ${right ? "right" : "wrong"}`, text: sign })));
}

function mark() {
  [...list.children].forEach((li, i) => li.setAttribute("aria-selected", String(state.shown[i] === state.graph)));
  const chosen = list.querySelector('[aria-selected="true"]');
  if (!chosen) return list.removeAttribute("aria-activedescendant");
  list.setAttribute("aria-activedescendant", chosen.id);
  // Within the list only: the page itself must not jump.
  const top = chosen.offsetTop - list.offsetTop, end = top + chosen.offsetHeight;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (end > list.scrollTop + list.clientHeight) list.scrollTop = end - list.clientHeight;
}

function goBy(by) {
  if (!state.shown.length) return;
  const at = state.shown.indexOf(state.graph) + by;
  choice(state.shown[Math.min(state.shown.length - 1, Math.max(0, at))]);
}
