// The figure of one handoff, as gapscope/plots/timeline.py draws it. A test compares both.

const ROW_PX = 28;
const FRAME_PX = 204;
const STRIP = -1;
const TOP = -1.55;
const LEVEL = 0.75;
const MOST_LEVELS = 6;
const STRIP_WIDTH = 0.9;
const TILE_WIDTH = 0.86;
const BAR_WIDTH = 0.42;
const PART_WORDS = { ranges: " marks", calls: " calls", ops: "" };
const LONGEST_MICROSECONDS = 20000000;
const LEVELS = 3;
const LABEL_SHARE = 0.0085;

function timelineSpec(view) {
  const paper = paperOf(view);
  const line = page.axis.gridcolor;
  const text = page.layout.font.color;
  const layout = structuredClone(page.layout);
  layout.title.text = escaped(titleOf(view.handoff));
  layout.title.subtitle.text = escaped(subtitleOf(view));
  Object.assign(layout, {
    height: FRAME_PX + Math.round(ROW_PX * (paper.bottom - TOP)),
    margin: { l: 10, r: 16, t: 124, b: 74 },
    bargap: 0,
    uniformtext: { minsize: 9, mode: "hide" },
    xaxis: axisOf(`time after ${paper.zero} (${paper.unit})`, {
      range: [paper.x(view.start), paper.x(view.end)],
      tickformat: ",",
      zeroline: false,
    }),
    yaxis: axisOf("", {
      range: [paper.bottom, TOP],
      tickvals: [STRIP, ...paper.middles],
      ticktext: ["held by", ...view.rows.map((row) => escaped(`rank ${row.rank} ${row.lane}${PART_WORDS[row.part]}`))],
      showgrid: false,
      zeroline: false,
      fixedrange: true,
    }),
    shapes: [...laneShapes(view, paper, line), ...bandShapes(view, paper), ...eventShapes(view, paper, text)],
    annotations: [...arrowNotes(view, paper, text), ...labelNotes(view, paper, text)],
  });
  return { data: [...tileTraces(view, paper), ...barTraces(view, paper, text), ...eventTraces(view, paper, text)], layout };
}

function axisOf(title, more) {
  const base = structuredClone(page.axis);
  return { ...base, title: { ...base.title, text: title }, ...more };
}

function paperOf(view) {
  const long = view.end - view.start > LONGEST_MICROSECONDS;
  const scale = long ? 1e6 : 1e3;
  const levels = view.rows.map(() => 1);
  for (const bar of view.bars) if (ABOVE_CALLS.includes(bar.kind)) levels[bar.row] = Math.max(levels[bar.row], bar.depth + 1);
  const heights = levels.map((n) => Math.max(1, LEVEL * Math.min(n, MOST_LEVELS)));
  const edges = [-0.5];
  for (const height of heights) edges.push(edges[edges.length - 1] + height);
  const bottom = edges.pop();
  return {
    levels,
    heights,
    edges,
    bottom,
    middles: edges.map((edge, i) => edge + heights[i] / 2),
    zero: view.handoff.producer_finish_ns !== null ? "producer finish" : "the first event",
    unit: long ? "ms" : "µs",
    x: (at) => (at - view.zero) / scale,
    length: (ns) => ns / scale,
    span: Math.max(view.end - view.start, 1),
  };
}

function titleOf(handoff) {
  if (handoff.gap_ns === null) return `Handoff ${handoff.handoff_id}: no gap is known`;
  const error = handoff.gap_uncertainty_ns;
  const bound = error === null ? "clocks without a bound" : error ? `± ${duration(error)}` : "one clock";
  return `Handoff ${handoff.handoff_id}: gap ${duration(handoff.gap_ns, error ?? 0)} (${bound})`;
}

