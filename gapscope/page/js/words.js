// Numbers as people read them: the same texts as gapscope/wording.py writes, which a test compares.

// Digits behind the point as Python writes them: a tie goes to the even digit, where toFixed goes away from zero.
function fixed(value, digits) {
  let text = value.toFixed(digits);
  const long = value.toFixed(60);
  const behind = long.slice(long.indexOf(".") + 1 + digits);
  if (/^50*$/.test(behind)) {
    const down = digits ? long.slice(0, long.indexOf(".") + 1 + digits) : long.slice(0, long.indexOf("."));
    if (Number(down[down.length - 1]) % 2 === 0) text = down;
  }
  const [whole, part] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return part === undefined ? grouped : `${grouped}.${part}`;
}

function three(value) {
  const size = Math.abs(value);
  return fixed(value, size < 10 ? 2 : size < 100 ? 1 : 0);
}

function duration(ns, floorNs = 0) {
  if (ns === null || ns === undefined) return "-";
  const size = Math.abs(Number(ns));
  if (size < floorNs) return `< ${duration(floorNs)}`;
  if (size < 1e3) return `${ns} ns`;
  if (size < 1e6) return `${three(ns / 1e3)} µs`;
  if (size < 1e9) return `${three(ns / 1e6)} ms`;
  return `${three(ns / 1e9)} s`;
}

function sizeInBytes(bytes) {
  if (bytes === null) return "-";
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 2 ** 20) return `${three(bytes / 2 ** 10)} KiB`;
  if (bytes < 2 ** 30) return `${three(bytes / 2 ** 20)} MiB`;
  return `${three(bytes / 2 ** 30)} GiB`;
}

function count(n) {
  return fixed(n, 0);
}

function percent(share) {
  return share > 0 && share < 0.005 ? "< 1%" : `${fixed(share * 100, 0)}%`;
}

function spaced(name) {
  return name.replaceAll("_", " ");
}
