// Blocks of data in the page (gapscope/page/payload.py says how they are written) back to columns.

async function inflated(id) {
  const binary = atob(document.getElementById(id).textContent.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function columnValues(column, n) {
  if ("c" in column) return new Array(n).fill(column.c);
  if ("v" in column) return column.v;
  if ("d" in column) {
    let at = 0;
    return column.d.map((step) => (at += step));
  }
  return columnValues(column.i, n).map((code) => (code === null ? null : column.s[code]));
}

// A frame as {n, name: [one value per row], ...}.
function frameOf(packed) {
  const frame = { n: packed.n };
  for (const [name, column] of Object.entries(packed.columns)) frame[name] = columnValues(column, packed.n);
  return frame;
}

function rowOf(frame, i) {
  const row = {};
  for (const name of Object.keys(frame)) if (name !== "n") row[name] = frame[name][i];
  return row;
}

// Absolute Unix nanoseconds as text: exact, where a double would be off by a hundred nanoseconds and more.
function absoluteNs(relative, zero) {
  return relative === null ? "-" : String(BigInt(relative) + BigInt(zero));
}
