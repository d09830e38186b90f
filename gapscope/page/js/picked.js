// The picked handoff: its timeline, and below it the same numbers as tables.

const blocks = { tiles: null, context: null };
const TOP_PX = 64; // the names of the events
const picked = { index: null, view: null };

// The picked handoff; before any is picked the longest counted gap of the chosen edge, else the first handoff.
function pickedIndex() {
  const named = page.indexOf.get(state.handoff);
  if (named !== undefined) return named;
  const h = page.handoffs;
  let best = null;
  for (let i = 0; i < h.n; i += 1) {
    if (state.edge !== null && h.edge[i] !== state.edge) continue;
    if (best === null || rankOf(h, i) > rankOf(h, best)) best = i;
  }
  return best;
}

function rankOf(h, i) {
  return (h.counted[i] ? 1e18 : 0) + Number(h.gap_ns[i] ?? -1);
}

function pickedId() {
  const i = pickedIndex();
  return i === null ? null : page.handoffs.handoff_id[i];
}

async function tilesOf(i) {
  blocks.tiles ??= inflated("data-tiles").then(frameOf);
  const frame = await blocks.tiles;
  const h = page.handoffs;
  const tiles = [];
  let at = h.first_tile_ns[i] === null ? 0 : Number(h.first_tile_ns[i]);
  for (let t = page.firstTile[i]; t < page.firstTile[i] + h.tiles[i]; t += 1) {
    const tile = rowOf(frame, t);
    tile.start = at;
    at += tile.duration_ns;
    tile.end = at;
    tiles.push(tile);
  }
  return tiles;
}

async function contextOf() {
  blocks.context ??= inflated("data-context").then((packed) => ({ lanes: frameOf(packed.lanes), items: frameOf(packed.items) }));
  return blocks.context;
}

async function viewAt(i) {
  const handoff = rowOf(page.handoffs, i);
  return viewOf(handoff, await tilesOf(i), handoff.context ? await contextOf() : null);
}

async function drawPicked() {
  const section = document.getElementById("picked");
  const i = pickedIndex();
  if (i === null || i === picked.index) return;
  picked.index = i;
  section.dataset.state = "drawing";
  const view = await viewAt(i);
  if (picked.index !== i) return; // another one was picked meanwhile
  picked.view = view;
  document.getElementById("picked-title").textContent = titleOf(view.handoff);
  document.getElementById("picked-about").textContent = subtitleOf(view);
  document.getElementById("picked-notes").replaceChildren(...notesOf(view).map((note) => element("p", {}, note)));
  const place = document.getElementById("timeline");
  const spec = timelineSpec(view);
  delete spec.layout.title; // the section has it as text
  spec.layout.height -= spec.layout.margin.t - TOP_PX;
  spec.layout.margin.t = TOP_PX;
  place.setAttribute("aria-label", `${titleOf(view.handoff)}. ${sumsOf(view.tiles).map(([cause, ns]) => `${cause} ${duration(ns)}`).join(", ")}.`);
  await draw(place, spec);
  const tables = view.tiles.length ? [sumsTable(view), eventsTable(view), tilesTable(view)] : [eventsTable(view)];
  document.getElementById("picked-tables").replaceChildren(...tables);
  page.times.drawn ??= performance.now();
  section.dataset.state = "drawn";
  section.dataset.handoff = view.handoff.handoff_id;
}

