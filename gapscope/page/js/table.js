// The table of handoffs: sorted, filtered, and only the rows in sight are in the page, so that 20,000 stay fluid.

const ROW_HEIGHT = 27;
const SPARE_ROWS = 12;
const PRINTED_ROWS = 60;
const COLUMNS = [
  { name: "handoff", key: "handoff_id", text: (h, i) => h.handoff_id[i] },
  { name: "edge", key: "edge", text: (h, i) => page.edges[h.edge[i]] },
  { name: "step", key: "step", number: true, text: (h, i) => h.step[i] ?? "" },
  { name: "mb", title: "microbatch", key: "microbatch", number: true, text: (h, i) => h.microbatch[i] ?? "" },
  { name: "gap", key: "gap_ns", number: true, text: (h, i) => duration(h.gap_ns[i], h.gap_uncertainty_ns[i] ?? 0) },
  { name: "±", title: "how far the clocks may be off over the gap", key: "gap_uncertainty_ns", number: true, text: errorCell },
  { name: "held longest by", key: "dominant_cause", text: (h, i) => h.dominant_cause[i] ?? "", cause: true },
  { name: "for", key: "dominant_ns", number: true, text: (h, i) => durationOrNothing(h.dominant_ns[i]) },
  { name: "removable", title: "how much sooner the consumer would have started without it", key: "removable_ns", number: true, text: removableCell },
  { name: "then holds", key: "next_cause", text: (h, i) => (isUnexplained(h, i) ? "" : h.next_cause[i] ?? "") },
  { name: "size", key: "size_bytes", number: true, text: (h, i) => sizeInBytes(h.size_bytes[i]) },
  { name: "transport", key: "transport", text: (h, i) => h.transport[i] },
  { name: "status", key: "status", text: statusCell },
];

function durationOrNothing(ns) {
  return ns === null ? "" : duration(ns);
}

function errorCell(h, i) {
  if (h.gap_ns[i] === null) return "";
  return h.gap_uncertainty_ns[i] === null ? "no bound" : duration(h.gap_uncertainty_ns[i]);
}

function isUnexplained(h, i) {
  return h.dominant_cause[i] === "unexplained";
}

function removableCell(h, i) {
  return isUnexplained(h, i) ? "" : durationOrNothing(h.removable_ns[i]);
}

function statusCell(h, i) {
  const said = [spaced(h.status[i])];
  if (h.order[i] !== "ok") said.push(h.order[i] === "violation" ? "out of order" : "order cannot be told");
  if (!h.steady[i]) said.push("start-up");
  return said.join(", ");
}

const table = { order: [], sort: { column: 4, down: true }, active: 0, place: null, body: null };

function setUpTable() {
  table.place = document.getElementById("handoff-rows");
  table.body = table.place.querySelector("tbody");
  const heads = COLUMNS.map((column, i) => {
    const button = element("button", { type: "button", title: column.title ?? null }, column.name);
    button.addEventListener("click", () => sortBy(i));
    return element("th", { scope: "col", role: "columnheader", class: column.number ? "number" : null }, button);
  });
  table.place.querySelector("thead").append(element("tr", { role: "row", "aria-rowindex": "1" }, ...heads));
  fillChoices();
  for (const input of document.querySelectorAll("#filters input, #filters select")) {
    input.addEventListener("input", () => refilter());
  }
  document.getElementById("filters").addEventListener("reset", () => setTimeout(refilter));
  table.place.addEventListener("scroll", () => requestAnimationFrame(drawRows));
  table.place.addEventListener("keydown", moveInTable);
  table.body.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-position]");
    if (row && !getSelection().toString()) pickAt(Number(row.dataset.position));
  });
  new ResizeObserver(drawRows).observe(table.place);
  matchMedia("print").addEventListener("change", drawRows);
  follow((now, before) => {
    if (now.edge !== before.edge) refilter();
    const position = table.order.indexOf(pickedIndex());
    if (position >= 0) goTo(position);
    else drawRows();
  });
}

function fillChoices() {
  const h = page.handoffs;
  const add = (id, values) => {
    const select = document.getElementById(id);
    for (const value of values) select.append(element("option", { value }, spaced(value)));
  };
  add("filter-cause", [...new Set(h.dominant_cause)].filter((cause) => cause !== null).sort());
  add("filter-status", [...new Set(h.status)].sort());
}

function filterOf() {
  const value = (id) => document.getElementById(id).value.trim();
  const steps = value("filter-steps").match(/^(\d*)\s*(?::|-|–|to)?\s*(\d*)$/);
  const isRange = /[:–-]|to/.test(value("filter-steps"));
  const first = steps?.[1] ? Number(steps[1]) : null;
  const last = steps?.[2] ? Number(steps[2]) : isRange ? null : first;
  const field = document.getElementById("filter-steps");
  field.setCustomValidity(steps ? "" : "A step such as 12, or steps such as 10:20");
  return { cause: value("filter-cause"), status: value("filter-status"), text: value("filter-text").toLowerCase(), first, last };
}

