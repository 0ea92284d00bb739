// What the pages do beyond links and forms: dialogs, drafts, the search, times in the reader's zone. Each works without.
(() => {
  const root = document.documentElement;

  // --- times in the reader's zone; the server wrote UTC ---
  const local = () => document.querySelectorAll('time[data-at]').forEach((time) => {
    const at = new Date(time.dateTime);
    const today = at.toDateString() === new Date().toDateString();
    const text = today ? at.toLocaleTimeString([], { hour12: false }) :
      at.toLocaleString([], { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hour12: false });
    if (time.textContent !== text) time.textContent = text;
  });

  // --- the dialog: its question is fetched when it is asked, so that its figures are those of now ---
  const ask = () => document.getElementById('ask');
  document.addEventListener('htmx:after:swap', (event) => {
    local();
    if (event.detail.ctx?.target === ask() && ask().childElementCount) ask().showModal();
  });
  document.addEventListener('click', (event) => {
    if (event.target.closest?.('[data-close]') && ask()?.open) {
      event.preventDefault();
      ask().close();
    } else if (event.target === ask()) {
      ask().close();  // a click on the backdrop
    }
  });

  // --- theme: the form works alone; here it switches without a reload ---
  const icons = { system: 'half', light: 'sun', dark: 'moon' };
  const after = { system: 'light', light: 'dark', dark: 'system' };
  document.querySelector('form.theme')?.addEventListener('submit', (event) => {
    event.preventDefault();
    const button = event.currentTarget.querySelector('button');
    const theme = button.value;
    if (theme === 'system') delete root.dataset.theme; else root.dataset.theme = theme;
    document.querySelector('meta[name=color-scheme]').content = theme === 'system' ? 'light dark' : theme;
    document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=lax`;
    button.value = after[theme];
    button.title = `Theme: ${theme}`;
    button.setAttribute('aria-label', `Theme: ${theme}. Switch to ${after[theme]}`);
    button.querySelector('use').setAttribute('href', `#${icons[theme]}`);
  });

  // --- the draft of a new run: kept while it is typed, dropped when the run that came of it is there ---
  const KEY = 'agentruns:draft';
  const read = () => { try { return JSON.parse(localStorage.getItem(KEY)); } catch { return null; } };
  const keep = (draft) => { try { localStorage.setItem(KEY, JSON.stringify(draft)); } catch { /* storage is off or full: the form still works */ } };
  const FIELDS = ['task', 'params', 'budget', 'minutes'];

  const drafting = (form) => {
    const fresh = form.elements.submission_key.value;
    const answered = document.getElementById('form-errors') || new URLSearchParams(location.search).has('again');
    const draft = read();
    if (draft && !answered && !form.elements.task.value) {
      for (const name of FIELDS) form.elements[name].value = draft[name] ?? '';
      const plan = [...form.querySelectorAll('input[name=plan]')].find((radio) => radio.value === draft.plan);
      if (plan && !new URLSearchParams(location.search).has('plan')) plan.checked = true;
      if (draft.params) form.querySelector('details').open = true;
      // Sent, but no page of the run was ever seen: the same key finds that run instead of starting another.
      if (draft.key) form.elements.submission_key.value = draft.key;
    }
    const typed = () => {
      const data = Object.fromEntries(FIELDS.map((name) => [name, form.elements[name].value]));
      data.plan = new FormData(form).get('plan');
      form.elements.submission_key.value = fresh;  // other input is another run
      keep(data);
    };
    form.addEventListener('input', typed);
    form.addEventListener('submit', () => keep({ ...(read() ?? {}), key: form.elements.submission_key.value }));
    form.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    const budgets = () => {
      const chosen = form.querySelector('input[name=plan]:checked');
      if (chosen) form.elements.budget.placeholder = chosen.dataset.budget;
    };
    form.addEventListener('change', budgets);
    budgets();
  };

  // --- search: as it is typed, 300 ms later, with the address kept up to date ---
  const searching = (form) => {
    let timer = 0;
    form.addEventListener('input', () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const query = new URLSearchParams(new FormData(form));
        if (!query.get('q')) query.delete('q');
        const url = `${form.getAttribute('action')}${query.size ? `?${query}` : ''}`;
        htmx.ajax('GET', url, { source: '#live', target: '#live', select: '#live', swap: 'outerMorph', replace: url });
      }, 300);
    });
  };

  // --- copy ---
  document.addEventListener('click', async (event) => {
    const button = event.target.closest?.('[data-copy]');
    if (!button) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    button.lastChild.textContent = 'Copied';
    setTimeout(() => { button.lastChild.textContent = 'Copy id'; }, 1500);
  });

  // --- "/" to search, "n" for a new run, unless something is being typed ---
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, [contenteditable]')) return;
    const field = { '/': 'q', n: 'task' }[event.key];
    const element = field && document.getElementById(field);
    if (element) { event.preventDefault(); element.focus(); }
  });

  document.addEventListener('DOMContentLoaded', () => {
    root.classList.add('has-js');
    local();
    const form = document.querySelector('form[data-draft]');
    if (form) drafting(form);
    const find = document.querySelector('form.find');
    if (find) searching(find);
    const started = document.body.dataset.started;
    if (started && read()?.key === started) localStorage.removeItem(KEY);
  });
})();
