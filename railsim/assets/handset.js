// Keeps the prompts fresh. Without it the page works the same and is refreshed by hand.
const REFRESH_MS = 2000;

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const from = fresh.getElementById("screen");
    const to = document.getElementById("screen");
    // Nothing is replaced under a finger or a focus unless something changed.
    if (from && from.innerHTML !== to.innerHTML) to.innerHTML = from.innerHTML;
  } catch {
    // The simulator is restarting; the next round tries again.
  }
}

setInterval(refresh, REFRESH_MS);
