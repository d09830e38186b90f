// Loads traces into Perfetto's trace processor (its WebAssembly build, in node), one after the other, and counts slices.
// Usage: node trace_processor.cjs FOLDER TRACE..., with engine_bundle.node.js and trace_processor.wasm in FOLDER.
const fs = require("node:fs");
const path = require("node:path");

const [folder, ...traces] = [path.resolve(process.argv[2]), ...process.argv.slice(3)];
const APPEND = 1, FINALIZE = 2, QUERY = 3, RESET = 7;
const PIECE = 1 << 22;
console.log = console.warn = console.error = (line) => process.stderr.write(`${line}\n`);

// What the build expects of the worker that it usually runs in.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: "http://localhost/" };
globalThis.XMLHttpRequest = class {
  open(_method, name) {
    this.name = path.basename(name);
  }
  send() {
    this.response = fs.readFileSync(path.join(folder, this.name));
  }
};
require(path.join(folder, "engine_bundle.node.js"));

// The few messages of its protocol that are needed here: fields are (number, bytes) or (number, integer).
function varint(n) {
  const bytes = [];
  for (; n > 127; n = Math.floor(n / 128)) bytes.push((n % 128) | 128);
  return Buffer.from([...bytes, n]);
}
function field(number, value) {
  return typeof value === "number"
    ? Buffer.concat([varint(number * 8), varint(value)])
    : Buffer.concat([varint(number * 8 + 2), varint(value.length), value]);
}
function fields(buffer) {
  const found = [];
  for (let at = 0; at < buffer.length; ) {
    const next = () => {
      let n = 0;
      for (let scale = 1; ; scale *= 128) {
        const byte = buffer[at++];
        n += (byte & 127) * scale;
        if (byte < 128) return n;
      }
    };
    const key = next();
    if (key % 8 === 0) found.push([key >> 3, next()]);
    else if (key % 8 === 1) found.push([key >> 3, buffer.subarray(at, (at += 8))]);
    else if (key % 8 === 5) found.push([key >> 3, buffer.subarray(at, (at += 4))]);
    else {
      const length = next();
      found.push([key >> 3, buffer.subarray(at, (at += length))]);
    }
  }
  return found;
}
const inside = (buffer, number) => fields(buffer).filter(([n]) => n === number).map(([, value]) => value);

let answers = [];
const port = { postMessage: (bytes) => answers.push(Buffer.from(bytes)) };
let sequence = 0;
function ask(request, ...parts) {
  answers = [];
  const body = Buffer.concat([field(1, ++sequence), field(2, request), ...parts]);
  port.onmessage({ data: new Uint8Array(field(1, body)) });
  const messages = answers.flatMap((answer) => inside(answer, 1));
  for (const message of messages) {
    const failed = [...inside(message, 5), ...inside(message, 201).flatMap((m) => inside(m, 2)),
      ...inside(message, 203).flatMap((m) => inside(m, 2)), ...inside(message, 212).flatMap((m) => inside(m, 1))];
    if (failed.length) throw new Error(String(failed[0]).slice(0, 300));
  }
  return messages;
}

self.onmessage({ data: port });
setImmediate(() => {
  let slices = 0;
  try {
    for (const trace of traces) {
      if (sequence) ask(RESET);
      const file = fs.openSync(trace);
      const piece = Buffer.alloc(PIECE);
      for (let n; (n = fs.readSync(file, piece)); ) ask(APPEND, field(101, piece.subarray(0, n)));
      fs.closeSync(file);
      ask(FINALIZE);
      const messages = ask(QUERY, field(103, field(1, Buffer.from("select count(*) from slice"))));
      const batches = messages.flatMap((m) => inside(m, 203)).flatMap((result) => inside(result, 3));
      for (const [number, value] of batches.flatMap(fields)) {
        if (number === 2) slices += typeof value === "number" ? value : fields(Buffer.concat([varint(8), value]))[0][1];
      }
    }
  } catch (error) {
    process.stderr.write(`${error}\n`);
    process.exit(1);
  }
  process.stdout.write(`${JSON.stringify({ slices })}\n`, () => process.exit(0));
});
