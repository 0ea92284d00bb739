// Notifications of this browser: asked for by a click, for runs that the open page shows. A hidden page then goes on
// asking, slowly (live.js). Each change of a run is told once.
(() => {
  const root = document.documentElement;
  const KEY = 'agentruns:tell';
  const PEOPLE = ['operator', 'approval', 'effect', 'budget', 'price'];
  const known = new Map();

  const wanted = () => { try { return localStorage.getItem(KEY) === 'yes'; } catch { return false; } };
  const isOn = () => 'Notification' in window && Notification.permission === 'granted' && wanted();

  const said = ([status, waitsFor]) => {
    if (status === 'waiting' && PEOPLE.includes(waitsFor)) return 'needs you';
    return { completed: 'is completed', failed: 'failed' }[status];
  };

  const tell = (element, words) => {
    const note = new Notification(`A run ${words}`, { body: element.dataset.title, tag: `agentruns-${element.id}` });
    note.onclick = () => { focus(); location.href = element.dataset.href; };
  };

  // What a run is when it is first seen is no news.
  const look = () => document.querySelectorAll('[data-state]').forEach((element) => {
    const before = known.get(element.id);
    const state = element.dataset.state;
    known.set(element.id, state);
    const words = said(state.split(' '));
    if (before !== undefined && before !== state && words && isOn()) tell(element, words);
  });

  const show = () => {
    const button = document.getElementById('tell-me');
    root.toggleAttribute('data-tells', isOn());
    if (!button || !('Notification' in window)) return;
    button.hidden = false;
    button.setAttribute('aria-pressed', String(isOn()));
    if (Notification.permission === 'denied') {
      button.disabled = true;
      button.title = 'This browser was told not to show notifications of this site.';
    }
  };

  document.addEventListener('click', async (event) => {
    if (!event.target.closest?.('#tell-me')) return;
    const next = isOn() ? 'no' : 'yes';
    if (next === 'yes' && (await Notification.requestPermission()) !== 'granted') return show();
    try { localStorage.setItem(KEY, next); } catch { /* storage is off: nothing is told */ }
    show();
  });
  document.addEventListener('htmx:after:swap', look);
  document.addEventListener('DOMContentLoaded', () => { look(); show(); });
})();
