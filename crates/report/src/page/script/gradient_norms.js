
// ---- gradient norms: stepping through epochs

function regionEdges(widths) {
  var edge = 0, edges = [0];
  widths.forEach(function (width) { edge += width; edges.push(edge); });
  return edges;
}
function evenEdges(count) {
  var edges = [];
  for (var k = 0; k !== count + 1; k += 1) edges.push(k / count);
  return edges;
}
function stepPath(x, y, edges, values) {
  var path = '', isConnected = false;
  values.forEach(function (value, index) {
    if (value === null) { isConnected = false; return; }
    path += isConnected ? 'V' + px(y(value)) + 'H' + px(x(edges[index + 1]))
      : 'M' + px(x(edges[index])) + ' ' + px(y(value)) + 'H' + px(x(edges[index + 1]));
    isConnected = true;
  });
  return path;
}
function sum(list) { return list.reduce(function (a, b) { return a + b; }, 0); }
function setPath(svg, selector, path) {
  var node = svg.querySelector(selector);
  if (node) node.setAttribute('d', path);
}
// Weights by bin; null where there are no examples.
function appliedWeights(view) {
  return view.c.map(function (count, bin) {
    var weight = typeof view.w === 'number' ? view.w : view.w[bin];
    return count === 0 || !weight ? null : weight;
  });
}

// A chart of a view, with a tooltip per bin.
function normChart(svg) {
  var panels = all('.panel', svg).map(panelOf), chart = { svg: svg, panels: panels, view: null };
  var crosshair = createPath('cross', svg);
  function bins() { return chart.view ? chart.view.c.length : 0; }
  function show(bin) {
    var view = chart.view, area = panels[0], weight = appliedWeights(view)[bin];
    var x = px(area.x((bin + 0.5) / bins()));
    crosshair.setAttribute('d', 'M' + x + ' ' + area.top + 'V' + panels[1].bottom);
    var lines = [
      'g ' + (bin / bins()).toFixed(3) + ' to ' + ((bin + 1) / bins()).toFixed(3),
      thousands(view.c[bin]) + (view.c[bin] === 1 ? ' example' : ' examples')
    ];
    if (weight !== null) lines.push('mean weight ' + formatNumber(weight));
    if (view.d) {
      var edges = regionEdges(view.d), middle = (bin + 0.5) / bins(), region = 0;
      while (region + 1 !== view.d.length && !(middle < edges[region + 1])) region += 1;
      lines.push('region ' + (region + 1) + ': v ' + formatNumber(view.v[region]) + ', W ' + formatNumber(view.W[region]));
    }
    var point = toScreen(svg, x, area.top);
    showTooltip(lines, point[0], point[1]);
    return lines;
  }
  navigate(svg, bins, function (x) {
    var area = panels[0];
    return Math.max(0, Math.min(bins() - 1, Math.floor((x - area.left) / (area.right - area.left) * bins())));
  }, show, function () { crosshair.removeAttribute('d'); });
  return chart;
}
function drawNorms(chart, view, epoch) {
  chart.view = view;
  var upper = chart.panels[0], lower = chart.panels[1], bins = view.c.length;
  var regions = view.v && view.v.length ? view.v.length : 30;
  var area = 'M' + px(upper.x(0)) + ' ' + px(upper.y(0));
  view.c.forEach(function (count, bin) {
    area += 'V' + px(upper.y(count * bins / regions)) + 'H' + px(upper.x((bin + 1) / bins));
  });
  setPath(chart.svg, '.area', area + 'V' + px(upper.y(0)) + 'Z');
  var edges = view.d ? regionEdges(view.d) : [];
  setPath(chart.svg, '.density', stepPath(upper.x, upper.y, edges, view.v || []));
  setPath(chart.svg, '.next-weight', stepPath(lower.x, lower.y, edges, view.W || []));
  setPath(chart.svg, '.aura', edges.map(function (edge) { return 'M' + px(upper.x(edge)) + ' 160v5'; }).join(''));
  setPath(chart.svg, '.applied', stepPath(lower.x, lower.y, evenEdges(bins), appliedWeights(view)));
  var total = sum(view.c), hard = sum(view.c.slice(Math.floor(bins / 2)));
  var share = total > 0 ? Math.round(100 * hard / total) : 0;
  var summary = thousands(total) + ' examples, ' + share + ' % with g ≥ 0.5';
  chart.svg.querySelector('.panel .annotation').textContent = summary;
  var alt = ' after epoch ' + epoch + ': ' + summary + '. Arrow keys move through the bins.';
  chart.svg.setAttribute('aria-label', chart.svg.getAttribute('aria-label').replace(/ after epoch .*/, alt));
}
function drawMargins(holder, frame) {
  var matrix = holder.querySelector('.margins');
  if (matrix) {
    var largest = Number(matrix.dataset.largest);
    all('tbody tr', matrix).forEach(function (line, row) {
      all('td', line).forEach(function (cell, column) {
        var margin = frame.m[row] ? frame.m[row][column] : undefined;
        if (margin === undefined) return;
        cell.textContent = margin.toFixed(2).replace('-0.00', '0.00').replace('-', '−');
        cell.className = 'cell m' + (largest > 0 ? Math.min(10, Math.round(10 * Math.abs(margin) / largest)) : 0);
      });
    });
  }
  var curve = holder.querySelector('svg.margin');
  if (curve) {
    var area = panelOf(curve.querySelector('.panel')), x = px(area.x(frame.e));
    setPath(curve, '.cursor', 'M' + x + ' ' + area.top + 'V' + area.bottom);
  }
}

