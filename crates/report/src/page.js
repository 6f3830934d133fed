// What moves on the page. All text comes in through textContent and attributes, never as markup.
(function () {
  'use strict';
  var doc = document;
  doc.documentElement.classList.add('js');
  var anySvg = doc.querySelector('svg');
  var svgSpace = anySvg ? anySvg.namespaceURI : null;
  var heard = doc.getElementById('heard');

  function all(selector, inside) { return Array.prototype.slice.call((inside || doc).querySelectorAll(selector)); }
  function make(name, text, className) {
    var node = doc.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  }
  function data(id) { var node = doc.getElementById(id); return node ? JSON.parse(node.textContent) : null; }
  function comma(n) { return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ','); }
  function place(x) { return Math.round(x * 10) / 10; }

  // ---- tips
  var tip = make('div');
  tip.id = 'tip';
  tip.hidden = true;
  tip.setAttribute('aria-hidden', 'true');
  doc.body.appendChild(tip);
  // shows a tip again that keys have asked for, because keys scroll, too
  var again = null;
  function showTip(lines, x, y) {
    again = null;
    tip.textContent = '';
    lines.forEach(function (line) { tip.appendChild(make('div', line)); });
    tip.hidden = false;
    var box = tip.getBoundingClientRect(), wide = doc.documentElement.clientWidth;
    var left = x + 14 + box.width > wide - 6 ? x - box.width - 14 : x + 14;
    var top = y - box.height - 10;
    if (top < 6) top = y + 18;
    tip.style.left = Math.max(6, Math.min(left, wide - box.width - 6)) + 'px';
    tip.style.top = top + 'px';
  }
  function hideTip() { tip.hidden = true; again = null; }
  function say(lines) { if (heard) heard.textContent = lines.join(', '); }
  function middle(node) {
    var box = node.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + Math.min(box.height / 2, 60)];
  }
  doc.addEventListener('pointerover', function (event) {
    var node = event.target.closest ? event.target.closest('[data-tip]') : null;
    if (node && !node.closest('svg.chart')) showTip(node.dataset.tip.split('\n'), event.clientX, event.clientY);
  });
  doc.addEventListener('pointerout', function (event) {
    var node = event.target.closest ? event.target.closest('[data-tip]') : null;
    if (node && !node.closest('svg.chart')) hideTip();
  });
  doc.addEventListener('focusin', function (event) {
    var node = event.target;
    if (node.dataset && node.dataset.tip && node.matches(':focus-visible')) {
      var at = middle(node);
      showTip(node.dataset.tip.split('\n'), at[0], at[1]);
    }
  });
  doc.addEventListener('focusout', hideTip);
  doc.addEventListener('keydown', function (event) { if (event.key === 'Escape') hideTip(); });
  addEventListener('scroll', function () { if (again) again(); else hideTip(); }, { passive: true });

  // ---- scales, as the charts were drawn with
  function scale(text, from, to) {
    var parts = text.split(' ');
    var of = parts[0] === 'log' ? function (x) { return Math.log(Math.max(x, 1e-300)); }
      : parts[0] === 'log1p' ? function (x) { return Math.log1p(Math.max(x, 0)); }
        : function (x) { return x; };
    var low = of(Number(parts[1])), high = of(Number(parts[2]));
    return function (x) {
      var share = high > low ? (of(x) - low) / (high - low) : 0.5;
      return from + Math.max(0, Math.min(1, share || 0)) * (to - from);
    };
  }
  function panelOf(node) {
    var area = node.dataset.area.split(' ').map(Number);
    return {
      left: area[0], top: area[1], right: area[2], bottom: area[3], node: node,
      x: scale(node.dataset.x, area[0], area[2]), y: scale(node.dataset.y, area[3], area[1])
    };
  }
  function pointIn(svg, event) {
    var box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    return [(event.clientX - box.left) * view.width / box.width, (event.clientY - box.top) * view.height / box.height];
  }
  function onScreen(svg, x, y) {
    var box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    return [box.left + x * box.width / view.width, box.top + y * box.height / view.height];
  }
  function path(className, parent) {
    var node = doc.createElementNS(svgSpace, 'path');
    node.setAttribute('class', className);
    parent.appendChild(node);
    return node;
  }

  // Steps through places of a chart with the pointer and the arrow keys. `show(at)` shows one, `nearest(x, y)` finds one.
  function walk(svg, number, nearest, show, hide) {
    var at = -1;
    function go(next, aloud) {
      if (next === at && !tip.hidden) return;
      at = next;
      var lines = show(at);
      if (!aloud) return;
      say(lines);
      function keep() { show(at); again = keep; }
      again = keep;
    }
    function leave() { at = -1; hide(); hideTip(); }
    svg.addEventListener('pointermove', function (event) {
      var point = pointIn(svg, event), next = nearest(point[0], point[1], event);
      if (next === -1) leave(); else go(next, false);
    });
    svg.addEventListener('pointerleave', leave);
    svg.addEventListener('focus', function () { if (svg.matches(':focus-visible')) go(number() - 1, true); });
    svg.addEventListener('blur', leave);
    svg.addEventListener('keydown', function (event) {
      var last = number() - 1, next = at;
      if (event.key === 'ArrowRight' || event.key === 'ArrowDown') next = Math.min(last, at + 1);
      else if (event.key === 'ArrowLeft' || event.key === 'ArrowUp') next = at === -1 ? last : Math.max(0, at - 1);
      else if (event.key === 'Home') next = 0;
      else if (event.key === 'End') next = last;
      else if (event.key === 'Escape') { leave(); return; }
      else return;
      event.preventDefault();
      go(next, true);
    });
  }

  // ---- lines by epoch
  function number(x) {
    var size = Math.abs(x);
    if (size !== 0 && size < 0.001) return x.toExponential(2);
    return size >= 1000 ? comma(Math.round(x)) : String(Number(x.toPrecision(size >= 100 ? 4 : 3)));
  }
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
    series.forEach(function (one) { one.xs.forEach(function (x) { seen[x] = true; }); });
    var xs = Object.keys(seen).map(Number).sort(function (a, b) { return a - b; });
    var cross = path('cross', panel.node), marks = [];
    function hide() {
      cross.removeAttribute('d');
      marks.forEach(function (mark) { mark.remove(); });
      marks = [];
    }
    function nearest(x) {
      var best = 0;
      xs.forEach(function (epoch, at) { if (Math.abs(panel.x(epoch) - x) < Math.abs(panel.x(xs[best]) - x)) best = at; });
      return best;
    }
    function show(at) {
      hide();
      var epoch = xs[at], x = place(panel.x(epoch)), lines = ['epoch ' + epoch];
      cross.setAttribute('d', 'M' + x + ' ' + panel.top + 'V' + panel.bottom);
      series.forEach(function (one) {
        var found = one.xs.indexOf(epoch);
        if (found === -1) return;
        var text = one.label + ': ' + number(one.ys[found]);
        if (one.ranges) {
          var range = one.ranges[found].split(':').map(Number);
          if (range[0] !== range[1]) text += ' (' + number(range[0]) + '–' + number(range[1]) + ')';
        }
        lines.push(text);
        var y = place(panel.y(one.ys[found])), mark = path('dot on', one.node);
        mark.setAttribute('d', 'M' + (x - 3.6) + ' ' + y + 'a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z');
        marks.push(mark);
      });
      var spot = onScreen(svg, x, panel.top + 10);
      showTip(lines, spot[0], spot[1]);
      return lines;
    }
    walk(svg, function () { return xs.length; }, nearest, show, hide);
  });

  // ---- columns and marks that have tips
  all('svg.chart[data-hover="columns"], svg.chart[data-hover="marks"]').forEach(function (svg) {
    var items = all('[data-tip]', svg);
    function hide() { items.forEach(function (item) { item.classList.remove('on'); }); }
    walk(svg, function () { return items.length; }, function (x, y, event) {
      return items.indexOf(event.target.closest('[data-tip]'));
    }, function (at) {
      hide();
      items[at].classList.add('on');
      var spot = middle(items[at]), lines = items[at].dataset.tip.split('\n');
      showTip(lines, spot[0], spot[1]);
      return lines;
    }, hide);
  });

  // ---- one variant in front of the others: while it is pointed at, or until it is pressed again
  all('article').forEach(function (article) {
    var buttons = all('button[data-pick]', article), kept = null;
    var marks = all('svg.chart [data-variant]', article).filter(function (mark) { return !mark.closest('.live'); });
    function show(variant) {
      marks.forEach(function (mark) { mark.classList.toggle('dim', variant !== null && mark.dataset.variant !== variant); });
    }
    buttons.forEach(function (button) {
      button.setAttribute('aria-pressed', 'false');
      button.addEventListener('pointerenter', function () { show(button.dataset.pick); });
      button.addEventListener('pointerleave', function () { show(kept); });
      button.addEventListener('click', function () {
        kept = kept === button.dataset.pick ? null : button.dataset.pick;
        buttons.forEach(function (other) { other.setAttribute('aria-pressed', String(other.dataset.pick === kept)); });
        show(kept);
      });
    });
  });

  // ---- printing: nothing stays folded
  window.addEventListener('beforeprint', function () {
    all('details').forEach(function (node) { node.open = true; });
  });

  // ---- copying
  all('button[data-copy]').forEach(function (button) {
    button.addEventListener('click', function () {
      var area = doc.getElementById(button.dataset.copy), status = button.parentNode.querySelector('.copied');
      function tell(text) {
        status.textContent = text;
        setTimeout(function () { if (status.textContent === text) status.textContent = ''; }, 4000);
      }
      function byHand() {
        area.hidden = false;
        area.focus();
        area.select();
        var done = false;
        try { done = doc.execCommand('copy'); } catch (error) { done = false; }
        if (done) { area.hidden = true; button.focus(); tell('Copied'); } else tell('Selected below: copy it with Ctrl C or ⌘ C');
      }
      if (navigator.clipboard && navigator.clipboard.writeText) {
        navigator.clipboard.writeText(area.value).then(function () { area.hidden = true; tell('Copied'); }, byHand);
      } else byHand();
    });
  });

  // ---- differences in the table
  all('input[data-differences]').forEach(function (box) {
    box.addEventListener('change', function () {
      doc.getElementById(box.dataset.differences).classList.toggle('without', !box.checked);
    });
  });

  // ---- the table of every class
  all('table.every').forEach(function (table) {
    var body = table.tBodies[0], heads = all('thead th', table), find = doc.getElementById(table.id + '-find');
    var found = doc.getElementById(table.id + '-found'), embedded = data(table.id + '-data');
    var rows, most = Infinity, variants = Number(table.dataset.columns);
    function value(cell) {
      var text = cell.dataset.value === undefined ? cell.textContent : cell.dataset.value;
      return cell.classList.contains('num') ? (text === 'n/a' ? null : Number(text)) : text;
    }
    if (embedded) {
      most = embedded.shown;
      rows = embedded.names.map(function (name, at) {
        var values = embedded.values.map(function (column) { return column[at]; });
        var changes = values.slice(1).map(function (x) { return x === null || values[0] === null ? null : x - values[0]; });
        var group = embedded.group[at];
        return { keys: [name, group === -1 ? '' : embedded.groups[group], embedded.train[at], embedded.test[at]].concat(values, changes), node: null };
      });
    } else {
      rows = all('tr', body).map(function (node) { return { keys: all('th, td', node).map(value), node: node }; });
    }
    rows.forEach(function (row, at) { row.at = at; row.low = (row.keys[0] + ' ' + row.keys[1]).toLowerCase(); });
    function node(row) {
      if (row.node) return row.node;
      var line = make('tr');
      row.keys.forEach(function (key, column) {
        var cell = make(column === 0 ? 'th' : 'td', undefined, column > 1 ? 'num' : '');
        var text = key;
        if (column > 1) {
          if (key === null) text = 'n/a';
          else if (column === 2 || column === 3) text = comma(key);
          else if (column - 4 >= variants) text = ((key < 0 ? '' : '+') + key.toFixed(1)).replace(/^[-+]0\.0$/, '0.0').replace('-', '−');
          else text = key.toFixed(1);
          cell.textContent = text;
        } else {
          if (column === 0) cell.scope = 'row';
          cell.appendChild(make('bdi', text.length > 60 ? Array.from(text).slice(0, 59).join('') + '…' : text));
        }
        line.appendChild(cell);
      });
      row.node = line;
      return line;
    }
    var order = rows.slice(), column = -1, down = false;
    function draw() {
      var words = find.value.toLowerCase().trim(), matches = order.filter(function (row) { return row.low.indexOf(words) !== -1; });
      var nodes = matches.slice(0, most).map(node);
      body.textContent = '';
      nodes.forEach(function (one) { body.appendChild(one); });
      var text = comma(matches.length) + (matches.length === 1 ? ' class' : ' classes');
      if (matches.length > most) text += ', the first ' + most + ' shown';
      found.textContent = text;
    }
    heads.forEach(function (head, at) {
      var button = head.querySelector('button');
      button.addEventListener('click', function () {
        down = column === at ? !down : at > 1;
        column = at;
        heads.forEach(function (other) { other.removeAttribute('aria-sort'); });
        head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        order.sort(function (a, b) {
          var x = a.keys[at], y = b.keys[at];
          if (x === y) return a.at - b.at;
          // what cannot be said is last in either direction
          if (x === null) return 1;
          if (y === null) return -1;
          var less = typeof x === 'string' ? x.localeCompare(y) : x - y;
          return (down ? -less : less) || a.at - b.at;
        });
        draw();
      });
    });
    find.addEventListener('input', draw);
    draw();
  });

  // ---- gradient norms
  function edges(widths) {
    var at = 0, list = [0];
    widths.forEach(function (width) { at += width; list.push(at); });
    return list;
  }
  function steps(x, y, cuts, values) {
    var text = '', pen = false;
    values.forEach(function (value, at) {
      if (value === null) { pen = false; return; }
      text += pen ? 'V' + place(y(value)) + 'H' + place(x(cuts[at + 1]))
        : 'M' + place(x(cuts[at])) + ' ' + place(y(value)) + 'H' + place(x(cuts[at + 1]));
      pen = true;
    });
    return text;
  }
  function even(number) {
    var list = [];
    for (var k = 0; k !== number + 1; k += 1) list.push(k / number);
    return list;
  }
  function sum(list) { return list.reduce(function (a, b) { return a + b; }, 0); }
  all('.live').forEach(function (live) {
    var embedded = data(live.id + '-data'), parts = embedded.parts, holders = all('.of', live);
    var slider = live.querySelector('input[type="range"]'), now = live.querySelector('.now'), play = live.querySelector('.play');
    var which = embedded.first, timer = null;

    function weightsOf(view) {
      var count = view.c.length;
      return view.c.map(function (n, at) {
        var weight = typeof view.w === 'number' ? view.w : view.w[at];
        return n === 0 || !weight || at === count ? null : weight;
      });
    }
    var charts = holders.map(function (holder) {
      return all('svg[data-view]', holder).map(function (svg) {
        var panels = all('.panel', svg).map(panelOf), state = { view: null };
        var cross = path('cross', svg);
        function hide() { cross.removeAttribute('d'); }
        walk(svg, function () { return state.view ? state.view.c.length : 0; }, function (x) {
          var area = panels[0], count = state.view ? state.view.c.length : 0;
          return Math.max(0, Math.min(count - 1, Math.floor((x - area.left) / (area.right - area.left) * count)));
        }, function (at) {
          var view = state.view, count = view.c.length, area = panels[0], weight = weightsOf(view)[at];
          var x = place(area.x((at + 0.5) / count));
          cross.setAttribute('d', 'M' + x + ' ' + area.top + 'V' + panels[1].bottom);
          var lines = ['g ' + (at / count).toFixed(3) + ' to ' + ((at + 1) / count).toFixed(3), comma(view.c[at]) + (view.c[at] === 1 ? ' example' : ' examples')];
          if (weight !== null) lines.push('mean weight ' + number(weight));
          if (view.d) {
            var cuts = edges(view.d), middleOf = (at + 0.5) / count, region = 0;
            while (region + 1 !== view.d.length && !(middleOf < cuts[region + 1])) region += 1;
            lines.push('region ' + (region + 1) + ': v ' + number(view.v[region]) + ', W ' + number(view.W[region]));
          }
          var spot = onScreen(svg, x, area.top);
          showTip(lines, spot[0], spot[1]);
          return lines;
        }, hide);
        return { svg: svg, panels: panels, state: state };
      });
    });
    function set(svg, selector, text) {
      var node = svg.querySelector(selector);
      if (node) node.setAttribute('d', text);
    }
    function draw(part, frame) {
      var shown = parts[part][frame], holder = holders[part];
      charts[part].forEach(function (chart) {
        var view = shown.views[Number(chart.svg.dataset.view)];
        if (!view) return;
        chart.state.view = view;
        var up = chart.panels[0], down = chart.panels[1], bins = view.c.length;
        var regions = view.v && view.v.length ? view.v.length : 30;
        var text = 'M' + place(up.x(0)) + ' ' + place(up.y(0));
        view.c.forEach(function (n, at) { text += 'V' + place(up.y(n * bins / regions)) + 'H' + place(up.x((at + 1) / bins)); });
        set(chart.svg, '.area', text + 'V' + place(up.y(0)) + 'Z');
        var cuts = view.d ? edges(view.d) : [];
        set(chart.svg, '.density', steps(up.x, up.y, cuts, view.v || []));
        set(chart.svg, '.next', steps(down.x, down.y, cuts, view.W || []));
        set(chart.svg, '.aura', cuts.map(function (cut) { return 'M' + place(up.x(cut)) + ' 160v5'; }).join(''));
        set(chart.svg, '.had', steps(down.x, down.y, even(bins), weightsOf(view)));
        var everything = sum(view.c), hard = sum(view.c.slice(Math.floor(bins / 2)));
        var share = everything > 0 ? Math.round(100 * hard / everything) : 0;
        var note = comma(everything) + ' examples, ' + share + ' % with g ≥ 0.5';
        chart.svg.querySelector('.panel .said').textContent = note;
        var alt = chart.svg.getAttribute('aria-label');
        chart.svg.setAttribute('aria-label', alt.replace(/ after epoch .*/, ' after epoch ' + shown.e + ': ' + note + '. Arrow keys move through the bins.'));
      });
      var matrix = holder.querySelector('.margins');
      if (matrix) {
        var largest = Number(matrix.dataset.largest);
        all('tbody tr', matrix).forEach(function (line, row) {
          all('td', line).forEach(function (cell, at) {
            var margin = shown.m[row] ? shown.m[row][at] : undefined;
            if (margin === undefined) return;
            cell.textContent = margin.toFixed(2).replace('-0.00', '0.00').replace('-', '−');
            cell.className = 'cell m' + (largest > 0 ? Math.min(10, Math.round(10 * Math.abs(margin) / largest)) : 0);
          });
        });
      }
      var curve = holder.querySelector('svg.margin');
      if (curve) {
        var area = panelOf(curve.querySelector('.panel')), x = place(area.x(shown.e));
        set(curve, '.cursor', 'M' + x + ' ' + area.top + 'V' + area.bottom);
      }
      holder.querySelector('.epoch').textContent = 'epoch ' + shown.e;
    }
    function nearest(part, epoch) {
      var best = 0;
      parts[part].forEach(function (frame, at) {
        if (!(Math.abs(frame.e - epoch) > Math.abs(parts[part][best].e - epoch))) best = at;
      });
      return best;
    }
    function update() {
      var frame = Number(slider.value), epoch = parts[which][frame].e;
      now.textContent = 'epoch ' + epoch;
      slider.setAttribute('aria-valuetext', 'epoch ' + epoch);
      // the others follow, for those who print the page
      parts.forEach(function (frames, part) { draw(part, nearest(part, epoch)); });
    }
    function choose(part) {
      var epoch = parts[which][Number(slider.value)].e;
      which = part;
      slider.max = parts[part].length - 1;
      slider.value = nearest(part, epoch);
      holders.forEach(function (holder, at) { holder.hidden = at !== part; });
      update();
    }
    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = 'Play';
      play.setAttribute('aria-label', 'Play');
    }
    play.addEventListener('click', function () {
      if (timer !== null) { stop(); return; }
      if (Number(slider.value) === Number(slider.max)) slider.value = 0;
      update();
      play.textContent = 'Pause';
      play.setAttribute('aria-label', 'Pause');
      timer = setInterval(function () {
        slider.value = Number(slider.value) + 1;
        update();
        if (Number(slider.value) === Number(slider.max)) stop();
      }, 260);
    });
    slider.addEventListener('input', function () { stop(); update(); });
    all('input[type="radio"]', live).forEach(function (radio) {
      radio.addEventListener('change', function () { if (radio.checked) choose(Number(radio.value)); });
      // a browser may have kept another choice from before it loaded the page again
      radio.checked = Number(radio.value) === which;
    });
    slider.value = slider.max;
    choose(which);
  });
}());
