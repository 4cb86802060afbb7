// The page of a collector: pictures, too, of the cards on screen.

const PICTURE_MS = 250;      // the server makes at most 4 pictures a second
const STALLED_MS = 3000;     // a connected device without a frame for so long is shown as idle

// --- one device --------------------------------------------------------------------------------
const FAULTS = [
  ['lost_missing', 'lost', true],
  ['lost_damaged', 'damaged and lost', true],
  ['lost_sink', 'lost in the sink', true],
  ['checksum_errors', 'bad checksum', true],
  ['sink_errors', 'not stored', true],
  ['frames_skipped', 'dropped at source', false],
  ['frames_duplicate', 'duplicate', false],
  ['frames_capture_ahead', 'captured in the future', false],
];
// A source may drop frames without one arriving after them: then only its report tells.
const dropped = (d) => Math.max(d.frames_skipped, d.source_dropped_oldest + d.source_dropped_newest + d.source_dropped_reconnect);

class Card {
  constructor(name) {
    this.name = name;
    this.node = $('card').content.firstElementChild.cloneNode(true);
    this.node.card = this;
    this.find = (selector) => this.node.querySelector(selector);
    text(this.find('h2'), name);
    this.find('h2').title = name;
    this.canvas = this.find('canvas');
    this.canvas.setAttribute('aria-label', `picture of ${name}`);
    this.rates = [];
    this.visible = false;
    this.fetching = false;
    this.tag = '';
    watcher.observe(this.node);
  }

  update(device, now) {
    this.device = device;
    if (device.recent) remember(this.rates, device.recent.frames_per_s);
    const silent = now - device.last_frame_unix_ms;
    this.gone = !device.connected;
    this.idle = device.connected && silent > STALLED_MS;
    this.silent = device.last_frame_unix_ms ? silent : null;
    this.trouble = device.frames_lost + device.checksum_errors + device.sink_errors > 0 || this.idle;
    if (this.visible) this.render();
  }

  render() {
    const d = this.device, recent = d.recent;
    this.node.classList.toggle('idle', this.idle);
    this.node.classList.toggle('gone', this.gone);
    this.node.classList.toggle('trouble', this.trouble);
    text(this.find('.format'), d.format);
    text(this.find('.fps'), recent ? one.format(recent.frames_per_s) : '–');
    text(this.find('.mbs'), recent ? short(recent.bytes_per_s / 1e6) : '–');
    const latency = recent && recent.latency_us_p50 != null ? recent : d;
    text(this.find('.p50'), micros(latency.latency_us_p50).join(' ').trim());
    text(this.find('.p99'), micros(latency.latency_us_p99).join(' ').trim());
    text(this.find('.badge'), this.badge());
    text(this.find('.none'), this.tag ? '' : d.has_preview ? (this.silent == null ? 'waiting for the first frame' : 'waiting for a picture') : 'no picture for this format');
    spark(this.find('.spark'), this.rates);
    this.renderFaults();
  }

  badge() {
    if (this.gone) return 'source gone';
    if (!this.idle) return '';
    return this.silent == null ? 'no frame yet' : `no frame for ${span(this.silent / 1000)}`;
  }

  renderFaults() {
    const d = { ...this.device, frames_skipped: dropped(this.device) };
    const found = FAULTS.filter(([key]) => d[key] > 0);
    const key = found.map(([key]) => d[key]).join();
    if (this.faultsKey === key) return;
    this.faultsKey = key;
    this.find('.faults').replaceChildren(...found.map(([key, word, bad]) => {
      const item = document.createElement('li');
      item.textContent = `${whole.format(d[key])} ${word}`;
      item.classList.toggle('bad', bad);
      return item;
    }));
  }

  show(visible) {
    this.visible = visible;
    if (!visible) return;
    if (this.device) this.render();
    this.follow();
  }

  // Fetches pictures as long as the card is on screen, one at a time.
  async follow() {
    if (this.fetching) return;
    this.fetching = true;
    while (this.visible && !document.hidden && this.node.isConnected) {
      const started = performance.now();
      if (this.device && this.device.has_preview && link.alive) await this.picture().catch(() => {});
      await pause(Math.max(50, PICTURE_MS - (performance.now() - started)));
    }
    this.fetching = false;
  }