function subtitleOf(view) {
  const handoff = view.handoff;
  const said = [handoff.transport, spaced(handoff.status)];
  if (handoff.order !== "ok") said.push(`order: ${spaced(handoff.order)}`);
  if (handoff.step !== null) said.unshift(`step ${handoff.step}`);
  if (!handoff.steady) said.push("start-up");
  for (const event of view.events) {
    if (event.at >= view.start && event.at <= view.end) continue;
    const side = event.at < view.zero ? "before" : "after";
    said.push(`${spaced(event.event)} ${duration(Math.abs(event.at - view.zero))} ${side} the zero`);
  }
  const leftOut = view.rows.reduce((sum, row) => sum + row.leftOut, 0);
  if (leftOut) said.push(`${count(leftOut)} short bars are not drawn`);
  return said.join(", ");
}

function runsOf(tiles) {
  const runs = [];
  for (const tile of tiles) {
    const last = runs[runs.length - 1];
    if (last && last.cause === tile.cause && last.rank === tile.rank && last.lane === tile.lane) {
      last.end = tile.end;
      last.tiles += 1;
    } else runs.push({ cause: tile.cause, rank: tile.rank, lane: tile.lane, start: tile.start, end: tile.end, tiles: 1 });
  }
  return runs;
}

function tileTraces(view, paper) {
  const runs = runsOf(view.tiles);
  return [...new Set(view.tiles.map((tile) => tile.cause))].map((cause) => {
    const strip = runs.filter((run) => run.cause === cause);
    const lying = view.tiles.filter((tile) => tile.cause === cause && tile.row !== null);
    const both = [...strip, ...lying];
    return {
      type: "bar",
      orientation: "h",
      name: cause,
      base: both.map((bar) => paper.x(bar.start)),
      x: both.map((bar) => paper.length(bar.end - bar.start)),
      y: [...strip.map(() => STRIP), ...lying.map((tile) => paper.middles[tile.row])],
      width: [...strip.map(() => STRIP_WIDTH), ...lying.map(() => TILE_WIDTH)],
      text: [...strip.map((run) => `${cause} ${duration(run.end - run.start)}`), ...lying.map(() => "")],
      textposition: "inside",
      insidetextanchor: "middle",
      insidetextfont: { color: page.causes[cause].ink, size: 11 },
      hovertext: [...strip.map(runHover), ...lying.map(tileHover)],
      hoverinfo: "text",
      marker: page.causes[cause].marker,
    };
  });
}

function placeWords(rank, lane) {
  return [rank === null ? "" : `rank ${rank}`, lane ?? ""].filter(Boolean).join(" ") || "place not known";
}

function runHover(run) {
  const where = escaped(placeWords(run.rank, run.lane));
  return `<b>${run.cause}</b> ${duration(run.end - run.start)}<br>${where}<br>${run.tiles} tiles`;
}

function tileHover(tile) {
  const lines = [
    `<b>${tile.cause}</b> ${duration(tile.end - tile.start)}`,
    escaped(placeWords(tile.rank, tile.lane)),
    escaped(tile.what ?? ""),
    `known by: ${tile.evidence}`,
  ];
  if (tile.runner_up) lines.push(`or: ${escaped(tile.runner_up)}`);
  return lines.filter(Boolean).join("<br>");
}

function barTraces(view, paper, textColor) {
  const room = (bar) => paper.heights[bar.row] - 1 + TILE_WIDTH;
  const level = (bar) => room(bar) / paper.levels[bar.row];
  const cut = (at) => Math.min(Math.max(at, view.start), view.end);
  const traces = [];
  for (const [kind, marker] of Object.entries(page.kinds)) {
    const mine = view.bars.filter((bar) => bar.kind === kind);
    if (!mine.length) continue;
    const isAbove = ABOVE_CALLS.includes(kind);
    const names = mine.map((bar) => escaped(bar.name));
    traces.push({
      type: "bar",
      orientation: "h",
      name: kind,
      // cut at the window, or a text that stands where the bar begins would be out of sight
      base: mine.map((bar) => paper.x(cut(bar.start))),
      x: mine.map((bar) => paper.length(cut(bar.end) - cut(bar.start))),
      y: mine.map((bar) => {
        const middle = paper.middles[bar.row];
        return isAbove ? middle - room(bar) / 2 + level(bar) * (bar.depth + 0.5) : middle;
      }),
      width: mine.map((bar) => (isAbove ? level(bar) : BAR_WIDTH)),
      text: kind === "mark" || kind === "range" ? names.map((name) => name.split(" ")[0]) : [],
      textposition: "inside",
      insidetextanchor: "start",
      insidetextfont: { color: textColor, size: 11 },
      hovertext: mine.map((bar, i) =>
        `<b>${names[i]}</b><br>${kind}, ${duration(bar.end - bar.start)}<br>from ${fixed(paper.x(bar.start), 1)} ${paper.unit}`),
      hoverinfo: "text",
      marker,
      showlegend: kind !== "range",
    });
  }
  return traces;
}

