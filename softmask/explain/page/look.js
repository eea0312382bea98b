// Colours: those of the pictures that draw.py and molecule.py make.
const BLUES = ["f7fbff", "deebf7", "c6dbef", "9ecae1", "6baed6", "4292c6", "2171b5", "08519c", "08306b"];
const LOOKS = {
  light: { steps: BLUES, paper: "#ffffff", ink: "#1a1d21", soft: "#565d66", edge: "#a8aeb5", faint: "#eceef1", rim: "#8a929b" },
  dark: { steps: ["14171a", ...BLUES.slice(0, -1).reverse()], paper: "#14171a", ink: "#e8eaed", soft: "#a7afb8",
    edge: "#59616a", faint: "#22272c", rim: "#7d858e" },
};
const OUTLINES = [null, "#d55e00", "#009e73", "#cc79a7", "#e69f00"];
const system = matchMedia("(prefers-color-scheme: dark)");
const scales = {};

let themeNow = "light";
const theme = () => themeNow;
const look = () => LOOKS[themeNow];

function setTheme(name) {
  themeNow = name;
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "Light theme" : "Dark theme";
}

// 256 colours of a scale, and whether letters on each are black or white.
function scale(name) {
  if (scales[name]) return scales[name];
  const steps = LOOKS[name].steps.map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const colours = [], letters = [];
  for (let i = 0; i < 256; i++) {
    const at = i / 255 * (steps.length - 1), low = Math.min(Math.floor(at), steps.length - 2);
    const rgb = steps[low].map((c, k) => Math.round(c + (at - low) * (steps[low + 1][k] - c)));
    const linear = rgb.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    colours.push("#" + rgb.map((c) => c.toString(16).padStart(2, "0")).join(""));
    letters.push(light > 0.179 ? "#000000" : "#ffffff");
  }
  return scales[name] = { colours, letters };
}
const step = (value, [low, high]) => Math.round(255 * Math.min(1, Math.max(0, (value - low) / (high - low))));

// From where to where the colours go: 0 to 1, or the values that a graph has. The layers of a graph share their range.
function rangeOf(made, view) {
  if (!state.stretch || view === "effect") return [0, 1];
  made.ranges ??= [[made.importance], made.masks].map((tables) => {
    let low = 1, high = 0;
    for (const table of tables) for (const v of table) { low = Math.min(low, v); high = Math.max(high, v); }
    return high - low < 1e-4 ? [Math.max(0, low - 0.05), Math.min(1, high + 0.05)] : [low, high];
  });
  return made.ranges[view === "importance" ? 0 : 1];
}

// What a view shows of a node: its importance, how far the prediction moves without it, or the mask of a layer.
const valuesOf = (made, view) => view === "importance" ? made.importance : view === "effect" ? made.share : made.masks[view];
const viewName = (view) => ({ importance: "Importance", effect: "Effect", all: "All layers" })[view] ?? `Layer ${view + 1}`;
const wordOf = (view) => typeof view === "number" ? "mask" : view;
// The ends of the scale in words: those of an effect are in the unit of the target.
const endsOf = (made, view) => rangeOf(made, view).map((v) => view === "effect" ? figures(v * made.largest) : hundredths(v));