  async picture() {
    const url = `/api/preview/${encodeURIComponent(this.name)}.png`;
    const answer = await fetch(url, { cache: 'no-store', headers: this.tag ? { 'If-None-Match': this.tag } : {} });
    if (answer.status !== 200) return;
    const bitmap = await createImageBitmap(await answer.blob());
    if (this.canvas.width !== bitmap.width) this.canvas.width = bitmap.width;
    if (this.canvas.height !== bitmap.height) this.canvas.height = bitmap.height;
    this.canvas.getContext('2d').drawImage(bitmap, 0, 0);
    bitmap.close();
    this.tag = answer.headers.get('ETag') || '-';
  }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) entry.target.card.show(entry.isIntersecting);
}, { rootMargin: '120px' });

// --- all devices -------------------------------------------------------------------------------
const cards = new Map();
const natural = new Intl.Collator('en', { numeric: true });
const ORDERS = {
  name: () => 0,
  rate: (a, b) => rate(b) - rate(a),
  latency: (a, b) => (b.device.latency_us_p99 ?? -1) - (a.device.latency_us_p99 ?? -1),
  trouble: (a, b) => faults(b) - faults(a),
};
const rate = (card) => card.device.recent ? card.device.recent.bytes_per_s : 0;
const faults = (card) => card.device.frames_lost + card.device.checksum_errors + card.device.sink_errors + (card.idle ? 0.5 : 0);

function showDevices(status) {
  const seen = new Set();
  for (const device of status.devices) {
    seen.add(device.name);
    let card = cards.get(device.name);
    if (!card) cards.set(device.name, card = new Card(device.name));
    card.update(device, status.unix_ms);
  }
  for (const [name, card] of cards) {
    if (seen.has(name)) continue;
    watcher.unobserve(card.node);
    card.node.remove();
    cards.delete(name);
  }
  arrange();
}

// Puts the wanted cards into the grid in order; touches the page only where that changes something.
function arrange() {
  const wanted = $('filter').value.trim().toLowerCase(), only = $('trouble').checked;
  const matches = (card) => `${card.name} ${card.device.format}`.toLowerCase().includes(wanted);
  const order = ORDERS[$('sort').value];
  const list = [...cards.values()]
    .filter((card) => matches(card) && (!only || card.trouble))
    .sort((a, b) => order(a, b) || natural.compare(a.name, b.name));
  const grid = $('grid');
  list.forEach((card, i) => {
    if (grid.children[i] !== card.node) grid.insertBefore(card.node, grid.children[i] || null);
  });
  while (grid.children.length > list.length) grid.lastElementChild.remove();
  const troubled = [...cards.values()].filter((card) => card.trouble).length;
  text($('trouble-count'), troubled ? `(${troubled})` : '');
  $('tools').hidden = cards.size < 2;
  showEmpty(list.length);
}

function showEmpty(shown) {
  $('empty').hidden = shown > 0;
  if (shown > 0) return;
  text($('empty'), cards.size ? 'No device matches.' : 'No device yet. The collector waits for sources: start one with “catchment send”.');
}

// --- the header --------------------------------------------------------------------------------
const totals = { frames: [], bits: [] };

function showTotals(s) {
  const connected = s.devices.filter((d) => d.connected).length;
  big($('t-devices'), whole.format(s.devices.length), '');
  text($('t-devices-note'), connected === s.devices.length ? `${s.sessions_open} session${s.sessions_open === 1 ? '' : 's'}` : `${connected} connected`);
  showRates(s);
  const recent = s.recent && s.recent.latency_us_p99 != null ? s.recent : s;
  big($('t-latency'), ...micros(recent.latency_us_p50 ?? s.latency_us_p50));
  text($('t-latency-note'), `p99 ${micros(recent.latency_us_p99 ?? s.latency_us_p99).join(' ')}`);
  showLost(s.totals);
  big($('t-cpu'), s.cpu ? one.format(s.cpu.cpu_percent) : '–', '%');
  text($('t-cpu-note'), s.cpu ? `of one core, ${bytes(s.cpu.rss_bytes)}` : '');
  text($('t-uptime'), span(s.uptime_s));
  text($('t-uptime-note'), `version ${s.version}`);
  showPath(s.paths);
  showNetwork(s);
}

function showRates(s) {
  text($('t-frames-note'), `${whole.format(s.totals.frames_received)} in all`);
  text($('t-bits-note'), `${bytes(s.totals.bytes_received)} in all`);
  if (!s.recent) return;
  remember(totals.frames, s.recent.frames_per_s);
  remember(totals.bits, s.recent.bytes_per_s);
  const frames = s.recent.frames_per_s;
  big($('t-frames'), (frames < 1000 ? one : whole).format(frames), '');
  big($('t-bits'), two.format(s.recent.bytes_per_s * 8 / 1e9), 'Gb/s');
  spark($('t-frames-spark'), totals.frames);
  spark($('t-bits-spark'), totals.bits);
}

