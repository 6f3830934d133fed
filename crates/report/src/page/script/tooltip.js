
// ---- tooltips

var announcer = doc.getElementById('announcer');
var tooltip = create('div');
tooltip.id = 'tip';
tooltip.hidden = true;
tooltip.setAttribute('aria-hidden', 'true');
doc.body.appendChild(tooltip);
// Shows a tooltip again that was opened by keys, because keys also scroll the page.
var reopen = null;
function showTooltip(lines, x, y) {
  reopen = null;
  tooltip.textContent = '';
  lines.forEach(function (line) { tooltip.appendChild(create('div', line)); });
  tooltip.hidden = false;
  var box = tooltip.getBoundingClientRect(), pageWidth = doc.documentElement.clientWidth;
  var left = x + 14 + box.width > pageWidth - 6 ? x - box.width - 14 : x + 14;
  var top = y - box.height - 10;
  if (top < 6) top = y + 18;
  tooltip.style.left = Math.max(6, Math.min(left, pageWidth - box.width - 6)) + 'px';
  tooltip.style.top = top + 'px';
}
function hideTooltip() { tooltip.hidden = true; reopen = null; }
function announce(lines) { if (announcer) announcer.textContent = lines.join(', '); }
function middleOf(node) {
  var box = node.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + Math.min(box.height / 2, 60)];
}
function tipTarget(event) {
  var node = event.target.closest ? event.target.closest('[data-tip]') : null;
  return node && !node.closest('svg.chart') ? node : null;
}
doc.addEventListener('pointerover', function (event) {
  var node = tipTarget(event);
  if (node) showTooltip(node.dataset.tip.split('\n'), event.clientX, event.clientY);
});
doc.addEventListener('pointerout', function (event) { if (tipTarget(event)) hideTooltip(); });
doc.addEventListener('focusin', function (event) {
  var node = event.target;
  if (node.dataset && node.dataset.tip && node.matches(':focus-visible')) {
    var point = middleOf(node);
    showTooltip(node.dataset.tip.split('\n'), point[0], point[1]);
  }
});
doc.addEventListener('focusout', hideTooltip);
doc.addEventListener('keydown', function (event) { if (event.key === 'Escape') hideTooltip(); });
addEventListener('scroll', function () { if (reopen) reopen(); else hideTooltip(); }, { passive: true });
