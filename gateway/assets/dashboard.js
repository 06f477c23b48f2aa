// What the pages do by themselves if the browser allows it. Everything works without this script.
document.querySelector('.errors')?.focus();

// Each form is submitted only once.
for (const form of document.forms) {
  if (form.method !== 'post') continue;
  form.addEventListener('submit', (event) => {
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = 'yes';
    form.querySelector('button')?.setAttribute('aria-disabled', 'true');
  });
}

// A page restored from the browser's memory may be out of date, or of somebody who has logged out.
addEventListener('pageshow', (event) => {
  if (event.persisted) location.reload();
});

// Buttons that copy what stands beside them.
for (const button of document.querySelectorAll('[data-copy]')) {
  if (!navigator.clipboard) continue;
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
