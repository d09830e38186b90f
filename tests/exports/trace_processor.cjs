// Perfetto's own trace processor, in its WebAssembly build for browsers, without a browser: takes requests of its
// protocol from stdin and writes the answers to stdout.
// Usage: node trace_processor.cjs FOLDER, with engine_bundle.node.js and trace_processor.wasm in it.
const fs = require("node:fs");
const path = require("node:path");

const folder = path.resolve(process.argv[2]);
const requests = fs.readFileSync(0);
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

const answers = [];
const port = { postMessage: (bytes) => answers.push(Buffer.from(bytes)) };
self.onmessage({ data: port });
setImmediate(() => {
  port.onmessage({ data: new Uint8Array(requests) });
  process.stdout.write(Buffer.concat(answers), () => process.exit(0));
});
