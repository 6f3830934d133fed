// Makes one HTML file that classifies images in the browser, with onnxruntime-web inside: no server, and no image leaves the computer.
//
//     npm install onnxruntime-web
//     node path/to/tools/classify/make.mjs classify.html [network.onnx]
//
// Without a network, the page asks for one: a file from `equipoise export --format onnx`.

import { createRequire } from 'node:module';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const [output, network] = process.argv.slice(2);
if (!output) {
  console.error('usage: node make.mjs classify.html [network.onnx]');
  process.exit(2);
}
const runtime = dirname(createRequire(resolve(process.cwd(), 'x.js')).resolve('onnxruntime-web/wasm'));
const embed = (id, file) => `<script type="text/plain" id="${id}">${gzipSync(readFileSync(file), { level: 9 }).toString('base64')}</script>\n`;
let parts = embed('runtime-code', join(runtime, 'ort.wasm.bundle.min.mjs')) + embed('runtime-wasm', join(runtime, 'ort-wasm-simd-threaded.wasm'));
if (network) parts += embed('embedded-network', network);
const page = readFileSync(join(dirname(fileURLToPath(import.meta.url)), 'page.html'), 'utf8');
writeFileSync(output, page.replace('<!-- runtime -->\n', () => parts));
