// What surrounds one handoff: rows, bars, tiles, events and arrows, as gapscope/views/timeline.py cuts them out. A test
// compares both. Times are relative to the zero of the page.

const EVENTS = ["producer_finish", "submit", "receive_post", "movement_start", "available", "consumer_start"];
const FIVE = EVENTS.filter((event) => event !== "receive_post");
const ON_DESTINATION = ["receive_post", "arrival", "available", "consumer_start"];
const OWN_ERROR = { submit: "submission_uncertainty_ns", consumer_start: "gap_uncertainty_ns" };
const ABOVE_CALLS = ["mark", "range", "overhead"];
const PARTS = ["ranges", "calls", "ops"];
const PAD_PERCENT = 15;
const LEAST_PAD_NS = 20000;

function windowOf(handoff) {
  const known = FIVE.map((event) => handoff[`${event}_ns`]).filter((at) => at !== null).map(Number);
  if (!known.length) return null;
  const first = Math.min(...known);
  const last = Math.max(...known);
  const hasGap = handoff.gap_ns !== null && Number(handoff.gap_ns) >= 0;
  const low = hasGap ? Number(handoff.producer_finish_ns) : first;
  const high = hasGap ? Number(handoff.consumer_start_ns) : last;
  const span = high - low;
  const pad = Math.max(Math.floor((span * PAD_PERCENT) / 100), LEAST_PAD_NS);
  return [Math.max(first, low - span) - pad, Math.min(last, high + span) + pad];
}

function viewOf(handoff, tiles, context) {
  const events = eventsOf(handoff);
  const window = windowOf(handoff);
  const zero = Number(handoff.producer_finish_ns ?? events[0]?.exact ?? 0);
  const [start, end] = window ?? [zero, zero];
  const ranks = [...new Set([handoff.src_rank, handoff.dst_rank, ...ranksOf(tiles)])].filter((rank) => rank !== null);
  const near = window && context ? itemsNear(context, ranks, start, end) : [];
  const rows = rowsOf(near, tiles, ranks);
  const number = new Map(rows.map((row, i) => [row.key, i]));
  const bars = barsOf(near, rows, number);
  const placed = tiles.map((tile) => ({ ...tile, row: rowOfTile(tile, number) }));
  return { handoff, zero, start, end, rows, bars, tiles: placed, events, arrows: arrowsOf(placed) };
}

function ranksOf(tiles) {
  return [...new Set(tiles.map((tile) => tile.rank).filter((rank) => rank !== null))].sort((a, b) => a - b);
}

function itemsNear(context, ranks, start, end) {
  const { lanes, items } = context;
  const wanted = lanes.rank.map((rank) => ranks.includes(rank));
  const near = [];
  for (let i = 0; i < items.n; i += 1) {
    const until = items.start_ns[i] + items.length_ns[i];
    if (!wanted[items.lane[i]] || items.start_ns[i] > end || until < start) continue;
    const kind = items.kind[i];
    const part = ABOVE_CALLS.includes(kind) ? "ranges" : lanes.lane[items.lane[i]].startsWith("host:") ? "calls" : "ops";
    const [rank, lane] = [lanes.rank[items.lane[i]], lanes.lane[items.lane[i]]];
    const key = keyOf(rank, lane, part);
    near.push({ key, rank, lane, part, start: items.start_ns[i], end: until, kind, name: items.name[i] });
  }
  return near;
}

function keyOf(rank, lane, part) {
  return JSON.stringify([rank, lane, part]);
}

function rowsOf(near, tiles, ranks) {
  const found = new Map();
  const add = (rank, lane, part) => {
    const key = keyOf(rank, lane, part);
    if (!found.has(key)) found.set(key, { key, rank, lane, part, leftOut: 0 });
  };
  for (const item of near) add(item.rank, item.lane, item.part);
  for (const tile of tiles) if (tile.lane !== null && tile.rank !== null) add(tile.rank, tile.lane, partOfTile(tile));
  const order = (row) => [ranks.indexOf(row.rank), row.lane.startsWith("host") ? 0 : 1];
  return [...found.values()].sort((a, b) => {
    const [one, two] = [order(a), order(b)];
    return one[0] - two[0] || one[1] - two[1] || byNumbers(a.lane, b.lane) || (a.lane < b.lane ? -1 : a.lane > b.lane ? 1 : 0)
      || PARTS.indexOf(a.part) - PARTS.indexOf(b.part);
  });
}

function byNumbers(one, two) {
  const [a, b] = [one, two].map((lane) => (lane.match(/\d+/g) ?? []).map(Number));
  for (let i = 0; i < Math.min(a.length, b.length); i += 1) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
}

function partOfTile(tile) {
  return tile.lane.startsWith("host") ? "calls" : "ops";
}

function rowOfTile(tile, number) {
  if (tile.lane === null || tile.rank === null) return null;
  return number.get(keyOf(tile.rank, tile.lane, partOfTile(tile))) ?? null;
}

function barsOf(near, rows, number) {
  const byRow = rows.map(() => []);
  for (const item of near) byRow[number.get(item.key)].push({ ...item, row: number.get(item.key), depth: 0 });
  byRow.forEach((bars, row) => {
    if (bars.length > page.most.bars) {
      const longest = [...bars].sort((a, b) => b.end - b.start - (a.end - a.start) || a.start - b.start);
      rows[row].leftOut = bars.length - page.most.bars;
      byRow[row] = longest.slice(0, page.most.bars);
    }
    byRow[row].sort((a, b) => a.start - b.start || b.end - a.end);
    if (rows[row].part === "ranges") setDepths(byRow[row]);
  });
  return byRow.flat();
}

// How many bars of the row enclose each.
function setDepths(bars) {
  const ends = bars.map((bar) => bar.end).sort((a, b) => a - b);
  let ended = 0;
  bars.forEach((bar, i) => {
    while (ended < ends.length && ends[ended] <= bar.start) ended += 1;
    bar.depth = Math.max(i - ended, 0);
  });
}

function arrowsOf(tiles) {
  const known = tiles.filter((tile) => tile.row !== null);
  const steps = known.slice(1).map((tile, i) => ({ at: tile.start, from: known[i].row, to: tile.row }));
  return steps.filter((step) => step.from !== step.to);
}

function eventsOf(handoff) {
  const known = [...EVENTS, "arrival"].filter((event) => handoff[`${event}_ns`] !== null);
  const events = known.map((event) => ({
    event,
    at: Number(handoff[`${event}_ns`]),
    exact: handoff[`${event}_ns`],
    source: event === "arrival" ? "derived" : handoff[`${event}_source`],
    rank: ON_DESTINATION.includes(event) ? handoff.dst_rank : handoff.src_rank,
    error: event === "producer_finish" ? 0 : handoff[OWN_ERROR[event] ?? "uncertainty_ns"],
  }));
  return events.sort((a, b) => a.at - b.at);
}