function matches(h, i, wanted) {
  if (state.edge !== null && h.edge[i] !== state.edge) return false;
  if (wanted.cause && h.dominant_cause[i] !== wanted.cause) return false;
  if (wanted.status === "(counted)" && !h.counted[i]) return false;
  if (wanted.status === "(not counted)" && h.counted[i]) return false;
  if (wanted.status && !wanted.status.startsWith("(") && h.status[i] !== wanted.status) return false;
  if (wanted.first !== null && (h.step[i] === null || h.step[i] < wanted.first)) return false;
  if (wanted.last !== null && (h.step[i] === null || h.step[i] > wanted.last)) return false;
  return !wanted.text || COLUMNS.some((column) => String(column.text(h, i)).toLowerCase().includes(wanted.text));
}

function refilter() {
  const wanted = filterOf();
  const h = page.handoffs;
  table.order = [];
  for (let i = 0; i < h.n; i += 1) if (matches(h, i, wanted)) table.order.push(i);
  sortRows();
  table.active = 0;
  table.place.scrollTop = 0;
  const said = `${count(table.order.length)} of ${count(h.n)} handoffs`;
  document.getElementById("filter-count").textContent = said;
  drawRows();
}

function sortBy(column) {
  const down = table.sort.column === column ? !table.sort.down : Boolean(COLUMNS[column].number);
  table.sort = { column, down };
  sortRows();
  table.active = 0;
  table.place.scrollTop = 0;
  drawRows();
}

// Nulls last whichever way; equal ones in the order of the table handoffs.
function sortRows() {
  const { column, down } = table.sort;
  const values = page.handoffs[COLUMNS[column].key];
  const sign = down ? -1 : 1;
  table.order.sort((a, b) => {
    const [x, y] = [values[a], values[b]];
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    return (x < y ? -1 : x > y ? 1 : 0) * sign || a - b;
  });
}

function drawRows() {
  const printing = matchMedia("print").matches;
  const n = table.order.length;
  const h = page.handoffs;
  const inSight = Math.ceil(table.place.clientHeight / ROW_HEIGHT);
  let first = Math.max(0, Math.floor(table.place.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
  let last = Math.min(n, first + inSight + 2 * SPARE_ROWS);
  if (printing) [first, last] = [0, Math.min(n, PRINTED_ROWS)];
  const rows = [];
  for (let at = first; at < last; at += 1) rows.push(rowAt(h, at));
  const spacer = (height) => element("tr", { class: "spacer", "aria-hidden": "true", style: `height:${height}px` }, element("td", { colspan: COLUMNS.length }));
  const above = printing || first === 0 ? [] : [spacer(first * ROW_HEIGHT)];
  const below = printing || last === n ? [] : [spacer((n - last) * ROW_HEIGHT)];
  table.body.replaceChildren(...above, ...rows, ...below);
  table.place.querySelector("table").setAttribute("aria-rowcount", String(n + 1));
  table.place.setAttribute("aria-activedescendant", n ? `row-${table.active}` : "");
  document.getElementById("printed-rows").textContent =
    n > PRINTED_ROWS ? `Printed are the first ${PRINTED_ROWS} of ${count(n)} handoffs in this order; all are in handoffs.parquet.` : "";
  table.place.querySelectorAll("th").forEach((head, i) => {
    head.setAttribute("aria-sort", i !== table.sort.column ? "none" : table.sort.down ? "descending" : "ascending");
  });
}

function rowAt(h, at) {
  const i = table.order[at];
  const cells = COLUMNS.map((column) => {
    const text = String(column.text(h, i));
    const cell = element("td", { role: "gridcell", class: column.number ? "number" : null, title: text.length > 24 ? text : null });
    if (column.cause && text) cell.append(swatch(text) ?? "", " ");
    cell.append(text);
    return cell;
  });
  const picked = h.handoff_id[i] === pickedId();
  const attributes = {
    role: "row",
    id: `row-${at}`,
    "data-position": at,
    "aria-rowindex": at + 2,
    "aria-selected": String(picked),
    class: [h.counted[i] ? "" : "not-counted", at === table.active ? "active" : ""].filter(Boolean).join(" ") || null,
  };
  return element("tr", attributes, ...cells);
}

function moveInTable(event) {
  if (event.target.closest("thead")) return;
  const sight = Math.max(1, Math.floor(table.place.clientHeight / ROW_HEIGHT) - 2);
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: sight, PageUp: -sight, Home: -Infinity, End: Infinity };
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    pickAt(table.active);
  } else if (event.key in moves && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    goTo(table.active + moves[event.key]);
  }
}

function goTo(position) {
  table.active = Math.max(0, Math.min(table.order.length - 1, position));
  const top = table.active * ROW_HEIGHT;
  const head = table.place.querySelector("thead").offsetHeight;
  const height = table.place.clientHeight - head;
  if (top < table.place.scrollTop) table.place.scrollTop = top;
  else if (top + ROW_HEIGHT > table.place.scrollTop + height) table.place.scrollTop = top + ROW_HEIGHT - height;
  drawRows();
}

function pickAt(position) {
  if (position >= table.order.length) return;
  table.active = position;
  drawRows();
  show({ handoff: page.handoffs.handoff_id[table.order[position]] });
}
