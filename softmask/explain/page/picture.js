// The drawing as a file. It is the whole graph, at any size as sharp, with its caption and the scale of colours.
function pictureOf(graph, made, view) {
  const views = view === "all" ? made.masks.map((_, k) => k) : [view];
  const side = views.length > 1 ? 420 : 760, bar = 90, top = 64, margin = 16;
  // As high as the graph is; it is as wide as a panel, or else as high as one.
  const scaling = (side - 24) / (UNIT + 2 * graph.radius);
  const upper = made.y.reduce((a, y) => Math.min(a, y), UNIT), lower = made.y.reduce((a, y) => Math.max(a, y), 0);
  const tallest = Math.max(150, Math.round((lower - upper + 2 * graph.radius) * scaling) + 24);
  const wide = margin + views.length * side + bar, high = top + tallest + margin;
  const colours = look(), root = shape(null, "svg", { xmlns: SVG_SPACE, viewBox: `0 0 ${wide} ${high}`, width: wide, height: high });
  shape(root, "title", {}, `${CONTENT.title}, ${nameOf(graph)}`);
  shape(root, "rect", { width: wide, height: high, fill: colours.paper });
  const words = shape(root, "g", { fill: colours.ink, "font-family": "system-ui, sans-serif", "font-size": 13, "text-anchor": "middle" });
  const short = (text, letters) => text.length > letters ? text.slice(0, letters - 1) + "\u2026" : text;
  const most = Math.floor(wide / 8);
  shape(words, "text", { x: wide / 2, y: 20 }, short(`${CONTENT.title}, ${nameOf(graph)}`, most));
  shape(words, "text", { x: wide / 2, y: 38, fill: colours.soft }, short(sentence(graph), most));
  views.forEach((v, i) => {
    shape(words, "text", { x: margin + (i + 0.5) * side, y: top - 6, "font-size": 12 }, viewName(v));
    const x = margin + (i + 0.5) * side - UNIT / 2 * scaling, y = top + tallest / 2 - (upper + lower) / 2 * scaling;
    panel(shape(root, "g", { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scaling.toFixed(4)})` }), graph, made, v);
  });
  const x = margin + views.length * side + 16, tall = Math.min(300, 0.7 * tallest), y = top + (tallest - tall) / 2;
  const name = wordOf(views[0]);
  for (let i = 0; i < 64; i++)
    shape(root, "rect", { x, y: (y + tall * i / 64).toFixed(1), width: 10, height: (tall / 64 + 0.5).toFixed(1), fill: scale(theme()).colours[255 - 4 * i] });
  shape(root, "rect", { x, y, width: 10, height: tall, fill: "none", stroke: colours.rim });
  endsOf(made, views[0]).forEach((text, part) =>
    shape(words, "text", { x: x + 14, y: y + tall * (1 - part) + 4, "text-anchor": "start", "font-size": 11 }, text));
  shape(words, "text", { x: x - 4, y: y - 9, "text-anchor": "start", "font-size": 11 }, name);
  return { svg: new XMLSerializer().serializeToString(root), wide, high };
}

function panel(group, graph, made, view) {
  const stays = (v) => made.stays[v] > state.threshold, colours = look(), name = theme(), r = graph.radius;
  const values = valuesOf(made, view), range = rangeOf(made, view), at = (v) => ({ x: made.x[v], y: made.y[v] });
  const thin = graph.bonds ? 3 : Math.min(2, Math.max(0.5, 45 / Math.sqrt(graph.edges + 1)));
  // Faded edges below the others.
  for (const kept of [false, true]) {
    const lines = [], broken = [];
    made.first.forEach((u, e) => {
      const v = made.second[e];
      if ((stays(u) && stays(v)) !== kept) return;
      for (const l of bondLines(at(u), at(v), graph.bonds ? made.bond[e] : 1, r))
        (l.broken ? broken : lines).push(`M${l.x1.toFixed(1)} ${l.y1.toFixed(1)}L${l.x2.toFixed(1)} ${l.y2.toFixed(1)}`);
    });
    const look_ = { stroke: kept ? colours.edge : colours.faint, "stroke-width": thin.toFixed(2), fill: "none" };
    if (lines.length) shape(group, "path", { d: lines.join(""), ...look_ });
    if (broken.length) shape(group, "path", { d: broken.join(""), ...look_, "stroke-dasharray": "7 5" });
  }
  const letters = shape(null, "g", { "font-family": "system-ui, sans-serif", "text-anchor": "middle" });
  const order = Array.from(made.degree.keys()).sort((a, b) => stays(a) - stays(b) || made.degree[a] - made.degree[b]);
  for (const v of order) {
    const colour = step(values[v], range), kept = stays(v), outline = CONTENT.roles ? OUTLINES[made.role[v] % OUTLINES.length] : null;
    const mark = shape(group, "circle", { cx: made.x[v].toFixed(1), cy: made.y[v].toFixed(1), r: (kept ? r : 0.7 * r).toFixed(2),
      fill: scale(name).colours[colour], stroke: outline || colours.rim, "stroke-width": ((outline ? 0.16 : 0.08) * r).toFixed(2) });
    if (!kept) mark.setAttribute("opacity", "0.13");
    const text = CONTENT.words ? word(made, v) : "";
    shape(mark, "title", {}, `node ${made.own[v]}${text ? `, label ${text}` : ""}, ${view === "effect" ? `without it ${signed(made.effect[v])}` : `${wordOf(view)} ${number(values[v])}`}`);
    if (kept && text && text.length <= 4 && r >= 8) {
      const size = (text.length < 3 ? 1.05 : 0.75) * r;
      shape(letters, "text", { x: made.x[v].toFixed(1), y: (made.y[v] + 0.36 * size).toFixed(1), "font-size": size.toFixed(1), fill: scale(name).letters[colour] }, text);
    }
  }
  group.append(letters);
}

function fileName(graph, view, ending) {
  const what = typeof view === "number" ? `layer-${view + 1}` : view === "all" ? "all-layers" : view;
  return `graph-${graph.number}-${what}.${ending}`;
}

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  tag("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

async function downloadSvg(graph, made, view) {
  const { svg } = pictureOf(graph, made, view);
  download(new Blob([svg], { type: "image/svg+xml" }), fileName(graph, view, "svg"));
}

async function downloadPng(graph, made, view) {
  const { svg, wide, high } = pictureOf(graph, made, view);
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
  await image.decode();
  const canvas = tag("canvas", { width: 2 * wide, height: 2 * high });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => download(blob, fileName(graph, view, "png")), "image/png");
}
