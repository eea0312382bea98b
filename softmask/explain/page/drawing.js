// The graph on the screen, by force-graph: places are given, nothing moves by itself.
class Drawing {
  constructor(box, { zoom = true } = {}) {
    this.box = box;
    this.nodes = [];
    this.graph = new ForceGraph(box)
      .warmupTicks(0).cooldownTicks(0).enableNodeDrag(false).minZoom(0.01).maxZoom(200)
      // The library would put these into the page as HTML.
      .nodeLabel(() => "").linkLabel(() => "")
      .nodeVal(1).linkWidth(() => this.thin)
      .nodeCanvasObject((node, pen, zoomed) => this.paint(node, pen, zoomed))
      .linkColor((link) => this.both(link) ? look().edge : look().faint)
      .onNodeHover((node) => this.onHover && this.onHover(node ? node.id : null));
    if (!zoom) this.graph.enableZoomInteraction(false).enablePanInteraction(false);
    new ResizeObserver(() => this.resize()).observe(box);
    this.resize();
  }

  resize() {
    const { clientWidth, clientHeight } = this.box;
    if (!clientWidth || !clientHeight) return;
    // Whoever looks at a part keeps it when layer or colours change.
    if (this.graph.width() === clientWidth && this.graph.height() === clientHeight) return;
    this.graph.width(clientWidth).height(clientHeight);
    this.fit();
  }

  show(graph, made, view) {
    this.made = made;
    this.radius = graph.radius;
    this.thin = Math.min(1.4, Math.max(0.3, 22 / Math.sqrt(graph.edges + 1)));
    if (graph.bonds) this.thin = 1.6;
    this.nodes = Array.from(made.x, (x, id) => ({ id, x, y: made.y[id], fx: x, fy: made.y[id] }));
    // The hubs last: their neighbours crowd around them.
    const order = [...this.nodes].sort((a, b) => made.degree[a.id] - made.degree[b.id]);
    const links = Array.from(made.first, (u, e) => ({ source: u, target: made.second[e], bond: made.bond[e] }));
    this.graph.nodeRelSize(this.radius)
      .linkCanvasObjectMode(() => graph.bonds ? "replace" : undefined)
      .linkCanvasObject((link, pen, zoomed) => this.bond(link, pen, zoomed))
      .graphData({ nodes: order, links });
    this.refresh(view);
    this.fit();
  }

  // Colours and threshold have changed, places have not.
  refresh(view = this.view) {
    this.view = view;
    if (this.made) {
      // Once here, not for each node in every frame.
      const values = valuesOf(this.made, view), range = rangeOf(this.made, view);
      this.steps = Array.from(values, (v) => step(v, range));
      this.shades = scale(theme());
    }
    this.graph.backgroundColor(look().paper).linkColor(this.graph.linkColor());
  }

  fit() {
    if (!this.made) return;
    const xs = this.made.x, ys = this.made.y;
    const span = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    const [left, right] = span(xs), [top, bottom] = span(ys), room = 2.6 * this.radius;
    const wide = right - left + room, high = bottom - top + room;
    const pad = Math.min(20, this.box.clientWidth / 16);
    const zoom = Math.min((this.box.clientWidth - 2 * pad) / wide, (this.box.clientHeight - 2 * pad) / high);
    // A few nodes need not fill the screen.
    this.graph.centerAt((left + right) / 2, (top + bottom) / 2).zoom(Math.min(zoom, 26 / this.radius));
  }

  zoomBy(factor) { this.graph.zoom(this.graph.zoom() * factor); }

  moveBy(x, y) {
    const { x: cx, y: cy } = this.graph.centerAt(), by = 40 / this.graph.zoom();
    this.graph.centerAt(cx + x * by, cy + y * by);
  }

  where(v) { return this.graph.graph2ScreenCoords(this.made.x[v], this.made.y[v]); }

  stays(v) { return this.made.stays[v] > state.threshold; }
  both(link) { return this.stays(link.source.id ?? link.source) && this.stays(link.target.id ?? link.target); }

  paint(node, pen, zoomed) {
    const v = node.id, { made } = this, stays = this.stays(v), r = this.radius, colour = this.steps[v];
    pen.globalAlpha = stays ? 1 : 0.13;
    pen.beginPath();
    pen.arc(node.x, node.y, stays ? r : 0.7 * r, 0, 2 * Math.PI);
    pen.fillStyle = this.shades.colours[colour];
    pen.fill();
    const outline = CONTENT.roles ? OUTLINES[made.role[v] % OUTLINES.length] : null, chosen = v === state.node;
    const size = r * zoomed;
    // A node as white as the page is seen by its rim.
    if (chosen || outline || size > 1) {
      pen.lineWidth = Math.min(chosen ? 3 : outline ? 2.2 : 1, chosen ? 3 : size / 3) / zoomed;
      pen.strokeStyle = chosen ? look().ink : outline || look().rim;
      pen.stroke();
    }
    const letters = CONTENT.words ? word(made, v) : "";
    if (stays && letters && letters.length <= 4 && size > 6.5) {
      pen.font = `${(letters.length < 3 ? 1.05 : 0.75) * r}px system-ui, sans-serif`;
      pen.textAlign = "center"; pen.textBaseline = "middle";
      pen.fillStyle = this.shades.letters[colour];
      pen.fillText(letters, node.x, node.y + 0.06 * r);
    }
    pen.globalAlpha = 1;
  }

  // Bonds as chemists draw them; an aromatic one has a broken second line.
  bond(link, pen, zoomed) {
    const { source: a, target: b } = link;
    pen.strokeStyle = this.both(link) ? look().edge : look().faint;
    pen.lineWidth = this.thin / zoomed;
    for (const { x1, y1, x2, y2, broken } of bondLines(a, b, link.bond, this.radius)) {
      pen.setLineDash(broken ? [3.5 / zoomed, 2.5 / zoomed] : []);
      pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke();
    }
    pen.setLineDash([]);
  }
}

function bondLines(a, b, bond, radius) {
  const long = Math.hypot(b.x - a.x, b.y - a.y) || 1, gap = 0.34 * radius;
  const [nx, ny] = [-(b.y - a.y) / long * gap, (b.x - a.x) / long * gap];
  const sides = bond === 2 ? [-0.5, 0.5] : bond === 3 ? [-1, 0, 1] : bond === 12 ? [-0.5, 0.5] : [0];
  return sides.map((s, i) => ({ x1: a.x + s * nx, y1: a.y + s * ny, x2: b.x + s * nx, y2: b.y + s * ny,
    broken: bond === 12 && i === 1 }));
}
