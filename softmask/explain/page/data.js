// What the page is about, and how a graph is unpacked: see pack.py.
const CONTENT = JSON.parse(document.getElementById("content").textContent);
const FULL = 65535, UNIT = 1000;
const unpacked = new Map();

async function unpack(graph) {
  if (unpacked.has(graph)) return unpacked.get(graph);
  const bytes = Uint8Array.from(atob(graph.packed), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const flat = new Uint16Array(await new Response(stream).arrayBuffer());
  let at = 0;
  const take = (count) => flat.subarray(at, at += count);
  const scaled = (values, factor) => Float32Array.from(values, (v) => v / FULL * factor);
  const n = graph.nodes;
  const made = {
    x: scaled(take(n), UNIT), y: scaled(take(n), UNIT), importance: scaled(take(n), 1), stays: take(n), label: take(n),
    role: take(n),
  };
  const whole = (low, high) => Uint32Array.from(low, (v, i) => v + 65536 * high[i]);
  made.own = whole(take(n), take(n));
  made.degree = whole(take(n), take(n));
  made.masks = Array.from({ length: CONTENT.layers }, () => scaled(take(n), 1));
  const first = Uint16Array.from(take(graph.edges));
  for (let e = 1; e < first.length; e++) first[e] += first[e - 1];
  made.first = first;
  made.second = take(graph.edges);
  made.bond = take(graph.edges);
  made.order = Array.from(made.importance.keys()).sort((a, b) => made.importance[b] - made.importance[a] || a - b);
  if (graph.effect) {
    made.effect = graph.effect;
    made.largest = Math.max(...graph.effect.map(Math.abs), 1e-30);
    made.share = Float32Array.from(graph.effect, (v) => Math.abs(v) / made.largest);
  }
  unpacked.set(graph, made);
  return made;
}

const word = (made, v) => CONTENT.words ? CONTENT.words[made.label[v]] : "";
const number = (value) => value.toFixed(2);
const hundredths = (value) => String(Number(value.toFixed(2)));
const figures = (value) => Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
  ? value.toExponential(2) : String(Number(value.toPrecision(4)));
const signed = (value) => (value > 0 ? "+" : "") + figures(value);
const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
// Molecules have atoms and bonds, other graphs nodes and edges.
const nodesOf = (graph, count) => plural(count, graph.bonds ? "atom" : "node");
const edgesOf = (graph) => plural(graph.edges, graph.bonds ? "bond" : "edge");
const nameOf = (graph) => graph.name || `Graph ${graph.number}`;

// The probability of the predicted class, or the predicted number.
const className = (value) => typeof value === "number" ? CONTENT.classes[value] : value;
const isRight = (graph) => graph.actual === null ? null : graph.actual === graph.predicted;
const confidence = (graph) => graph.probabilities[graph.predicted];
const error = (graph) => graph.actual === null ? 0 : Math.abs(graph.predicted[state.target] - graph.actual[state.target]);

function tag(name, options = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") made.textContent = value;
    else if (key.includes("-") || key === "role") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...inside);
  return made;
}

const SVG_SPACE = "http://www.w3.org/2000/svg";
function shape(parent, name, attributes, text) {
  const made = document.createElementNS(SVG_SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}
