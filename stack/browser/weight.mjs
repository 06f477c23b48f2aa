// What a payment costs in data (pages.md D.4), counted on the wire.

import assert from 'node:assert/strict';
import net from 'node:net';
import { number } from './shop.mjs';
import { until } from './stack.mjs';
import { approve, stack, story } from './world.mjs';

const KIB = 1_024;
const FIRST_VIEW_MAX = 30 * KIB;
const FIRST_VIEW_REQUESTS_MAX = 4;
const PAYMENT_MAX = 80 * KIB;

/** A page looks every 3 s for the first minute and every 5 s from then on (pages.md D.2). */
const looksMax = (seconds) => 60 / 3 + Math.ceil((seconds - 60) / 5);

/** Stands between the browser and the checkout and counts what passes, headers and all. */
class Wire {
  static async open(to) {
    const wire = new Wire();
    Object.assign(wire, { up: 0, down: 0 });
    const { hostname, port } = new URL(to);
    wire.server = net.createServer((browser) => {
      const checkout = net.connect(port, hostname);
      browser.on('data', (chunk) => { wire.up += chunk.length; });
      checkout.on('data', (chunk) => { wire.down += chunk.length; });
      for (const [from, into] of [[browser, checkout], [checkout, browser]]) {
        from.pipe(into);
        from.on('error', () => into.destroy());
      }
    });
    wire.server.unref();
    await new Promise((resolve) => wire.server.listen(0, '127.0.0.1', resolve));
    wire.url = `http://127.0.0.1:${wire.server.address().port}`;
    return wire;
  }

  get bytes() {
    return this.up + this.down;
  }
}

/** The requests that a page makes, and how many of them have ended. */
function watch(page) {
  const requests = { urls: [], ended: 0 };
  const count = (event, seen) => page.on(event, (request) => {
    if (!request.url().startsWith('data:')) seen(request);
  });
  count('request', (request) => requests.urls.push(request.url()));
  count('requestfinished', () => { requests.ended += 1; });
  count('requestfailed', () => { requests.ended += 1; });
  return requests;
}

/**
 * Moves the browser's clock in steps until this time has passed; every request on the way is a real
 * one and is answered. Gives the time that has passed, which is a little more.
 */
async function wait(page, requests, seconds, step_ms) {
  const now = () => page.evaluate(() => performance.now() / 1_000);
  const begun = await now();
  for (;;) {
    const passed = (await now()) - begun;
    if (passed >= seconds) return passed;
    await page.clock.runFor(step_ms);
    await until('the page has its answer', () => requests.ended === requests.urls.length, 10);
  }
}

story('the first view is light and all ours', {}, async ({ shop, payer }) => {
  const session = await shop.session();
  const requests = watch(payer.page);
  const browser = await payer.context.newCDPSession(payer.page);
  let bytes = 0;
  await browser.send('Network.enable');
  browser.on('Network.loadingFinished', ({ encodedDataLength }) => { bytes += encodedDataLength; });
  await payer.open(session);
  await payer.sees('form');
  await payer.page.waitForLoadState('networkidle');
  const strangers = requests.urls.filter((url) => !url.startsWith(`${stack.ready.checkout}/`));
  assert.deepEqual(strangers, []);
  assert.ok(requests.urls.length <= FIRST_VIEW_REQUESTS_MAX, String(requests.urls));
  assert.ok(bytes > 0 && bytes <= FIRST_VIEW_MAX, `${bytes} bytes`);
  console.log(`first view: ${requests.urls.length} requests, ${bytes} bytes`);
});

story('a payment that waits for two minutes is light', {}, async ({ shop, payer }) => {
  const from = number('100');
  const session = await shop.session();
  const wire = await Wire.open(stack.ready.checkout);
  const { page } = payer;
  await page.clock.install();
  await payer.open(`${wire.url}/pay/${session.session_id}`);
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('prompt');
  const requests = watch(page);
  const before = wire.bytes;
  const passed = await wait(page, requests, 120, 1_000);
  assert.equal(await page.locator('details[open]').count(), 1, 'help has opened by itself');
  const looks = requests.urls.length;
  const waited = wire.bytes - before;
  await approve(from);
  await payer.sees('success');
  await shop.checkPaidOnce(session, { from });
  assert.ok(looks > 0 && looks <= looksMax(passed), `${looks} looks in ${passed} s`);
  assert.ok(wire.bytes <= PAYMENT_MAX, `${wire.bytes} bytes`);
  console.log(`two minutes of waiting: ${looks} requests, ${waited} bytes; the payment: ${wire.bytes} bytes`);
  wire.server.close();
});

story('after five minutes a page asks no more, until it is wanted again', {}, async ({ shop, payer }) => {
  const from = number('100');
  const { page } = payer;
  await page.clock.install();
  const session = await shop.session();
  await payer.open(session);
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('prompt');
  const requests = watch(page);
  await wait(page, requests, 310, 3_000);
  await payer.sees('prompt', 'This page has stopped checking by itself');
  assert.ok(await page.locator('.dots').isHidden(), 'nothing turns');
  await payer.check('prompt, stopped');
  const looks = requests.urls.length;
  await wait(page, requests, 60, 3_000);
  assert.equal(requests.urls.length, looks);
  await approve(from);
  await shop.settled(session, 'COMPLETED');
  await payer.context.setOffline(true);
  await payer.context.setOffline(false);
  await payer.sees('success');
});
