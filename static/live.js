// The poll pump (DASHBOARD.md, section 7). A region with data-live="ms" and hx-trigger="live" is asked for again and
// again: sooner when something changed, later when nothing did, not at all while the page is hidden.
(() => {
  const pumps = new WeakMap();
  const base = (region) => Number(region.dataset.live) || 2000;
  const cap = (region) => Number(region.dataset.liveMax) || 30000;
  const regions = () => document.querySelectorAll('[data-live]');
  const jitter = () => 0.9 + Math.random() * 0.2;

  const pumpOf = (region) => {
    if (!pumps.has(region)) pumps.set(region, { wait: base(region), timer: 0, busy: false });
    return pumps.get(region);
  };

  const arm = (region, ms) => {
    const pump = pumpOf(region);
    clearTimeout(pump.timer);
    pump.timer = setTimeout(() => fire(region), ms * jitter());
  };

  // A hidden page asks for nothing, unless its reader wants to be told (notify.js): then as slowly as it ever does.
  const tells = () => document.documentElement.hasAttribute('data-tells');

  const fire = (region) => {
    if (!region.isConnected || !region.dataset.live || (document.hidden && !tells())) return;
    const pump = pumpOf(region);
    if (pump.busy) return;
    pump.busy = true;
    htmx.trigger(region, 'live');
  };

  const scan = () => regions().forEach((region) => { if (!pumps.has(region)) arm(region, base(region)); });

  const wake = () => {
    if (document.hidden) {
      if (tells()) regions().forEach((region) => arm(region, cap(region)));
      return;
    }
    regions().forEach((region) => {
      const pump = pumpOf(region);
      pump.wait = base(region);
      if (!pump.busy) arm(region, 0);
    });
  };

  // After each request, whatever became of it: 200 begins anew, 304 waits longer, trouble waits twice as long. The last
  // one takes the poll away; it counts as an answer all the same.
  document.addEventListener('htmx:finally:request', (event) => {
    const region = event.detail.ctx?.sourceElement;
    if (!pumps.has(region)) return;
    const pump = pumpOf(region);
    const response = event.detail.ctx.response;
    const status = response?.status ?? 0;
    const growth = status === 304 ? 1.3 : 2;
    pump.busy = false;
    pump.wait = status === 200 ? base(region) : Math.min(pump.wait * growth, cap(region));
    const asked = Number(response?.headers?.get('Retry-After') ?? 0) * 1000;
    reached(status === 200 || status === 304, response);
    if (region.dataset.live) arm(region, Math.max(document.hidden ? cap(region) : pump.wait, asked));
  });

  // The bar that says so when the server is away: what is shown stays, with its time.
  let last = new Date();
  const reached = (well, response) => {
    const bar = document.getElementById('offline');
    if (well) last = new Date();
    if (bar) {
      bar.hidden = well;
      if (!well) bar.textContent = `Reconnecting, last update ${last.toLocaleTimeString()}`;
    }
    document.documentElement.toggleAttribute('data-offline', !well);
    const build = response?.headers?.get('X-Build');
    const newer = document.getElementById('newer-build');
    if (newer && build) newer.hidden = build === document.documentElement.dataset.build;
    beat();
  };

  const beat = () => {
    const sign = document.getElementById('beat');
    if (!sign) return;
    const living = regions().length > 0 && !document.documentElement.hasAttribute('data-offline');
    sign.hidden = !living;
    if (living && sign.textContent !== 'Live') sign.textContent = 'Live';
  };

  // Clocks: data-since is epoch milliseconds by the server; its Date header tells how far off this clock is.
  const skew = () => Number(document.documentElement.dataset.skew ?? 0);
  document.addEventListener('htmx:after:request', (event) => {
    const sent = Date.parse(event.detail.ctx?.response?.headers?.get('Date') ?? '');
    if (sent && Math.abs(Date.now() - sent) > 2000) document.documentElement.dataset.skew = Date.now() - sent;
  });

  const spent = (seconds) => {
    const two = (number) => String(number).padStart(2, '0');
    if (seconds < 60) return `${seconds}s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${two(seconds % 60)}s`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)}h ${two(Math.floor(seconds % 3600 / 60))}m`;
    return `${Math.floor(seconds / 86400)}d ${Math.floor(seconds % 86400 / 3600)}h`;
  };

  const tick = () => {
    if (document.hidden) return;
    const now = Date.now() - skew();
    document.querySelectorAll('[data-since]').forEach((clock) => {
      const text = spent(Math.max(0, Math.floor((now - Number(clock.dataset.since)) / 1000)));
      if (clock.textContent !== text) clock.textContent = text;
    });
  };

  document.addEventListener('visibilitychange', wake);
  addEventListener('online', wake);
  addEventListener('focus', wake);
  document.addEventListener('htmx:after:swap', () => { scan(); tick(); beat(); });
  document.addEventListener('DOMContentLoaded', () => { scan(); tick(); beat(); });
  setInterval(tick, 1000);
})();