all('.norm-player').forEach(function (player) {
  var embedded = jsonOf(player.id + '-data'), variants = embedded.variants, holders = all('.variant-norms', player);
  var slider = player.querySelector('input[type="range"]'), output = player.querySelector('.current-epoch');
  var play = player.querySelector('.play'), current = embedded.first, timer = null;
  var charts = holders.map(function (holder) { return all('svg[data-view]', holder).map(normChart); });

  function draw(variant, index) {
    var frame = variants[variant][index];
    charts[variant].forEach(function (chart) {
      var view = frame.views[Number(chart.svg.dataset.view)];
      if (view) drawNorms(chart, view, frame.e);
    });
    drawMargins(holders[variant], frame);
    holders[variant].querySelector('.epoch').textContent = 'epoch ' + frame.e;
  }
  function nearestFrame(variant, epoch) {
    var best = 0;
    variants[variant].forEach(function (frame, index) {
      if (!(Math.abs(frame.e - epoch) > Math.abs(variants[variant][best].e - epoch))) best = index;
    });
    return best;
  }
  function update() {
    var epoch = variants[current][Number(slider.value)].e;
    output.textContent = 'epoch ' + epoch;
    slider.setAttribute('aria-valuetext', 'epoch ' + epoch);
    // hidden variants follow, because printing shows them
    variants.forEach(function (frames, variant) { draw(variant, nearestFrame(variant, epoch)); });
  }
  function choose(variant) {
    var epoch = variants[current][Number(slider.value)].e;
    current = variant;
    slider.max = variants[variant].length - 1;
    slider.value = nearestFrame(variant, epoch);
    holders.forEach(function (holder, index) { holder.hidden = index !== variant; });
    update();
  }
  function label(text) {
    play.textContent = text;
    play.setAttribute('aria-label', text);
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    label('Play');
  }
  play.addEventListener('click', function () {
    if (timer !== null) { stop(); return; }
    if (Number(slider.value) === Number(slider.max)) slider.value = 0;
    update();
    label('Pause');
    timer = setInterval(function () {
      slider.value = Number(slider.value) + 1;
      update();
      if (Number(slider.value) === Number(slider.max)) stop();
    }, 260);
  });
  slider.addEventListener('input', function () { stop(); update(); });
  all('input[type="radio"]', player).forEach(function (radio) {
    radio.addEventListener('change', function () { if (radio.checked) choose(Number(radio.value)); });
    // a browser may restore another choice when the page is reloaded
    radio.checked = Number(radio.value) === current;
  });
  slider.value = slider.max;
  choose(current);
});
