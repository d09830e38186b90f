// Figures: those that came with the page are drawn when they come near, and all of them before printing.

const CONFIG = {
  displaylogo: false,
  responsive: true,
  plotlyServerURL: "",
  modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
};
const PAN = 0.2;
const ZOOM = 0.7;
const NARROW_PX = 640;

let figureSpecs = null;

async function drawNamed(place) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  figureSpecs ??= inflated("data-figures");
  const spec = (await figureSpecs)[place.dataset.figure];
  await draw(place, spec);
  if ("picks" in place.dataset) place.on("plotly_click", pickPoint);
}

let plotly = null;

// plotly.js is a third of the work of opening the page: it runs once the page can be read, when a figure comes near.
function loadPlotly() {
  plotly ??= new Promise((resolve) => {
    setTimeout(() => {
      document.head.append(element("script", {}, document.getElementById("plotly").textContent));
      resolve();
    });
  });
  return plotly;
}

async function draw(place, spec) {
  await loadPlotly();
  const data = spec.data.map((trace) => (trace.type === "scattergl" && !hasWebGl() ? thinned(trace) : trace));
  // beside a narrow figure there is no room for a legend; hovering and the tables name what it shows
  const layout = innerWidth < NARROW_PX ? { ...spec.layout, showlegend: false } : spec.layout;
  await Plotly.react(place, data, layout, CONFIG);
}

function pickPoint(event) {
  const id = event.points.find((point) => typeof point.customdata === "string")?.customdata;
  if (id === undefined) return;
  show({ handoff: id });
  document.getElementById("picked").scrollIntoView();
}

function setUpFigures() {
  const places = [...document.querySelectorAll("[data-figure]")];
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) drawNamed(entry.target);
  }, { rootMargin: "400px" });
  for (const place of places) {
    watcher.observe(place);
    moveByKeys(place);
  }
  addEventListener("beforeprint", () => places.forEach(drawNamed));
}

let webGl = null;

function hasWebGl() {
  webGl ??= Boolean(document.createElement("canvas").getContext("webgl"));
  return webGl;
}

const MOST_POINTS = 4000;

// Without WebGL thousands of points make a page that does not move: every so many are left out, and it is said.
function thinned(trace) {
  const n = trace.x.length;
  const step = Math.ceil(n / MOST_POINTS);
  const plain = { ...trace, type: "scatter" };
  if (step === 1) return plain;
  const keep = (values) => (Array.isArray(values) || ArrayBuffer.isView(values) ? [...values].filter((_, i) => i % step === 0) : values);
  for (const name of ["x", "y", "text", "hovertext", "customdata", "ids"]) if (name in plain) plain[name] = keep(plain[name]);
  plain.name = `${plain.name ?? ""} (1 of ${step} drawn: no WebGL)`.trim();
  return plain;
}

// Arrow keys pan a figure in time, plus and minus zoom it, 0 shows all again.
function moveByKeys(place) {
  place.addEventListener("keydown", (event) => {
    const axis = place._fullLayout?.xaxis;
    if (!axis || event.ctrlKey || event.metaKey || event.altKey) return;
    const [low, high] = axis.range.map(Number);
    const length = high - low;
    const moves = {
      ArrowLeft: [low - PAN * length, high - PAN * length],
      ArrowRight: [low + PAN * length, high + PAN * length],
      "+": [low + (1 - ZOOM) / 2 * length, high - (1 - ZOOM) / 2 * length],
      "-": [low - (1 / ZOOM - 1) / 2 * length, high + (1 / ZOOM - 1) / 2 * length],
      0: axis._rangeInitial0 === undefined ? null : [axis._rangeInitial0, axis._rangeInitial1],
    };
    const range = moves[event.key];
    if (!range || !Number.isFinite(length)) return;
    event.preventDefault();
    Plotly.relayout(place, { "xaxis.range": range });
  });
}
