
// ---- controls: legends, copying, differences, printing

// Highlights a variant while its legend entry is pointed at, or until it is pressed again.
all('article').forEach(function (article) {
  var buttons = all('button[data-highlight]', article), pressed = null;
  var marks = all('svg.chart [data-variant]', article).filter(function (mark) { return !mark.closest('.norm-player'); });
  function highlight(variant) {
    marks.forEach(function (mark) { mark.classList.toggle('dim', variant !== null && mark.dataset.variant !== variant); });
  }
  buttons.forEach(function (button) {
    var variant = button.dataset.highlight;
    button.setAttribute('aria-pressed', 'false');
    button.addEventListener('pointerenter', function () { highlight(variant); });
    button.addEventListener('pointerleave', function () { highlight(pressed); });
    button.addEventListener('click', function () {
      pressed = pressed === variant ? null : variant;
      buttons.forEach(function (other) { other.setAttribute('aria-pressed', String(other.dataset.highlight === pressed)); });
      highlight(pressed);
    });
  });
});

// Unfolds everything for printing.
window.addEventListener('beforeprint', function () {
  all('details').forEach(function (node) { node.open = true; });
});

all('button[data-copy]').forEach(function (button) {
  button.addEventListener('click', function () {
    var area = doc.getElementById(button.dataset.copy), status = button.parentNode.querySelector('.copied');
    function report(text) {
      status.textContent = text;
      setTimeout(function () { if (status.textContent === text) status.textContent = ''; }, 4000);
    }
    function copyBySelection() {
      area.hidden = false;
      area.focus();
      area.select();
      var copied = false;
      try { copied = doc.execCommand('copy'); } catch (error) { copied = false; }
      if (copied) { area.hidden = true; button.focus(); report('Copied'); } else report('Selected below: press Ctrl+C or ⌘C to copy');
    }
    if (navigator.clipboard && navigator.clipboard.writeText) {
      navigator.clipboard.writeText(area.value).then(function () { area.hidden = true; report('Copied'); }, copyBySelection);
    } else copyBySelection();
  });
});

all('input[data-differences]').forEach(function (box) {
  box.addEventListener('change', function () {
    doc.getElementById(box.dataset.differences).classList.toggle('without-differences', !box.checked);
  });
});
