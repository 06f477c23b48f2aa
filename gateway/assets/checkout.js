// What the page does by itself if the browser allows it. Everything works without this script.
const page = document.body.dataset;
const find = (selector) => document.querySelector(selector);

find('.errors')?.focus();

// Each form is submitted only once.
for (const form of document.forms) {
  form.addEventListener('submit', (event) => {
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = 'yes';
    const button = form.querySelector('button');
    button.setAttribute('aria-disabled', 'true');
    button.setAttribute('aria-live', 'polite');
    button.textContent = button.dataset.busy;
  });
}

// A page restored from the browser's memory may be out of date.
addEventListener('pageshow', (event) => {
  if (event.persisted) location.reload();
});

for (const details of document.querySelectorAll('[data-open-after]')) {
  setTimeout(() => { details.open = true; }, details.dataset.openAfter * 1000);
}

// Buttons that copy the reference, for payers who have to give it to the shop.
for (const button of document.querySelectorAll('[data-copy]')) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener('click', async () => {
    button.setAttribute('aria-live', 'polite');
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = button.dataset.copied;
    } catch {
      // Copying is not allowed here. The reference is shown above the button.
      button.hidden = true;
    }
  });
}

if (page.poll) {
  const line = find('[data-line]');
  const counter = find('[data-counter]');
  const begun = performance.now();
  const elapsed = () => Math.floor((performance.now() - begun) / 1000);
  let tag = null;
  let failures = 0;
  let looking = false;
  let timer;
  const say = (text) => {
    if (line && line.textContent !== text) line.textContent = text;
  };
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden || looking) return;
    looking = true;
    const pause = elapsed() < 60 ? 3000 : 5000;
    let wanted = 0;
    try {
      const headers = tag ? { 'If-None-Match': tag } : {};
      const signal = AbortSignal.timeout?.(10000);
      const answer = await fetch(page.poll, { cache: 'no-store', headers, signal });
      if (answer.status === 200) {
        tag = answer.headers.get('ETag');
        const { state } = await answer.json();
        if (state !== page.state) {
          location.replace(page.page);
          return;
        }
      }
      failures = answer.ok || answer.status === 304 ? 0 : failures + 1;
      wanted = 1000 * answer.headers.get('Retry-After') || 0;
      if (line?.textContent === line?.dataset.offline) say('');
    } catch {
      failures += 1;
      say(line?.dataset.offline ?? '');
    }
    looking = false;
    if (elapsed() > 300) {
      page.idle = 'yes';
      say(line?.dataset.stopped ?? '');
      return;
    }
    timer = setTimeout(look, Math.max(wanted, pause * 2 ** Math.min(failures, 4)));
  };
  // Payers who come back or are online again see the current state at once, even after the page has
  // stopped polling.
  document.addEventListener('visibilitychange', look);
  addEventListener('online', look);
  timer = setTimeout(look, 3000);
  if (counter) {
    setInterval(() => {
      const seconds = Number(counter.dataset.counter) + elapsed();
      counter.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
      if (seconds % 30 === 0 && elapsed() < 300 && !failures) say(`${line.dataset.waiting} ${counter.textContent}`);
    }, 1000);
  }
}

const print = find('[data-print]');
if (print) {
  print.hidden = false;
  print.addEventListener('click', () => {
    find('[data-stay]')?.click();
    window.print();
  });
}

const back = find('[data-return]');
if (back) {
  const returning = find('[data-returning]');
  returning.hidden = false;
  const timer = setTimeout(() => location.replace(back.href), back.dataset.return * 1000);
  find('[data-stay]').addEventListener('click', () => {
    clearTimeout(timer);
    returning.hidden = true;
  });
}