function showLost(t) {
  big($('t-lost'), whole.format(t.frames_lost), t.frames_lost === 1 ? 'frame' : 'frames');
  const others = [
    [dropped(t), 'dropped at source'], [t.checksum_errors, 'bad checksums'], [t.sink_errors, 'not stored'],
  ].filter(([n]) => n > 0).map(([n, word]) => `${whole.format(n)} ${word}`);
  text($('t-lost-note'), others.join(', ') || 'none dropped on purpose');
  $('t-lost-note').title = others.join(', ');
  $('tile-lost').classList.toggle('bad', t.frames_lost + t.checksum_errors + t.sink_errors > 0);
}

function showPath(paths) {
  const used = paths.filter((p) => p.sessions_open > 0);
  const shown = (used.length ? used : paths).map((p) => {
    const name = document.createElement('b');
    name.textContent = p.source_provider === p.provider ? p.provider : `${p.source_provider} to ${p.provider}`;
    const item = document.createElement('span');
    item.append(name, ` – ${p.reason}`, used.length > 1 ? ` (${p.sessions_open})` : '');
    return item;
  });
  const key = shown.map((item) => item.textContent).join(';');
  if ($('path').dataset.key === key) return;
  $('path').dataset.key = key;
  $('path').replaceChildren(...(shown.length ? ['provider: ', ...shown.flatMap((item, i) => i ? [', ', item] : [item])] : []));
}

// Sessions one by one, and what the RoCE devices count. Built only while it is open.
function showNetwork(s) {
  const sum = (field) => s.roce.reduce((n, d) => n + d[field], 0);
  const dropped = s.roce.reduce((n, d) => n + Object.values(d.dropped).reduce((a, b) => a + b, 0), 0);
  const parts = [`${whole.format(s.sessions_open)} session${s.sessions_open === 1 ? '' : 's'}`];
  if (s.roce.length) {
    parts.push(`${whole.format(sum('packets_received'))} RoCE packets received`, `${whole.format(sum('packets_sent'))} sent`,
      `${whole.format(sum('retransmitted'))} sent again`, `${whole.format(dropped)} dropped`);
  }
  $('network').hidden = !s.sessions.length && !s.roce.length;
  text($('network-sum'), parts.join(', '));
  if (!$('network').open) return;
  const rows = [...s.sessions.map(sessionLine), ...s.roce.map(roceLine)].map((line) => {
    const row = document.createElement('li');
    row.textContent = line;
    return row;
  });
  $('network-rows').replaceChildren(...rows);
}

function sessionLine(s) {
  const end = (provider, address, gid, qpn) => `${provider} at ${address ?? gid} (QPN ${qpn})`;
  const way = `${end(s.source_provider, s.source_address, s.source_gid, s.source_qpn)} to ${end(s.provider, s.collector_address, s.collector_gid, s.collector_qpn)}`;
  const mtu = s.path_mtu == null ? '' : `, path MTU ${s.path_mtu}`;
  return `${s.peer}: ${s.devices} device${s.devices === 1 ? '' : 's'}, ${way}${mtu}${s.recovery ? `, ${s.recovery}` : ''}`;
}

function roceLine(d) {
  const why = Object.entries(d.dropped).map(([reason, n]) => `${reason} ${whole.format(n)}`).join(', ');
  const trains = d.gso && d.gro ? 'trains' : 'no trains';
  return `RoCE ${d.device}: ${d.queue_pairs} queue pairs, received ${whole.format(d.packets_received)}, sent ${whole.format(d.packets_sent)}, `
    + `sent again ${whole.format(d.retransmitted)}, timeouts ${whole.format(d.timeouts)}, dropped ${why || 'none'}, ${trains}`;
}

// --- the page ----------------------------------------------------------------------------------
const page = {
  peer: 'collector',
  title: (status) => `Catchment – ${status.devices.length} devices`,
  show(status) { showTotals(status); showDevices(status); },
  restarted() { for (const card of cards.values()) { card.rates = []; card.tag = ''; } },
  seen() { for (const card of cards.values()) if (card.visible) card.follow(); },
};
for (const id of ['filter', 'sort', 'trouble']) $(id).addEventListener('input', arrange);
link.open();
