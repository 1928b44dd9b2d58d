// Runs Perfetto's trace processor, which is made for a browser's worker, under Node.
//
// usage: node engine.mjs FOLDER, where FOLDER holds engine_bundle.js and its .wasm files.
// Standard input and output are streams of bytes, each a TraceProcessorRpcStream. The bundle sees a
// worker: it gets a message port, loads its .wasm by a relative address, and takes neither Node's
// `process` nor a page's `window` for its own.

import { readFileSync, writeSync } from "node:fs";
import { join } from "node:path";

const folder = process.argv[2];

class FileRequest {
  open(_method, name) {
    this.name = name;
  }

  send() {
    this.status = 200;
    this.response = readFileSync(join(folder, this.name)).buffer;
  }
}

const fetchFile = async (name) =>
  new Response(readFileSync(join(folder, name)), { headers: { "Content-Type": "application/wasm" } });

const port = {
  onmessage: null,
  postMessage(reply) {
    for (let done = 0; done < reply.length; ) {
      try {
        done += writeSync(1, reply, done);
      } catch (error) {
        if (error.code !== "EAGAIN") throw error; // the pipe is full
      }
    }
  },
};

const stderrConsole = { ...console, log: console.error, info: console.error, warn: console.error };
const worker = { location: { href: "file:///engine_bundle.js" } };
const bundle = readFileSync(join(folder, "engine_bundle.js"), "utf8");
const hidden = ["process", "window", "document", "require", "module", "exports", "importScripts"];
new Function("self", "WorkerGlobalScope", "XMLHttpRequest", "fetch", "console", ...hidden, bundle)(
  worker,
  Object,
  FileRequest,
  fetchFile,
  stderrConsole,
);
worker.onmessage({ data: port });

for await (const bytes of process.stdin) port.onmessage({ data: new Uint8Array(bytes) });
