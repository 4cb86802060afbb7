'use strict';
// The page only reads: status events about twice a second. `page` is what is shown of them: a script of its own, after this.

const $ = (id) => document.getElementById(id);
const HISTORY = 60;          // points of a sparkline: 30 s
const MOMENTS = 128;         // of a time line: 60 s
const SILENT_MS = 3000;      // no status for so long: the connection is lost

// --- words and numbers -------------------------------------------------------------------------
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const fixed = (digits) => new Intl.NumberFormat('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
const one = fixed(1), two = fixed(2);
const short = (n) => (n >= 1000 ? whole : n >= 100 ? one : two).format(n);

function micros(us) {
  if (us == null) return ['–', ''];
  if (us < 1000) return [us < 10 ? one.format(us) : whole.format(us), 'µs'];
  if (us < 1e6) return [us < 1e4 ? two.format(us / 1e3) : one.format(us / 1e3), 'ms'];
  return [two.format(us / 1e6), 's'];
}

function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}

function bytes(n) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB', 'PB'];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i++; }
  return `${i === 0 ? whole.format(n) : short(n)} ${units[i]}`;
}

// Text goes into the page as text, never as HTML: names come from other machines.
function text(node, value) { if (node.textContent !== value) node.textContent = value; }

function big(node, value, unit) {
  const key = `${value} ${unit}`;
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(value);
  if (unit) {
    const small = document.createElement('small');
    small.textContent = ` ${unit}`;
    node.append(small);
  }
}

function spark(svg, values) {
  const w = Math.max(values.length, 20) - 1, h = 24, top = Math.max(...values, 1e-9) * 1.15;
  svg.setAttribute('viewBox', `0 0 ${w} ${h}`);
  const first = w + 1 - values.length;
  const line = values.map((v, i) => `${i ? 'L' : 'M'}${first + i} ${(h - v / top * h).toFixed(2)}`).join('');
  svg.querySelector('.line').setAttribute('d', line);
  svg.querySelector('.fill').setAttribute('d', values.length > 1 ? `${line}L${w} ${h}L${first} ${h}Z` : '');
}

function perSecond(bits) {
  const [n, unit] = bits >= 1e9 ? [bits / 1e9, 'Gbit/s'] : bits >= 1e6 ? [bits / 1e6, 'Mbit/s'] : [bits / 1e3, 'kbit/s'];
  return [short(n), unit];
}

const plural = (n, word) => `${whole.format(n)} ${word}${n === 1 ? '' : 's'}`;

function remember(history, value) {
  history.push(value);
  if (history.length > HISTORY) history.shift();
}

// --- lists of rows with a bar or a time line -----------------------------------------------------
function make(parent, tag, name) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  parent.append(node);
  return node;
}

// A row: its name and a note below that, a bar or a time line, what it says and a note.
class Row {
  constructor(timed) {
    this.node = document.createElement('div');
    this.node.className = 'item';
    const [first, middle, last] = [0, 0, 0].map(() => make(this.node, 'div'));
    [this.name, this.below] = [make(first, 'span', 'name'), make(first, 'small')];
    [this.said, this.note] = [make(last, 'span'), make(last, 'small')];
    this.history = [];
    if (timed) { this.canvas = make(middle, 'canvas', 'time'); return; }
    this.meter = make(middle, 'div', 'meter');
    [this.fill, this.mark] = [make(this.meter, 'i'), make(this.meter, 'b')];
  }

  // Fills the bar to a part of it, and marks another part.
  bar(part, mark) {
    this.fill.style.width = `${100 * Math.min(1, Math.max(0, part || 0))}%`;
    this.mark.hidden = mark == null;
    if (mark != null) this.mark.style.left = `${100 * Math.min(1, mark)}%`;
  }

  // Adds a moment to the time line: 0 is nothing, 1 is all.
  moment(part) {
    this.history.push(Math.min(1, Math.max(0, part || 0)));
    if (this.history.length > MOMENTS) this.history.shift();
    const [c, color] = [this.canvas, getComputedStyle(document.body).getPropertyValue('--accent')];
    [c.width, c.height] = [MOMENTS, 20];
    const pen = c.getContext('2d');
    pen.fillStyle = color;
    const first = MOMENTS - this.history.length;
    this.history.forEach((value, i) => {
      if (value <= 0) return;
      pen.globalAlpha = .35 + .65 * value;
      pen.fillRect(first + i, 20 - 20 * Math.max(.15, value), 1, 20);
    });
  }

  // Puts names that can be picked where the name is; `words` is given them joined by commas.
  picks(names, pick) {
    if (this.name.textContent === names.join(', ')) return;
    this.name.replaceChildren(...names.flatMap((name, i) => {
      const button = document.createElement('button');
      [button.type, button.textContent] = ['button', name];
      button.addEventListener('click', () => pick(name));
      return i ? [', ', button] : [button];
    }));
  }

  words(name, below, said, note, bad) {
    for (const [node, word] of [[this.name, name], [this.below, below], [this.said, said], [this.note, note]]) text(node, word);
    this.node.classList.toggle('bad', !!bad);
  }
}

// Rows by key, in the order in which they are given.
class Rows {
  constructor(id, timed) { [this.list, this.timed, this.rows] = [$(id), timed, new Map()]; }

  show(items, key, draw) {
    const wanted = new Map(items.map((item) => [key(item), item]));
    for (const [known, row] of this.rows) if (!wanted.has(known)) { row.node.remove(); this.rows.delete(known); }
    [...wanted].forEach(([known, item], i) => {
      let row = this.rows.get(known);
      if (!row) this.rows.set(known, row = new Row(this.timed));
      if (this.list.children[i] !== row.node) this.list.insertBefore(row.node, this.list.children[i] || null);
      draw(row, item);
    });
    this.list.hidden = !wanted.size;
  }
}

// --- the connection ----------------------------------------------------------------------------
const link = {
  alive: false, heard: 0, uptime: 0, events: null,

  open() {
    if (this.events || document.hidden) return;
    this.heard = this.heard || performance.now();
    this.events = new EventSource('/api/events');
    this.events.addEventListener('status', (event) => this.status(JSON.parse(event.data)));
    this.events.onerror = () => { this.close(); this.lost(); setTimeout(() => this.open(), 1500); };
  },

  close() {
    if (this.events) this.events.close();
    this.events = null;
  },

  status(status) {
    if (status.error) { this.lost(status.error); return; }
    if (status.uptime_s < this.uptime) page.restarted();
    this.uptime = status.uptime_s;
    this.alive = true;
    this.heard = performance.now();
    document.body.dataset.state = 'live';
    text($('state'), 'live');
    $('banner').hidden = true;
    document.title = page.title(status);
    page.show(status);
  },

  lost(reason) {
    this.alive = false;
    document.body.dataset.state = 'lost';
    text($('state'), 'connection lost');
    $('banner').hidden = false;
    const ago = this.uptime ? ` The numbers below are ${span((performance.now() - this.heard) / 1000)} old.` : '';
    text($('banner'), reason ? `The ${page.peer} does not say how it stands: ${reason}.${ago}` : `Connection to the ${page.peer} lost, retrying.${ago}`);
    document.title = 'Catchment – connection lost';
  },
};

setInterval(() => {
  if (!document.hidden && performance.now() - link.heard > SILENT_MS) link.lost();
}, 1000);

document.addEventListener('visibilitychange', () => {
  if (document.hidden) { link.close(); return; }
  link.heard = performance.now();
  link.open();
  page.seen();
});
