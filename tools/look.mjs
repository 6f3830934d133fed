// Looks at a report page as people do: pictures of it at 1280 and 390 pixels, light and dark, and printed; and checks what only a
// browser can tell. Needs Chromium and playwright-core, which this repository does not have:
//
//     mkdir look && cd look && npm install playwright-core
//     node path/to/tools/look.mjs path/to/report.html pictures
//
// CHROMIUM names the browser's binary (/usr/bin/chromium if not set). Exit status 1 and a line per problem if there are any:
// messages in the console, requests that leave the page, sideways scrolling, ids that are there twice, texts of a chart that
// overlap or are cut, small print, controls that do nothing.

import { createRequire } from 'node:module';
import { mkdirSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const { chromium } = createRequire(resolve(process.cwd(), 'x.js'))('playwright-core');
const [page_path, pictures] = process.argv.slice(2);
if (!page_path || !pictures) {
  console.error('usage: node look.mjs report.html folder-for-pictures');
  process.exit(2);
}
const address = pathToFileURL(resolve(page_path)).href;
mkdirSync(pictures, { recursive: true });
const problems = [];
const problem = (where, what) => problems.push(`${where}: ${what}`);

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });

// What is wrong with the page as it is laid out now.
const layout = () => {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`scrolls sideways: ${root.scrollWidth} > ${root.clientWidth}`);
  const ids = new Set();
  for (const node of document.querySelectorAll('[id]')) {
    if (ids.has(node.id)) found.push(`id ${node.id} is there twice`);
    ids.add(node.id);
  }
  for (const link of document.querySelectorAll('a[href]')) {
    if (!ids.has(link.getAttribute('href').slice(1))) found.push(`link to nowhere: ${link.getAttribute('href')}`);
  }
  // corners of a text, turned or not
  const corners = (text) => {
    const box = text.getBBox();
    const matrix = text.getScreenCTM();
    const at = (x, y) => new DOMPoint(x, y).matrixTransform(matrix);
    // letters do not fill their line
    const top = box.y + box.height * 0.2, low = box.y + box.height * 0.85;
    return [at(box.x, top), at(box.x + box.width, top), at(box.x + box.width, low), at(box.x, low)];
  };
  const apart = (a, b) => {
    for (const shape of [a, b]) {
      for (let k = 0; k < 4; k += 1) {
        const from = shape[k], to = shape[(k + 1) % 4];
        const normal = [to.y - from.y, from.x - to.x];
        const along = (p) => p.x * normal[0] + p.y * normal[1];
        const [p, q] = [a.map(along), b.map(along)];
        if (Math.max(...p) <= Math.min(...q) || Math.max(...q) <= Math.min(...p)) return true;
      }
    }
    return false;
  };
  for (const svg of document.querySelectorAll('svg.chart')) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    const texts = [...svg.querySelectorAll('text')].filter((text) => text.textContent !== '');
    const boxes = texts.map(corners);
    const title = svg.getAttribute('aria-label').slice(0, 50);
    texts.forEach((text, at) => {
      const size = parseFloat(getComputedStyle(text).fontSize) * frame.width / svg.viewBox.baseVal.width;
      if (size < 8.9) found.push(`${title}: text of ${size.toFixed(1)} px: ${text.textContent}`);
      const out = boxes[at].some((p) => p.x < frame.left - 2 || p.x > frame.right + 2 || p.y < frame.top - 2 || p.y > frame.bottom + 2);
      if (out) found.push(`${title}: cut: ${text.textContent}`);
      for (let other = 0; other < at; other += 1) {
        if (!apart(boxes[at], boxes[other])) found.push(`${title}: overlap: ${text.textContent} / ${texts[other].textContent}`);
      }
    });
  }
  return found;
};