function notesOf(view) {
  const h = view.handoff;
  const notes = [];
  if (page.indexOf.get(state.handoff) === undefined) {
    if (state.handoff !== null) notes.push(`There is no handoff ${state.handoff} in this report.`);
    notes.push("Shown until another is picked: the longest counted gap.");
  }
  if (!view.tiles.length) notes.push(whyNot(h));
  else if (h.dominant_cause === "unexplained") {
    notes.push("Most of it is unexplained: nothing can be said about what would bring it down.");
  } else if (h.dominant_cause !== null) {
    const then = h.next_cause ? `; then ${h.next_cause} holds it` : "";
    notes.push(`Without ${h.dominant_cause} the consumer would have started ${duration(h.removable_ns)} sooner${then}.`);
  }
  if (h.consumer_bound) {
    const slack = h.slack_ns === null ? "" : ` The data could have come ${duration(h.slack_ns)} later.`;
    notes.push(`Consumer bound: no change on the source side could have started the consumer sooner.${slack}`);
  }
  if (h.uncertainty_ns === null) notes.push("The clocks of the two ranks have no proven bound.");
  else if (h.uncertainty_ns) notes.push(`Times of different clocks are good to ${duration(h.uncertainty_ns)}.`);
  if (!h.counted) notes.push("Not counted in percentiles and sums.");
  if (!h.context) notes.push("What was recorded around it is not in this file, for its size; events and tiles are complete.");
  return notes;
}

function whyNot(h) {
  if (h.gap_ns === null) return "It has no gap: an event is missing, or the clocks of its ranks cannot be aligned.";
  if (h.order !== "ok") return "Its events are out of order, or their order cannot be told: nothing is explained.";
  return "Its gap is not positive: the consumer did not wait for the producer.";
}

function sumsOf(tiles) {
  const sums = new Map();
  for (const tile of tiles) sums.set(tile.cause, (sums.get(tile.cause) ?? 0) + tile.duration_ns);
  return [...sums].sort((a, b) => b[1] - a[1]);
}

function sumsTable(view) {
  const gap = Number(view.handoff.gap_ns);
  const rows = sumsOf(view.tiles).map(([cause, ns]) => [
    [swatch(cause) ?? "", ` ${cause}`], duration(ns), gap > 0 ? percent(ns / gap) : "", page.causes[cause]?.meaning ?? "",
  ]);
  return tableOf("What held the gap, in all", ["cause", ">in all", ">of gap", "~meaning"], rows);
}

function eventsTable(view) {
  const zero = view.handoff.producer_finish_ns;
  const known = new Map(view.events.map((event) => [event.event, event]));
  const names = view.handoff.arrival_ns === null ? EVENTS : [...EVENTS, "arrival"];
  const rows = names.map((name) => {
    const event = known.get(name);
    const source = spaced(name === "arrival" ? "derived" : view.handoff[`${name}_source`]);
    if (!event) return [spaced(name), "-", "", "", source, "-"];
    const after = zero === null ? "-" : fixed((event.at - Number(zero)) / 1000, 3);
    return [spaced(name), after, errorWords(event.error), event.rank === null ? "" : `rank ${event.rank}`, source, absoluteNs(event.exact, page.zero_ns)];
  });
  const heads = ["event", ">after producer finish, µs", ">clock error", "where", "source", ">Unix time, ns"];
  return tableOf("Events", heads, rows, "exact");
}

function tilesTable(view) {
  const zero = view.zero;
  const unsure = view.tiles.some((tile) => tile.runner_up !== null);
  const rows = [...view.tiles].reverse().map((tile) => [
    fixed((tile.start - zero) / 1000, 3),
    fixed((tile.end - zero) / 1000, 3),
    duration(tile.duration_ns),
    [swatch(tile.cause) ?? "", ` ${tile.cause}`],
    placeWords(tile.rank, tile.lane),
    tile.op && tile.what !== tile.op ? [element("span", { title: tile.op }, tile.what ?? "")] : tile.what ?? "",
    tile.phase === null ? "" : spaced(tile.phase),
    tile.evidence,
    ...(unsure ? [tile.runner_up ?? ""] : []),
  ]);
  const heads = [">from, µs", ">to, µs", ">length", "held by", "where", "~what", "phase", "known by"];
  if (unsure) heads.push("~the clocks cannot tell it from");
  const made = tableOf("Tiles, from the consumer back", heads, rows, "tiles");
  if (rows.length > PRINTED_ROWS) {
    const note = `Printed are the first ${PRINTED_ROWS} of ${count(rows.length)} tiles; all are in tiles.parquet.`;
    made.append(element("p", { class: "print note" }, note));
  }
  return made;
}
