
// ---- the table of all classes: sorting and searching

all('table.class-table').forEach(function (table) {
  var body = table.tBodies[0], heads = all('thead th', table), find = doc.getElementById(table.id + '-find');
  var found = doc.getElementById(table.id + '-found'), embedded = jsonOf(table.id + '-data');
  var rows, maxRows = Infinity, variants = Number(table.dataset.columns);
  function value(cell) {
    var text = cell.dataset.value === undefined ? cell.textContent : cell.dataset.value;
    return cell.classList.contains('num') ? (text === 'n/a' ? null : Number(text)) : text;
  }
  if (embedded) {
    maxRows = embedded.rows;
    rows = embedded.names.map(function (name, index) {
      var values = embedded.values.map(function (column) { return column[index]; });
      var differences = values.slice(1).map(function (x) { return x === null || values[0] === null ? null : x - values[0]; });
      var group = embedded.group[index];
      var start = [name, group === -1 ? '' : embedded.groups[group], embedded.train[index], embedded.test[index]];
      var intervals = embedded.low.map(function (low, variant) { return [low[index], embedded.high[variant][index]]; });
      return { keys: start.concat(values, differences), intervals: intervals, node: null };
    });
  } else {
    rows = all('tr', body).map(function (node) { return { keys: all('th, td', node).map(value), node: node }; });
  }
  rows.forEach(function (row, index) { row.index = index; row.text = (row.keys[0] + ' ' + row.keys[1]).toLowerCase(); });
  function format(key, column) {
    if (key === null) return 'n/a';
    if (column === 2 || column === 3) return thousands(key);
    if (4 + variants > column) return key.toFixed(1);
    return ((key < 0 ? '' : '+') + key.toFixed(1)).replace(/^[-+]0\.0$/, '0.0').replace('-', '−');
  }
  function nodeOf(row) {
    if (row.node) return row.node;
    var line = create('tr');
    row.keys.forEach(function (key, column) {
      var cell = create(column === 0 ? 'th' : 'td', undefined, column > 1 ? 'num' : '');
      if (column > 1) {
        cell.textContent = format(key, column);
        var interval = row.intervals && row.intervals[column - 4];
        if (column > 3 && interval && interval[0] !== null) {
          cell.appendChild(create('small', interval[0].toFixed(1) + '–' + interval[1].toFixed(1), 'interval'));
        }
      } else {
        if (column === 0) cell.scope = 'row';
        cell.appendChild(create('bdi', key.length > 60 ? Array.from(key).slice(0, 59).join('') + '…' : key));
      }
      line.appendChild(cell);
    });
    row.node = line;
    return line;
  }
  var order = rows.slice(), sortedBy = -1, isDescending = false;
  function draw() {
    var query = find.value.toLowerCase().trim();
    var matches = order.filter(function (row) { return row.text.indexOf(query) !== -1; });
    var nodes = matches.slice(0, maxRows).map(nodeOf);
    body.textContent = '';
    nodes.forEach(function (node) { body.appendChild(node); });
    var text = thousands(matches.length) + (matches.length === 1 ? ' class' : ' classes');
    if (matches.length > maxRows) text += ', the first ' + maxRows + ' shown';
    found.textContent = text;
  }
  heads.forEach(function (head, column) {
    head.querySelector('button').addEventListener('click', function () {
      isDescending = sortedBy === column ? !isDescending : column > 1;
      sortedBy = column;
      heads.forEach(function (other) { other.removeAttribute('aria-sort'); });
      head.setAttribute('aria-sort', isDescending ? 'descending' : 'ascending');
      order.sort(function (a, b) {
        var x = a.keys[column], y = b.keys[column];
        if (x === y) return a.index - b.index;
        // missing values are last in either direction
        if (x === null) return 1;
        if (y === null) return -1;
        var less = typeof x === 'string' ? x.localeCompare(y) : x - y;
        return (isDescending ? -less : less) || a.index - b.index;
      });
      draw();
    });
  });
  find.addEventListener('input', draw);
  draw();
});
