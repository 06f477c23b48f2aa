// What a payment costs in data (pages.md D.4), counted on the wire.

import assert from 'node:assert/strict';
import net from 'node:net';
import { KIB, checkFirstView, wait, watch, weigh } from './scales.mjs';
import { number } from './shop.mjs';
import { approve, stack, story } from './world.mjs';

const FIRST_VIEW = { requests_max: 4, bytes_max: 30 * KIB };
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

story('the first view is light and all ours', {}, async ({ shop, payer }) => {
  const session = await shop.session();
  const weighed = await weigh(payer, async () => {
    await payer.open(session);
    await payer.sees('form');
  });
  checkFirstView(weighed, stack.ready.checkout, FIRST_VIEW);
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
