// What the pages do by themselves if the browser allows it. Everything works without this script.
document.querySelector('.errors')?.focus();

// Each form is submitted only once.
document.addEventListener('submit', (event) => {
  const form = event.target;
  if (form.method !== 'post') return;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = 'yes';
  form.querySelector('button')?.setAttribute('aria-disabled', 'true');
});

// A page restored from the browser's memory may be out of date, or of somebody who has logged out.
addEventListener('pageshow', (event) => {
  if (event.persisted) location.reload();
});

// Buttons that copy what stands beside them.
const offerCopies = (page) => {
  if (!navigator.clipboard) return;
  for (const button of page.querySelectorAll('[data-copy]')) {
    button.hidden = false;
    button.addEventListener('click', async () => {
      button.setAttribute('aria-live', 'polite');
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = button.dataset.copied;
      } catch {
        // Copying is not allowed here. The text is shown beside the button.
        button.hidden = true;
      }
    });
  }
};
offerCopies(document);

// A page of what still goes on looks how it stands. It stops after five minutes, so that no login is
// kept alive for long by a page that nobody reads.
const LOOK_EVERY_MS = 5_000;
const LOOK_FOR_MS = 300_000;
const ANSWER_MS_MAX = 10_000;
// Whoever listens is not interrupted more often.
const TELL_EVERY_MS = 30_000;
const live = document.querySelector('[data-live="open"]');
if (live) {
  const begun = performance.now();
  const elapsed = () => performance.now() - begun;
  const parts = () => document.querySelectorAll('[data-part]');
  const shown = new Map([...parts()].map((part) => [part.dataset.part, part.outerHTML]));
  let failures = 0;
  let looking = false;
  let told = -Infinity;
  let telling;
  let timer;
  const tell = (text) => {
    clearTimeout(telling);
    telling = setTimeout(() => {
      told = elapsed();
      live.textContent = text;
    }, Math.max(0, told + TELL_EVERY_MS - elapsed()));
  };
  const isInUse = (part) => {
    const selection = getSelection();
    const isSelected = !selection.isCollapsed && selection.containsNode(part, true);
    return isSelected || part.matches(':focus-within') || part.querySelector('details[open], [data-sent]');
  };
  // Shows what has changed. Tells whether there may be more.
  const show = (html) => {
    const fresh = new DOMParser().parseFromString(html, 'text/html');
    const now = fresh.querySelector('[data-live]');
    if (!now) return false;
    // Somebody else has logged in meanwhile, in another tab.
    const who = (page) => page.querySelector('header')?.textContent;
    if (who(fresh) !== who(document)) {
      location.reload();
      return false;
    }
    let isOpen = now.dataset.live === 'open';
    for (const part of parts()) {
      const { part: name } = part.dataset;
      const next = fresh.querySelector(`[data-part="${name}"]`);
      if (!next || next.outerHTML === shown.get(name)) continue;
      if (isInUse(part)) {
        isOpen = true;
        continue;
      }
      shown.set(name, next.outerHTML);
      offerCopies(next);
      part.replaceWith(document.adoptNode(next));
    }
    if (now.dataset.state !== live.dataset.state) tell(now.dataset.state);
    live.dataset.state = now.dataset.state;
    return isOpen;
  };
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden || looking) return;
    if (elapsed() > LOOK_FOR_MS) {
      clearTimeout(telling);
      live.classList.remove('hidden');
      live.textContent = live.dataset.stopped;
      return;
    }
    looking = true;
    let wanted = 0;
    try {
      const signal = AbortSignal.timeout?.(ANSWER_MS_MAX);
      const answer = await fetch(location.href, { cache: 'no-store', redirect: 'manual', signal });
      if (answer.ok) {
        failures = 0;
        // `looking` stays true: this page looks no more.
        if (!show(await answer.text())) return;
      } else {
        // Whoever is sent to the login, or finds nothing, looks no more.
        if (answer.status !== 429 && answer.status < 500) return;
        failures += 1;
        wanted = 1000 * answer.headers.get('Retry-After') || 0;
      }
    } catch {
      failures += 1;
    }
    looking = false;
    timer = setTimeout(look, Math.max(wanted, LOOK_EVERY_MS * 2 ** Math.min(failures, 4)));
  };
  document.addEventListener('visibilitychange', look);
  addEventListener('online', look);
  timer = setTimeout(look, LOOK_EVERY_MS);
}