async function open(where, width, scheme) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, deviceScaleFactor: width < 500 ? 2 : 1 });
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  const page = await context.newPage();
  page.on('console', (message) => problem(where, `console: ${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => problem(where, `script: ${error.message}`));
  page.on('request', (request) => {
    if (request.url() !== address && !request.url().startsWith('data:')) problem(where, `request: ${request.url()}`);
  });
  await page.goto(address);
  return [context, page];
}

for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [768, 'light'], [390, 'light'], [390, 'dark']]) {
  const where = `${width}-${scheme}`;
  const [context, page] = await open(where, width, scheme);
  for (const found of await page.evaluate(layout)) problem(where, found);
  await page.screenshot({ path: `${pictures}/${where}.png`, fullPage: true });
  const parts = await page.$$('header.opening, section');
  for (const [at, part] of parts.entries()) {
    const id = (await part.getAttribute('id')) ?? `opening-${at}`;
    await part.screenshot({ path: `${pictures}/${where}-${id}.png` });
  }
  if (width === 1280 && scheme === 'light') await page.pdf({ path: `${pictures}/print.pdf`, format: 'A4', printBackground: false });
  await context.close();
}

// Controls.
{
  const where = 'controls';
  const [context, page] = await open(where, 1280, 'light');
  const check = (good, what) => good || problem(where, what);
  const tip = () => page.$eval('#tip', (node) => (node.hidden ? '' : node.innerText));
  for (const button of await page.$$('button[data-copy]')) {
    await button.click();
    const id = await button.getAttribute('data-copy');
    const want = await page.$eval(`[id="${id}"]`, (node) => node.value);
    check((await page.evaluate(() => navigator.clipboard.readText())) === want, `${id} is not copied`);
  }
  // where the clipboard is not allowed: the text is shown and selected
  const first = await page.$('button[data-copy]');
  if (first) {
    await page.evaluate(() => {
      Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true });
      document.execCommand = () => false;
    });
    await first.click();
    const id = await first.getAttribute('data-copy');
    const [hidden, selected] = await page.$eval(`[id="${id}"]`, (node) => [node.hidden, node.selectionEnd - node.selectionStart]);
    check(!hidden && selected > 0, 'no text to copy by hand');
  }
  for (const svg of await page.$$('svg.chart[tabindex]')) {
    if (!(await svg.isVisible())) continue;
    const title = (await svg.getAttribute('aria-label')).slice(0, 40);
    await svg.scrollIntoViewIfNeeded();
    await page.keyboard.press('Shift');
    await svg.focus();
    await page.keyboard.press('Home');
    const start = await tip();
    await page.keyboard.press('End');
    const end = await tip();
    check(start !== '' && end !== '', `${title}: no values with keys`);
    await page.keyboard.press('Escape');
    await svg.evaluate((node) => node.blur());
    const box = await svg.boundingBox();
    const mark = await svg.$('path[data-tip]');
    const spot = mark ? await mark.boundingBox() : { x: box.x + box.width * 0.45, y: box.y + box.height * 0.3, width: 0, height: 0 };
    await page.mouse.move(spot.x + spot.width / 2, spot.y + spot.height / 2);
    check((await tip()) !== '', `${title}: no values under the pointer`);
    await page.mouse.move(0, 0);
  }
  for (const table of await page.$$('table.class-table')) {
    const id = await table.getAttribute('id');
    const rows = () => table.$$eval('tbody tr', (rows) => rows.map((row) => row.cells[0].innerText));
    const before = await rows();
    const column = async (number) => (await table.$$('button.sort'))[number].click();
    await column(4);
    const values = await table.$$eval('tbody tr', (rows) => rows.map((row) => Number(row.cells[4].innerText)));
    const numbers = values.filter((value) => !Number.isNaN(value));
    check(numbers.every((x, at) => at === 0 || numbers[at - 1] >= x), `${id}: not sorted`);
    await column(0);
    await page.fill(`[id="${id}-find"]`, before[0].slice(0, 5).replace('…', ''));
    check((await rows()).length > 0, `${id}: not found`);
    await page.fill(`[id="${id}-find"]`, 'nothing is called so');
    check((await rows()).length === 0, `${id}: found what is not there`);
    await page.fill(`[id="${id}-find"]`, '');
  }
  for (const button of (await page.$$('button[data-highlight]')).slice(0, 2)) {
    await button.click();
    const dimmed = await page.$$eval('svg.chart .dim', (nodes) => nodes.length);
    check(dimmed > 0 || (await page.$$('button[data-highlight="1"]')).length === 0, 'legend: nothing steps back');
    await button.click();
    await page.mouse.move(0, 0);
    check((await page.$$eval('svg.chart .dim', (nodes) => nodes.length)) === 0, 'legend: nothing comes back');
  }
  for (const box of await page.$$('input[data-differences]')) {
    const table = await page.$(`[id="${await box.getAttribute('data-differences')}"]`);
    const shown = () => table.$$eval('.difference', (nodes) => nodes.filter((node) => node.offsetParent !== null).length);
    const before = await shown();
    await box.click();
    check(before > 0 && (await shown()) === 0, 'differences: still there');
    await box.click();
    check((await shown()) === before, 'differences: not there again');
  }
  for (const live of await page.$$('.norm-player')) {
    const slider = await live.$('input[type="range"]');
    const area = () => live.$eval('.variant-norms:not([hidden]) .area', (node) => node.getAttribute('d'));
    const last = await area();
    await slider.focus();
    await page.keyboard.press('Home');
    const begin = await area();
    const frames = Number(await slider.getAttribute('max'));
    check(frames === 0 || begin !== last, 'slider: nothing changes');
    await page.keyboard.press('End');
    check((await area()) === last, 'slider: another picture at the end than at first');
    for (const radio of await live.$$('input[type="radio"]')) {
      await radio.check();
      check((await live.$$('.variant-norms:not([hidden])')).length === 1, 'radio: not one part shown');
    }
    const play = await live.$('.play');
    if (frames > 1) {
      await play.click();
      const now = () => live.$eval('.current-epoch', (node) => node.textContent);
      const one = await now();
      await page.waitForTimeout(900);
      check((await now()) !== one, 'play: nothing moves');
      await play.click();
      const stopped = await now();
      await page.waitForTimeout(500);
      check((await now()) === stopped, 'pause: still moves');
    }
  }
  for (const found of await page.evaluate(layout)) problem(where, found);
  await context.close();
}

// Without the script all of it is there, too.
{
  const context = await browser.newContext({ javaScriptEnabled: false, viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(address);
  await page.screenshot({ path: `${pictures}/no-script.png`, fullPage: true });
  await context.close();
}
await browser.close();
for (const line of problems) console.log(line);
console.log(problems.length === 0 ? 'no problems' : `${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);
