// A small chart of the last minutes: one or two lines, and a cursor that all charts share. Moved by pointer or arrow keys.

import { timeOfDay } from "./format.js";
import { element } from "./page.js";

const SLOTS = 300; // seconds that are shown
const HEIGHT = 100;
const BRIDGE = 10; // seconds without a value that a line crosses
const charts = new Set();
let cursor = null; // how many seconds ago; null when nobody looks

function shape(tag, className, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  node.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** The smallest of 1, 2, 5, 10, 20, ... (times a power of ten) that is not below the value. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((step) => step * power >= value * (1 - 1e-9));
}

/** The line through all values that are known; what lies alone becomes a dot. */
function trace(values, top) {
  const first = SLOTS - values.length;
  let path = "";
  let last = -Infinity;
  values.forEach((value, index) => {
    if (value === null) return;
    const point = `${first + index + 0.5} ${(HEIGHT - (value / top) * (HEIGHT - 4) - 1).toFixed(1)}`;
    path += index - last > BRIDGE ? `M${point}h.01` : `L${point}`;
    last = index;
  });
  return path;
}

function moveCursor(to) {
  cursor = to === null ? null : Math.min(Math.max(to, 0), SLOTS - 1);
  charts.forEach((redraw) => redraw());
}

function follow(plot) {
  const at = (event) => {
    const box = plot.getBoundingClientRect();
    moveCursor(SLOTS - 1 - Math.floor(((event.clientX - box.left) / box.width) * SLOTS));
  };
  plot.addEventListener("pointermove", at);
  plot.addEventListener("pointerdown", at);
  plot.addEventListener("pointerleave", () => moveCursor(null));
  plot.addEventListener("blur", () => moveCursor(null));
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: 1, ArrowRight: -1, PageUp: 30, PageDown: -30, Home: SLOTS, End: -SLOTS }[event.key];
    if (event.key === "Escape") moveCursor(null);
    if (!step) return;
    event.preventDefault();
    moveCursor((cursor ?? (step > 0 ? -1 : 0)) + step);
  });
}

/** Builds a chart. `names` are those of its lines, empty for a single one; `format` makes text of a value. Returns its node and a
 *  function that shows [values, ...], oldest first, the last at the moment `until` (Unix seconds); null is a value not known. */
export function makeChart({ label, names, format, floor }) {
  const lines = names.map((_, index) => shape("path", `line line-${index}`));
  const area = shape("path", "area");
  const mark = shape("path", "mark");
  const svg = shape("svg", "", { viewBox: `0 0 ${SLOTS} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": true });
  svg.append(shape("path", "rule", { d: `M0 ${HEIGHT - 1}H${SLOTS}M0 3H${SLOTS}` }), area, ...lines.toReversed(), mark);
  const most = element("span", "most");
  const plot = element("div", "plot", svg, most);
  const readout = element("span", "readout");
  const axis = element("p", "axis", element("span", "", "5 min ago"), readout, element("span", "", "now"));
  Object.assign(plot, { role: "slider", tabIndex: 0, ariaLabel: `${label}, the last five minutes`, ariaValueMin: -SLOTS, ariaValueMax: 0 });
  follow(plot);
  let shown = { series: names.map(() => []), until: 0 };

  const redraw = () => {
    const { series, until } = shown;
    const back = cursor ?? 0;
    const texts = series.map((values, index) => {
      const value = values.at(-1 - back) ?? null;
      return [names[index], value === null ? "–" : format(value)].filter(Boolean).join(" ");
    });
    const text = `${timeOfDay(until - back)} · ${texts.join(" · ")}`;
    readout.textContent = cursor === null || !until ? "" : text;
    mark.setAttribute("d", cursor === null ? "" : `M${SLOTS - back - 0.5} 0V${HEIGHT}`);
    axis.classList.toggle("reading", cursor !== null);
    plot.ariaValueNow = -back;
    plot.ariaValueText = until ? text : "no figures yet";
  };
  charts.add(redraw);
  redraw();

  const show = (series, until) => {
    shown = { series: series.map((values) => values.slice(-SLOTS)), until };
    const top = ceiling(Math.max(floor, ...shown.series.flat().filter((value) => value !== null)));
    shown.series.forEach((values, index) => lines[index].setAttribute("d", trace(values, top)));
    const [only] = shown.series;
    const from = SLOTS - only.length + 0.5;
    area.setAttribute("d", names.length === 1 && only.length ? `${trace(only, top)}V${HEIGHT}H${from}Z` : "");
    most.textContent = format(top);
    redraw();
  };
  return { node: element("div", "chart", plot, axis), show };
}
