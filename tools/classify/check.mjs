// Opens a page made by make.mjs in Chromium from disk, drops images on it, and compares its probabilities with `equipoise predict`.
//
//     equipoise predict RUN IMAGES --json --top 65535 > predictions.jsonl
//     node path/to/tools/classify/check.mjs classify.html predictions.jsonl [network.onnx] [picture.png]
//
// Needs playwright-core, and Chromium (CHROMIUM names its binary). A network is chosen in the page, if it has none inside.
// Ends with `N passed, M failed`.

import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const { chromium } = createRequire(resolve(process.cwd(), 'x.js'))('playwright-core');
const [pagePath, predictions, network, picture] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 800, height: 900 } });
const messages = [];
page.on('console', (message) => messages.push(message.text()));
page.on('pageerror', (error) => messages.push(error.message));
page.on('request', (request) => { if (/^https?:/.test(request.url())) messages.push(`request: ${request.url()}`); });
await page.goto(pathToFileURL(resolve(pagePath)).href);
await page.waitForFunction(() => window.equipoise?.ready, null, { timeout: 60000 });
if (network) {
  await page.setInputFiles('#files', network);
  await page.waitForFunction(() => document.getElementById('network').textContent.includes('classes'));
}
let passed = 0, failed = 0;
for (const line of readFileSync(predictions, 'utf8').trim().split('\n').map((text) => JSON.parse(text))) {
  const shown = await page.locator('.image').count();
  await page.setInputFiles('#files', line.path);
  await page.waitForFunction((n) => document.querySelectorAll('.image').length > n, shown);
  const ranked = await page.evaluate(() => window.equipoise.last);
  const got = Object.fromEntries(ranked);
  const difference = Math.max(...line.predictions.map(({ label, probability }) => Math.abs(got[label] - probability)));
  const good = difference < 1e-3 && ranked[0][0] === line.predictions[0].label;
  good ? passed += 1 : failed += 1;
  if (!good) console.log(`${line.path}: probabilities differ by ${difference.toExponential(1)}`);
}
if (picture) await page.screenshot({ path: picture });
messages.forEach((message) => console.log(message));
failed += messages.length;
console.log(`${passed} passed, ${failed} failed`);
await browser.close();
process.exit(failed > 0 || passed === 0 ? 1 : 0);
