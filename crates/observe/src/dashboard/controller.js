
// --- the page of a controller ------------------------------------------------------------------
const links = new Rows('links'), classes = new Rows('classes'), sources = new Rows('sources', true);
const totals = { granted: [], waiting: [] };
const sum = (list, member) => list.reduce((n, one) => n + one[member], 0);

function showTiles(s) {
  const granted = sum(s.links, 'granted_bps'), waiting = sum(s.classes, 'waiting');
  remember(totals.granted, granted);
  remember(totals.waiting, waiting);
  big($('t-granted'), ...perSecond(granted));
  text($('t-granted-note'), `of ${perSecond(sum(s.links, 'working_bps')).join(' ')}`);
  spark($('t-granted-spark'), totals.granted);
  big($('t-waiting'), whole.format(waiting), waiting === 1 ? 'transfer' : 'transfers');
  text($('t-waiting-note'), `${whole.format(sum(s.classes, 'granted'))} granted`);
  spark($('t-waiting-spark'), totals.waiting);
  showOnTime(s.classes);
  big($('t-sources'), whole.format(s.sources.length), '');
  text($('t-sources-note'), plural(s.sources.reduce((n, one) => n + one.devices.length, 0), 'device'));
  showDatagrams(s.datagrams);
  // Without a term it stands by.
  big($('t-term'), s.superseded ? 'superseded' : s.term ? 'grants' : 'stands by', '');
  text($('t-term-note'), s.term ? `term ${s.term}` : 'another one leads');
  $('tile-term').classList.toggle('bad', s.superseded);
  text($('t-uptime'), span(s.uptime_s));
  text($('t-uptime-note'), `windows of ${whole.format(s.lease_ms)} ms at most`);
}

function showOnTime(list) {
  const [inTime, late, dropped] = ['on_time', 'late', 'dropped'].map((member) => sum(list, member));
  const all = inTime + late + dropped;
  big($('t-time'), all ? one.format(100 * inTime / all) : '–', all ? '%' : '');
  text($('t-time-note'), all ? `${whole.format(late)} late, ${whole.format(dropped)} dropped` : 'nothing was sent yet');
}

function showDatagrams(d) {
  const refused = [[d.forged, 'forged'], [d.replayed, 'replayed'], [d.unknown, 'of unknown sources'], [d.malformed, 'malformed']];
  const words = refused.filter(([n]) => n > 0).map(([n, word]) => `${whole.format(n)} ${word}`).join(', ');
  big($('t-datagrams'), whole.format(d.opened), 'heard');
  text($('t-datagrams-note'), words || `${whole.format(d.sent)} sent`);
  $('t-datagrams-note').title = words;
  $('tile-datagrams').classList.toggle('bad', d.forged > 0);
}

function drawLink(row, link) {
  const lossy = link.working_bps < link.capacity_bps;
  const [granted, working, capacity] = [link.granted_bps, link.working_bps, link.capacity_bps].map((bps) => perSecond(bps).join(' '));
  row.bar(link.granted_bps / link.capacity_bps, link.working_bps / link.capacity_bps);
  row.words(link.name, `said to carry ${capacity}`, `${granted} of ${working} granted`,
    lossy ? 'losses: less is granted than it was said to carry' : '', lossy);
}

function drawClass(row, one, most) {
  const all = one.on_time + one.late + (one.dropped || 0);
  row.bar(one.waiting / Math.max(1, most));
  row.words(one.name, all ? `${whole.format(one.on_time)} of ${whole.format(all)} on time` : '',
    `${whole.format(one.waiting)} wait, ${whole.format(one.granted)} granted`,
    all ? `${whole.format(one.late)} late, ${whole.format(one.dropped || 0)} dropped` : '', false);
}

function drawSource(row, one, widest) {
  const silent = one.silent_ms > SILENT_MS;
  row.picks(one.devices, pick);
  row.moment(one.granted_bps / Math.max(1, widest));
  row.words(one.devices.join(', ') || `source ${one.source}`, one.certificate || one.address || '',
    one.granted_bps ? `${perSecond(one.granted_bps).join(' ')} granted` : one.waiting ? `${plural(one.waiting, 'transfer')} waiting` : 'nothing asked for',
    silent ? `silent for ${span(one.silent_ms / 1000)}` : one.granted_bps && one.waiting ? `${plural(one.waiting, 'transfer')} waiting` : '', false);
}

// --- what a stream waits for: its name is picked, written, or stands in the address behind # ---------
const why = {
  asks: false,

  name() {
    try { return decodeURIComponent(location.hash.slice(1)); } catch { return ''; }
  },

  async look() {
    const name = this.name();
    $('part-why').hidden = !name;
    if (!name || this.asks) return;
    this.asks = true;
    try {
      const answer = await fetch(`/api/explain/${encodeURIComponent(name)}`);
      const said = answer.ok ? (await answer.json()).streams : [(await answer.text()).trim()];
      if (name === this.name()) this.show(name, said.length ? said : [`no source with a device ${name} is registered`]);
    } catch {
      // The connection is lost, which the page says.
    } finally { this.asks = false; }
  },

  show(name, said) {
    text($('why-title'), `What ${name} waits for`);
    const list = $('why');
    while (list.children.length > said.length) list.lastChild.remove();
    said.forEach((words, i) => text(list.children[i] || make(list, 'li', 'said-of'), words));
  },
};

function pick(name) {
  location.hash = encodeURIComponent(name === why.name() ? '' : name);
}

addEventListener('hashchange', () => { $('name').value = why.name(); why.look(); });
$('name').addEventListener('change', () => { location.hash = encodeURIComponent($('name').value.trim()); });
$('name').value = why.name();

const page = {
  peer: 'controller',
  title: (s) => `Catchment controller – ${plural(s.sources.length, 'source')}`,
  show(s) {
    const most = Math.max(...s.classes.map((one) => one.waiting)), widest = Math.max(...s.links.map((one) => one.capacity_bps));
    text($('path'), s.links.map((one) => one.name).join(', '));
    showTiles(s);
    links.show(s.links, (one) => one.name, drawLink);
    classes.show(s.classes, (one) => one.name, (row, one) => drawClass(row, one, most));
    sources.show(s.sources, (one) => one.source, (row, one) => drawSource(row, one, widest));
    $('empty').hidden = s.sources.length > 0;
    $('key').hidden = !s.sources.length;
    why.look();
  },
  restarted() { totals.granted = []; totals.waiting = []; },
  seen() {},
};
link.open();
