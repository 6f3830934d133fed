// Helpers that all parts use. All text enters the page through textContent and attributes, never as markup.

var doc = document;
doc.documentElement.classList.add('js');
var firstSvg = doc.querySelector('svg');
var svgNamespace = firstSvg ? firstSvg.namespaceURI : null;

function all(selector, inside) { return Array.prototype.slice.call((inside || doc).querySelectorAll(selector)); }
function create(name, text, className) {
  var node = doc.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}
function createPath(className, parent) {
  var node = doc.createElementNS(svgNamespace, 'path');
  node.setAttribute('class', className);
  parent.appendChild(node);
  return node;
}
function jsonOf(id) { var node = doc.getElementById(id); return node ? JSON.parse(node.textContent) : null; }
function thousands(n) { return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ','); }
function px(x) { return Math.round(x * 10) / 10; }
function formatNumber(x) {
  var size = Math.abs(x);
  if (size !== 0 && size < 0.001) return x.toExponential(2);
  return size >= 1000 ? thousands(Math.round(x)) : String(Number(x.toPrecision(size >= 100 ? 4 : 3)));
}
