// What a page asks for, and what that costs in data.

import assert from 'node:assert/strict';
import { until } from './stack.mjs';

export const KIB = 1_024;

/** The requests that a page makes, and how many of them have ended. */
export function watch(page) {
  const requests = { urls: [], ended: 0 };
  const count = (event, seen) => page.on(event, (request) => {
    if (!request.url().startsWith('data:')) seen(request);
  });
  count('request', (request) => requests.urls.push(request.url()));
  count('requestfinished', () => { requests.ended += 1; });
  count('requestfailed', () => { requests.ended += 1; });
  return requests;
}

/** What is loaded for a view that `open` leads to: the addresses, and how many bytes. */
export async function weigh({ context, page }, open) {
  const { urls } = watch(page);
  const browser = await context.newCDPSession(page);
  let bytes = 0;
  await browser.send('Network.enable');
  browser.on('Network.loadingFinished', ({ encodedDataLength }) => { bytes += encodedDataLength; });
  await open();
  await page.waitForLoadState('networkidle');
  return { urls, bytes };
}

/** What was loaded is all from `origin`, and little. */
export function checkFirstView({ urls, bytes }, origin, { requests_max, bytes_max }) {
  assert.deepEqual(urls.filter((url) => !url.startsWith(`${origin}/`)), []);
  assert.ok(urls.length <= requests_max, String(urls));
  assert.ok(bytes > 0 && bytes <= bytes_max, `${urls[0]}: ${bytes} bytes`);
  console.log(`first view of ${urls[0]}: ${urls.length} requests, ${bytes} bytes`);
}

/**
 * Moves the browser's clock in steps until this time has passed; every request on the way is a real
 * one and is answered. Gives the time that has passed, which is a little more.
 */
export async function wait(page, requests, seconds, step_ms) {
  const now = () => page.evaluate(() => performance.now() / 1_000);
  const begun = await now();
  for (;;) {
    const passed = (await now()) - begun;
    if (passed >= seconds) return passed;
    await page.clock.runFor(step_ms);
    await until('the page has its answer', () => requests.ended === requests.urls.length, 10);
  }
}
