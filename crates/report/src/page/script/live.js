
// The page of a run that goes on reloads itself, until its file has not been written for too long.

(function () {
  var live = doc.getElementById('live');
  if (!live) return;
  var written = Number(live.getAttribute('data-written'));
  if (Date.now() / 1000 - written < Number(live.getAttribute('data-patience'))) {
    setTimeout(function () { location.reload(); }, 1000 * Number(live.getAttribute('data-reload')));
    return;
  }
  doc.getElementById('last-update').textContent = new Date(1000 * written).toLocaleString();
  doc.getElementById('stale').removeAttribute('hidden');
  live.firstChild.setAttribute('hidden', 'hidden');
}());
