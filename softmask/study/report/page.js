// A read-out of the curves under the pointer. The page is complete without it.
for (const chart of document.querySelectorAll("svg[data-read]")) {
  const read = JSON.parse(chart.dataset.read);
  const out = chart.parentElement.querySelector(".readout");
  const cross = document.createElementNS(chart.namespaceURI, "path");
  cross.setAttribute("class", "cross");
  chart.append(cross);
  const idle = "Point at the curves to read their values.";
  out.textContent = idle;
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    let near = 0;
    read.at.forEach((at, k) => { if (Math.abs(at - x) < Math.abs(read.at[near] - x)) near = k; });
    cross.setAttribute("d", `M${read.at[near]} ${read.span[0]}V${read.span[1]}`);
    const values = Object.entries(read.values).filter(([, v]) => v[near] !== null);
    out.textContent = `epoch ${read.epochs[near]}: ` + values.map(([part, v]) => `${part} ${v[near]}`).join(", ");
  });
  chart.addEventListener("pointerleave", () => { cross.setAttribute("d", ""); out.textContent = idle; });
}
