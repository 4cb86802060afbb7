
// --- the page of a source ----------------------------------------------------------------------
const devices = new Rows('devices', true);
let totals = { bytes: [], held: [] };
let before = null;           // uptime, and what each device had sent by then
let rates = new Map();       // bits a second, by device
let fastest = 1;

const STANDING = {
  granted: ['granted', false], waiting: ['waiting', false], safe_rate: ['at safe rate', true],
  stopped: ['stopped', true], free: ['without leave', true], unregistered: ['not registered', true],
};
const droppedOf = (one) => one.dropped_oldest + one.dropped_newest + one.dropped_reconnect + one.dropped_late;

// Rates are of the time between two statuses; the same status may come twice.
function measure(s) {
  const now = new Map(s.devices.map((one) => [one.name, one.bytes_sent]));
  if (before && s.uptime_s > before.uptime_s) {
    const seconds = s.uptime_s - before.uptime_s;
    rates = new Map(s.devices.map((one) => [one.name, 8 * (one.bytes_sent - (before.sent.get(one.name) || 0)) / seconds]));
    fastest = Math.max(fastest, ...rates.values());
  }
  if (!before || s.uptime_s > before.uptime_s) before = { uptime_s: s.uptime_s, sent: now };
}

function showTiles(s) {
  const t = s.totals, rate = [...rates.values()].reduce((n, one) => n + one, 0);
  remember(totals.bytes, rate);
  big($('t-bytes'), ...perSecond(rate));
  text($('t-bytes-note'), `${plural(t.frames_sent, 'frame')}, ${bytes(t.bytes_sent)} in all`);
  spark($('t-bytes-spark'), totals.bytes);
  const causes = [['dropped_oldest', 'oldest'], ['dropped_newest', 'newest'], ['dropped_reconnect', 'at a reconnect'], ['dropped_late', 'too late']];
  const words = causes.filter(([member]) => t[member] > 0).map(([member, word]) => `${whole.format(t[member])} ${word}`).join(', ');
  big($('t-dropped'), whole.format(droppedOf(t)), '');
  text($('t-dropped-note'), words || 'nothing was dropped');
  big($('t-lost'), whole.format(t.frames_lost), '');
  text($('t-lost-note'), t.frames_lost ? 'could not be delivered' : 'as far as is known');
  $('tile-lost').classList.toggle('bad', t.frames_lost > 0);
  big($('t-session'), s.session ? s.session.source_provider : 'none', '');
  text($('t-session-note'), s.session ? s.session.peer : 'looking for it');
  $('tile-session').classList.toggle('bad', !s.session);
  text($('t-uptime'), span(s.uptime_s));
  text($('t-uptime-note'), s.reconnects ? plural(s.reconnects, 'reconnect') : 'never reconnected');
}

function showGrant(s) {
  const g = s.grant;
  $('tile-grant').hidden = $('tile-held').hidden = $('tile-missed').hidden = !g;
  if (!g) return;
  const [word, bad] = STANDING[g.standing] || [g.standing, false];
  big($('t-grant'), word, '');
  text($('t-grant-note'), `for ${span((s.unix_ms - g.since_unix_ms) / 1000)}; ${plural(g.grants, 'window')} granted`);
  $('tile-grant').classList.toggle('bad', bad);
  remember(totals.held, g.blocks_waiting);
  big($('t-held'), whole.format(g.blocks_waiting), g.blocks_waiting === 1 ? 'block' : 'blocks');
  text($('t-held-note'), `${span(g.waited_ms / 1000)} waited in all`);
  spark($('t-held-spark'), totals.held);
  big($('t-missed'), whole.format(s.totals.deadlines_missed), '');
  text($('t-missed-note'), g.safe_rate_bps ? `safe rate ${perSecond(g.safe_rate_bps).join(' ')}` : 'no safe rate');
}

function drawDevice(row, one) {
  const rate = rates.get(one.name) || 0, dropped = droppedOf(one);
  row.moment(rate / fastest);
  const faults = [[one.frames_lost, 'lost'], [dropped, 'dropped'], [one.deadlines_missed, 'past their deadline']];
  row.words(one.name, one.format, `${perSecond(rate).join(' ')}, ${plural(one.frames_sent, 'frame')}`,
    faults.filter(([n]) => n > 0).map(([n, word]) => `${whole.format(n)} ${word}`).join(', '), one.frames_lost > 0);
}

const page = {
  peer: 'source',
  title: (s) => `Catchment source – ${plural(s.devices.length, 'device')}`,
  show(s) {
    measure(s);
    text($('path'), s.session ? s.session.reason : '');
    showTiles(s);
    showGrant(s);
    devices.show(s.devices, (one) => one.name, drawDevice);
    $('key').hidden = !s.devices.length;
  },
  restarted() { totals = { bytes: [], held: [] }; before = null; fastest = 1; },
  seen() {},
};
link.open();
