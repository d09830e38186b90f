// Puts the page together: data first, then what draws it.

async function main() {
  setUpTheme();
  setUpJumps();
  if (typeof DecompressionStream === "undefined") {
    document.getElementById("too-old").hidden = false;
    return;
  }
  const core = await inflated("data-core");
  Object.assign(page, core, { handoffs: frameOf(core.handoffs) });
  page.indexOf = new Map(page.handoffs.handoff_id.map((id, i) => [id, i]));
  page.firstTile = [];
  page.handoffs.tiles.reduce((sum, tiles, i) => ((page.firstTile[i] = sum), sum + tiles), 0);
  Object.assign(state, stateOfAddress());
  setUpFigures();
  if (page.handoffs.n) {
    setUpEdge();
    setUpTable();
    moveByKeys(document.getElementById("timeline"));
    follow(drawPicked);
  }
  for (const follower of followers) follower(state, {});
  page.times.ready = performance.now();
  document.documentElement.dataset.ready = "yes";
}

// All that carries the number of an edge is shown if that edge is, or all are.
function setUpEdge() {
  const select = document.getElementById("edge");
  select.disabled = false;
  select.addEventListener("change", () => show({ edge: select.value === "" ? null : Number(select.value) }));
  follow((now) => {
    select.value = now.edge === null ? "" : String(now.edge);
    const wanted = select.value;
    for (const shown of document.querySelectorAll("[data-edge]")) {
      shown.hidden = wanted !== "" ? shown.dataset.edge !== wanted : shown.dataset.edgeOnly !== undefined;
    }
  });
}

// Links within the page leave the address alone, which says what is shown.
function setUpJumps() {
  for (const link of document.querySelectorAll("a[data-jump]")) {
    link.addEventListener("click", (event) => {
      const target = document.getElementById(link.dataset.jump);
      event.preventDefault();
      target.scrollIntoView();
      target.focus({ preventScroll: true });
    });
  }
}

// For the console, and for tests: what the page holds, and what it draws.
globalThis.gapscope = {
  page, state, table, duration, sizeInBytes, percent, inflated, frameOf, viewAt, timelineSpec, absoluteNs, show,
  indexOf: (id) => page.indexOf.get(id),
};

main().catch((error) => {
  document.getElementById("failed").hidden = false;
  document.getElementById("failed-why").textContent = String(error);
  throw error;
});
