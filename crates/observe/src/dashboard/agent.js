
// --- the page of an agent ----------------------------------------------------------------------
const apps = new Rows('apps'), peers = new Rows('peers', true);
const totals = { bytes: [], waiting: [] };
const sum = (list, member) => list.reduce((n, one) => n + one[member], 0);
const percent = (part) => `${one.format(100 * part)} %`;
const figures = (n) => String(Number(n.toPrecision(3)));
const nameOf = (app) => `${app.application} ${app.process}`;

function showTiles(s) {
  const bytesPerS = sum(s.rates, 'bytes_per_s'), waiting = sum(s.accounts, 'waiting');
  remember(totals.bytes, bytesPerS);
  remember(totals.waiting, waiting);
  big($('t-bytes'), ...perSecond(8 * bytesPerS));
  text($('t-bytes-note'), `${bytes(sum(s.accounts, 'bytes'))} in all`);
  spark($('t-bytes-spark'), totals.bytes);
  big($('t-waiting'), whole.format(waiting), waiting === 1 ? 'request' : 'requests');
  text($('t-waiting-note'), `${whole.format(sum(s.accounts, 'done'))} done`);
  spark($('t-waiting-spark'), totals.waiting);
  const [failed, refused] = [sum(s.accounts, 'failed'), sum(s.accounts, 'refused')];
  big($('t-failed'), whole.format(failed), failed === 1 ? 'request' : 'requests');
  text($('t-failed-note'), refused ? `${whole.format(refused)} entries refused` : 'none refused');
  $('tile-failed').classList.toggle('bad', refused > 0);
  big($('t-apps'), whole.format(s.accounts.length), '');
  text($('t-apps-note'), `${plural(sum(s.accounts, 'queue_pairs'), 'queue pair')}, ${bytes(sum(s.accounts, 'memory_bytes'))}`);
  showRounds(s.rounds, s.peers);
}

function showRounds(rounds, list) {
  $('tile-rounds').hidden = $('tile-prices').hidden = !rounds;
  $('tile-peers').hidden = $('part-peers').hidden = !list.length;
  const there = list.filter((one) => one.connected).length;
  big($('t-peers'), whole.format(there), there === list.length ? '' : `of ${whole.format(list.length)}`);
  text($('t-peers-note'), `${plural(sum(list, 'connections'), 'connection')} on ${plural(sum(list, 'queue_pairs'), 'shared queue pair')}`);
  if (!rounds) return;
  big($('t-rounds'), whole.format(rounds.rounds), '');
  const gap = rounds.gap == null ? 'no certificate yet' : `at most ${percent(rounds.gap)} from the best at these`;
  big($('t-price'), figures(rounds.sending_price), 'sending');
  text($('t-price-note'), `${figures(rounds.completing_price)} completing; ${gap}`);
  const moves = rounds.still ? 'still' : `moving by ${percent(rounds.residual)}`;
  const back = rounds.fell_back ? `; fell back ${plural(rounds.fell_back, 'time')}` : '';
  const [working, stated] = [rounds.working_bytes_per_s, rounds.send_bytes_per_s];
  const less = working < stated ? `; sends ${perSecond(8 * working).join(' ')} of ${perSecond(8 * stated).join(' ')}` : '';
  text($('t-rounds-note'), `${moves}, ${whole.format(rounds.since_change)} since the last change${back}${less}`);
}

// Where rates are agreed with other hosts, bars are bytes a second; else parts of what all had.
function drawApp(row, account, rate, fastest) {
  const measured = rate ? rate.bytes_per_s : 0, agreed = account.rate_bytes_per_s > 0;
  const part = rate && rate.measured_share != null ? rate.measured_share : 0;
  const decided = agreed ? account.rate_bytes_per_s / fastest : account.share > 0 ? account.share : null;
  row.bar(agreed ? measured / fastest : part, decided);
  const word = agreed ? `${perSecond(8 * account.rate_bytes_per_s).join(' ')} agreed` : account.share > 0 ? `${percent(account.share)} decided` : 'as it comes';
  const binds = !rate ? '' : rate.binds === 'demand' ? 'asks for no more' : rate.binds === 'maximum' ? 'has the most that the policy allows' : rate.price > 0 ? `bound by the device, price ${short(rate.price)}` : 'bound by the device';
  const faults = [[account.failed, 'failed'], [account.refused, 'refused']].filter(([n]) => n > 0).map(([n, word]) => `${whole.format(n)} ${word}`);
  row.words(account.application, `process ${account.process}, weight ${account.weight}`,
    `${perSecond(8 * measured).join(' ')}${agreed ? '' : `, ${percent(part)}`}; ${word}`,
    [`${plural(account.waiting, 'request')} waiting`, binds, ...faults].filter(Boolean).join(', '), account.refused > 0);
}

function drawPeer(row, peer) {
  row.moment(peer.connected ? 1 : 0);
  const price = peer.completing_price == null ? '' : `price of completing there ${figures(peer.completing_price)}`;
  const way = { write: 'rounds by WRITEs', session: 'rounds by the session' }[peer.by] || '';
  const host = peer.host == null ? '' : `host ${peer.host}, epoch ${peer.epoch}`;
  row.words(peer.name || peer.address || '?', host,
    peer.connected ? `${plural(peer.connections, 'connection')} on ${plural(peer.queue_pairs, 'shared queue pair')}` : 'no session',
    peer.connected ? [price, way, peer.failed ? `${plural(peer.failed, 'queue pair')} failed and replaced` : ''].filter(Boolean).join(', ') : peer.reason, !peer.connected);
}

const page = {
  peer: 'agent',
  title: (s) => `Catchment agent ${s.agent} – ${plural(s.accounts.length, 'application')}`,
  show(s) {
    const rates = new Map(s.rates.map((rate) => [nameOf(rate), rate]));
    const fastest = Math.max(1, ...s.accounts.map((one) => one.rate_bytes_per_s), ...s.rates.map((one) => one.bytes_per_s));
    text($('path'), `${s.agent}, alpha ${s.alpha}`);
    showTiles(s);
    apps.show(s.accounts, nameOf, (row, account) => drawApp(row, account, rates.get(nameOf(account)), fastest));
    peers.show(s.peers, (one) => one.host ?? one.address ?? one.name, drawPeer);
    $('empty').hidden = s.accounts.length > 0;
    $('key').hidden = !s.accounts.length;
  },
  restarted() {},
  seen() {},
};
link.open();
