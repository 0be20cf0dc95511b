// Draws every <figure class="chart"> from the Vega-Lite specification beside it, when it comes near the
// part of the page that is seen: most charts of a page are far below, in other tabs or in closed parts.
//
// Vega's expressions are interpreted from their syntax tree: nothing is evaluated as code, so the
// page's policy needs no exception. The bundle is loaded only where a page has a chart.

const root = document.documentElement;
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const charts = new Map(); // figure -> { spec, begun, result }
const AROUND = 70; // pixels: what a chart's axis and legend add to the height that its specification names
let embed = null;

// What the house style's colours become on a dark page; all others are readable on both.
const DARK = {
  "#2b2b2b": "#e4e6e8", "#e3e3e3": "#363d45", white: "#1b2026", "#ffffff": "#1b2026",
  "#0072b2": "#56b4e9", "#d55e00": "#f58b4c", "#009e73": "#2fc79a", "#555555": "#b9bec4",
  "#882255": "#d98cb3", "#117733": "#63c884", "#b3261e": "#ff8a80", "#46085c": "#c9a0dc", "#3b528b": "#8fa8e8", "#21918c": "#4fc4be",
};

const isDark = () => (root.dataset.theme || (systemDark.matches ? "dark" : "light")) === "dark";

function recoloured(value) {
  if (typeof value === "string") return DARK[value.toLowerCase()] ?? value;
  if (Array.isArray(value)) return value.map(recoloured);
  if (value && typeof value === "object") {
    return Object.fromEntries(
      // Data are left alone: an arm may be called "white".
      Object.entries(value).map(([key, inner]) => [
        key, ["values", "datasets", "domain", "text", "title"].includes(key) ? inner : recoloured(inner),
      ]),
    );
  }
  return value;
}

function config(dark) {
  const ink = dark ? "#d7dade" : "#3a3f45";
  const grid = dark ? "#2f363e" : "#e6e4df";
  const text = { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
  return {
    aria: false,
    background: null,
    font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif",
    axis: { ...text, labelSeparation: 6, gridColor: grid, domainColor: dark ? "#5a636d" : "#b9b5ad", tickColor: grid },
    legend: { ...text, symbolStrokeWidth: 2.5, symbolSize: 140 },
    header: { labelColor: ink, titleColor: ink },
    title: { color: ink, anchor: "start", fontSize: 13 },
    text: { color: ink },
    view: { stroke: null },
    line: { strokeWidth: 2 },
  };
}

// A chart of one panel fills its figure; several panels keep the size they were made with.
function fitted(spec) {
  if (spec.concat || spec.hconcat || spec.vconcat || spec.facet || spec.repeat) return spec;
  return { ...spec, width: "container", autosize: { type: "fit-x", contains: "padding", resize: true } };
}

// On a phone a legend of two columns of names gets one: the second would end beyond the chart.
export function inOneColumn(value) {
  if (Array.isArray(value)) return value.map(inOneColumn);
  if (!value || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => {
    if (key === "datasets" || key === "values") return [key, inner];
    if (key === "legend" && inner?.columns === 2 && inner.labelLimit) return [key, { ...inner, columns: 1, labelLimit: 260 }];
    return [key, inOneColumn(inner)];
  }));
}

async function draw(figure, entry) {
  const vegaEmbed = await embed;
  const dark = isDark();
  const { config: _printed, ...bare } = entry.spec; // the style for paper
  const canvas = figure.querySelector("[data-chart]");
  const shaped = canvas.clientWidth < 420 ? inOneColumn(bare) : bare;
  const wanted = fitted(dark ? recoloured(shaped) : shaped);
  const before = canvas.offsetHeight;
  if (before) canvas.style.minHeight = `${before}px`; // the page does not jump
  const result = await vegaEmbed(canvas, wanted, {
    ast: true, actions: false, renderer: "canvas", defaultStyle: false, mode: "vega-lite",
    config: config(dark), tooltip: { disableDefaultStyle: true },
  });
  entry.result?.finalize();
  entry.result = result;
  if (entry.spec.datasets !== bare.datasets) await fill(entry, entry.spec.datasets); // refilled meanwhile
  canvas.style.minHeight = "";
  canvas.parentElement.style.minHeight = "";
  figure.dataset.drawn = dark ? "dark" : "light";
}

function begin(figure) {
  const entry = charts.get(figure);
  if (entry.begun) return;
  entry.begun = true;
  delete figure.dataset.unseen;
  seen.unobserve(figure);
  draw(figure, entry).catch((error) => {
    figure.dataset.drawn = "failed";
    console.error(error);
  });
}

// What is in a hidden tab or a closed part is never seen, however near it is.
const seen = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    if (isIntersecting) begin(target);
    else if (!charts.get(target).begun) target.dataset.unseen = "";
  }
}, { rootMargin: "400px 0px" });

async function fill(entry, datasets) {
  for (const [name, values] of Object.entries(datasets)) entry.result.view.data(name, structuredClone(values));
  await entry.result.view.runAsync();
}

/** Give a figure other data, dataset by dataset; one that is not drawn yet will be drawn with them. */
export async function refill(figure, datasets) {
  const found = typeof figure === "string" ? document.getElementById(figure) : figure;
  const entry = found && charts.get(found);
  if (!entry) return;
  entry.spec.datasets = { ...entry.spec.datasets, ...datasets };
  if (entry.result) await fill(entry, datasets);
}

/** Draw all charts below an element when they are seen. */
export function drawAll(within = document) {
  for (const figure of within.querySelectorAll("figure.chart")) {
    if (charts.has(figure)) continue;
    embed ??= import("./vega.js").then((module) => module.vegaEmbed); // at once: printing does not wait for it
    const spec = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    if (spec.height > 0) figure.querySelector(".canvas").style.minHeight = `${spec.height + AROUND}px`;
    charts.set(figure, { spec });
    seen.observe(figure);
  }
}

const again = () => { for (const [figure, entry] of charts) if (entry.begun) draw(figure, entry); };
root.addEventListener("themechange", again);
systemDark.addEventListener("change", again);
// On paper all tabs are open. The promises of a drawing are kept before the browser goes on to print.
addEventListener("beforeprint", () => { for (const figure of charts.keys()) begin(figure); });
drawAll();