function errorWords(error) {
  if (error === null) return "clocks without a bound";
  return error ? `± ${duration(error)}` : "same clock";
}

function eventTraces(view, paper, textColor) {
  if (!view.events.length) return [];
  const hovers = view.events.map((event) =>
    `<b>${spaced(event.event)}</b> (${event.source}), rank ${event.rank}<br>${duration(event.at - view.zero)} after `
    + `${paper.zero}, ${errorWords(event.error)}<br>${absoluteNs(event.exact, page.zero_ns)} ns`);
  return [{
    type: "scatter",
    mode: "markers",
    name: "event",
    x: view.events.map((event) => paper.x(event.at)),
    y: view.events.map(() => TOP),
    marker: { symbol: "diamond", size: 8, color: textColor },
    hovertext: hovers,
    hoverinfo: "text",
    cliponaxis: false,
    showlegend: false,
  }];
}

function laneShapes(view, paper, color) {
  const cuts = paper.edges.filter((_, i) => i === 0 || view.rows[i].rank !== view.rows[i - 1].rank);
  return cuts.map((cut) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: cut, y1: cut, line: { color, width: 1 } }));
}

function eventsInside(view) {
  return view.events.filter((event) => event.at >= view.start && event.at <= view.end);
}

function bandShapes(view, paper) {
  return eventsInside(view).filter((event) => event.error).map((event) => ({
    type: "rect",
    yref: "paper",
    y0: 0,
    y1: 1,
    x0: paper.x(event.at - event.error),
    x1: paper.x(event.at + event.error),
    layer: "below",
    line: { width: 0 },
    fillcolor: "rgba(128,128,128,0.13)",
  }));
}

function eventShapes(view, paper, color) {
  return eventsInside(view).map((event) => {
    const x = paper.x(event.at);
    return { type: "line", yref: "paper", y0: 0, y1: 1, x0: x, x1: x, line: { color, width: 1.2, dash: "dash" } };
  });
}

// Names of the events above the strip, on lines of their own where they would overlap.
function labelNotes(view, paper, color) {
  const free = new Array(LEVELS).fill(-1);
  return eventsInside(view).map((event) => {
    const text = spaced(event.event);
    const at = (event.at - view.start) / paper.span;
    const half = (text.length * LABEL_SHARE) / 2;
    const anchor = at < half ? "left" : at > 1 - half ? "right" : "center";
    const left = { left: at, right: at - 2 * half, center: at - half }[anchor];
    let level = free.findIndex((until) => left > until);
    if (level < 0) level = LEVELS - 1;
    free[level] = left + 2 * half;
    return {
      x: paper.x(event.at),
      yref: "paper",
      y: 1,
      yshift: 4 + 14 * level,
      xanchor: anchor,
      yanchor: "bottom",
      text,
      showarrow: false,
      font: { color, size: 11 },
    };
  });
}

function arrowNotes(view, paper, color) {
  const head = { showarrow: true, arrowhead: 2, arrowsize: 1, arrowwidth: 1.5, arrowcolor: color, text: "" };
  return view.arrows.slice(0, page.most.arrows).map((arrow) => {
    const x = paper.x(arrow.at);
    return { ...head, xref: "x", yref: "y", axref: "x", ayref: "y", x, ax: x, y: paper.middles[arrow.to], ay: paper.middles[arrow.from] };
  });
}
