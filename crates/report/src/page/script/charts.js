
// ---- charts: values under the pointer and with the arrow keys

// A scale as the chart was drawn with.
function scaleOf(text, from, to) {
  var parts = text.split(' ');
  var apply = parts[0] === 'log' ? function (x) { return Math.log(Math.max(x, 1e-300)); }
    : parts[0] === 'log1p' ? function (x) { return Math.log1p(Math.max(x, 0)); }
      : function (x) { return x; };
  var low = apply(Number(parts[1])), high = apply(Number(parts[2]));
  return function (x) {
    var share = high > low ? (apply(x) - low) / (high - low) : 0.5;
    return from + Math.max(0, Math.min(1, share || 0)) * (to - from);
  };
}
function panelOf(node) {
  var area = node.dataset.area.split(' ').map(Number);
  return {
    left: area[0], top: area[1], right: area[2], bottom: area[3], node: node,
    x: scaleOf(node.dataset.x, area[0], area[2]), y: scaleOf(node.dataset.y, area[3], area[1])
  };
}
function toChart(svg, event) {
  var box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
  return [(event.clientX - box.left) * view.width / box.width, (event.clientY - box.top) * view.height / box.height];
}
function toScreen(svg, x, y) {
  var box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
  return [box.left + x * box.width / view.width, box.top + y * box.height / view.height];
}

// Steps through the items of a chart with the pointer and the arrow keys. `count()` is their number, `nearest(x, y, event)` the
// index of one, `show(index)` shows it and returns its lines.
function navigate(svg, count, nearest, show, hide) {
  var current = -1;
  function go(index, byKey) {
    if (index === current && !tooltip.hidden) return;
    current = index;
    var lines = show(current);
    if (!byKey) return;
    announce(lines);
    function keep() { show(current); reopen = keep; }
    reopen = keep;
  }
  function leave() { current = -1; hide(); hideTooltip(); }
  svg.addEventListener('pointermove', function (event) {
    var point = toChart(svg, event), index = nearest(point[0], point[1], event);
    if (index === -1) leave(); else go(index, false);
  });
  svg.addEventListener('pointerleave', leave);
  svg.addEventListener('focus', function () { if (svg.matches(':focus-visible')) go(count() - 1, true); });
  svg.addEventListener('blur', leave);
  svg.addEventListener('keydown', function (event) {
    var last = count() - 1, index = current;
    if (event.key === 'ArrowRight' || event.key === 'ArrowDown') index = Math.min(last, current + 1);
    else if (event.key === 'ArrowLeft' || event.key === 'ArrowUp') index = current === -1 ? last : Math.max(0, current - 1);
    else if (event.key === 'Home') index = 0;
    else if (event.key === 'End') index = last;
    else if (event.key === 'Escape') { leave(); return; }
    else return;
    event.preventDefault();
    go(index, true);
  });
}

// Lines by epoch.
all('svg.chart[data-hover="lines"]').forEach(function (svg) {
  var panel = panelOf(svg.querySelector('.panel'));
  var series = all('.series', svg).map(function (node) {
    return {
      label: node.dataset.label,
      xs: node.dataset.xs.split(' ').map(Number), ys: node.dataset.ys.split(' ').map(Number),
      ranges: node.dataset.ranges ? node.dataset.ranges.split(' ') : null, node: node
    };
  });
  var seen = {};
  series.forEach(function (line) { line.xs.forEach(function (x) { seen[x] = true; }); });
  var epochs = Object.keys(seen).map(Number).sort(function (a, b) { return a - b; });
  var crosshair = createPath('cross', panel.node), marks = [];
  function hide() {
    crosshair.removeAttribute('d');
    marks.forEach(function (mark) { mark.remove(); });
    marks = [];
  }
  function nearest(x) {
    var best = 0;
    epochs.forEach(function (epoch, index) {
      if (Math.abs(panel.x(epoch) - x) < Math.abs(panel.x(epochs[best]) - x)) best = index;
    });
    return best;
  }
  function show(index) {
    hide();
    var epoch = epochs[index], x = px(panel.x(epoch)), lines = ['epoch ' + epoch];
    crosshair.setAttribute('d', 'M' + x + ' ' + panel.top + 'V' + panel.bottom);
    series.forEach(function (line) {
      var found = line.xs.indexOf(epoch);
      if (found === -1) return;
      var text = line.label + ': ' + formatNumber(line.ys[found]);
      if (line.ranges) {
        var range = line.ranges[found].split(':').map(Number);
        if (range[0] !== range[1]) text += ' (' + formatNumber(range[0]) + '–' + formatNumber(range[1]) + ')';
      }
      lines.push(text);
      var y = px(panel.y(line.ys[found])), mark = createPath('dot on', line.node);
      mark.setAttribute('d', 'M' + (x - 3.6) + ' ' + y + 'a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z');
      marks.push(mark);
    });
    var point = toScreen(svg, x, panel.top + 10);
    showTooltip(lines, point[0], point[1]);
    return lines;
  }
  navigate(svg, function () { return epochs.length; }, nearest, show, hide);
});

// Columns and marks that have tooltips.
all('svg.chart[data-hover="columns"], svg.chart[data-hover="marks"]').forEach(function (svg) {
  var items = all('[data-tip]', svg);
  function hide() { items.forEach(function (item) { item.classList.remove('on'); }); }
  navigate(svg, function () { return items.length; }, function (x, y, event) {
    return items.indexOf(event.target.closest('[data-tip]'));
  }, function (index) {
    hide();
    items[index].classList.add('on');
    var point = middleOf(items[index]), lines = items[index].dataset.tip.split('\n');
    showTooltip(lines, point[0], point[1]);
    return lines;
  }, hide);
});
