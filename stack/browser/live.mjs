// Pages that show by themselves how something goes on. The browser's clock is moved; nobody waits.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TIMEOUT, browser, stack } from './office.mjs';
import { atHandset } from './payer.mjs';
import { Person } from './person.mjs';
import { Receiver } from './receiver.mjs';
import { wait, watch } from './scales.mjs';
import { number } from './shop.mjs';
import { until } from './stack.mjs';

const STEP_MS = 5_000;

/** Somebody who looks at a payment that waits for its payer, whose number is told. */
async function waiting(prepare = () => {}) {
  const person = await Person.new(stack, browser);
  await person.becomeMerchant();
  await prepare(person);
  const key = await person.createKey('Server');
  const from = number('100');
  const reference = await person.charge(key, from);
  await person.page.clock.install();
  await person.go(`/payments/${reference}`);
  await person.sees('Payment', 'Waiting for the payer');
  await person.page.evaluate(() => { window.was_here = true; });
  return { person, from, requests: watch(person.page) };
}

const told = ({ page }) => page.locator('[data-live]').textContent();

test('a payment is seen to settle without a reload, and no focus is lost', TIMEOUT, async () => {
  const shop = await Receiver.open();
  const { person, from, requests } = await waiting((person) => person.setWebhook(shop.url));
  const { page } = person;
  await person.check('payment, waiting');
  await page.getByRole('link', { name: 'All payments' }).focus();
  await atHandset(browser, stack, 'Approve', from);
  await until('the page says that it has settled', async () => {
    await page.clock.runFor(STEP_MS);
    return (await page.locator('dl').innerText()).includes('Settled');
  });
  await until('it is told', async () => {
    await page.clock.runFor(STEP_MS);
    return (await told(person)) === 'Settled';
  });
  assert.equal(await page.evaluate(() => window.was_here), true, 'the page was not loaded again');
  assert.equal(await page.evaluate(() => document.activeElement.innerText), 'All payments');
  // The focus is among the links, so that these wait.
  assert.equal(await page.getByRole('link', { name: 'Refund this payment' }).count(), 0);
  await until('the page says that the event was delivered', async () => {
    await page.clock.runFor(STEP_MS);
    return (await page.locator('.timeline').innerText()).includes('Delivered.');
  });
  await page.evaluate(() => document.activeElement.blur());
  await wait(page, requests, 10, STEP_MS);
  assert.equal(await page.getByRole('link', { name: 'Refund this payment' }).count(), 1);
  await person.check('payment, seen to settle');
  const looks = requests.urls.length;
  await wait(page, requests, 60, STEP_MS);
  assert.equal(requests.urls.length, looks, 'what has ended is looked at no more');
  await shop.close();
  await person.leave();
});

test('a page that nobody reads stops looking', TIMEOUT, async () => {
  const { person, requests } = await waiting();
  const { page } = person;
  await wait(page, requests, 290, STEP_MS);
  const looks = requests.urls.length;
  assert.ok(looks > 50 && looks < 61, `${looks} looks`);
  assert.equal(await told(person), '');
  await wait(page, requests, 60, STEP_MS);
  assert.ok(requests.urls.length <= looks + 3, `${requests.urls.length} looks`);
  await person.sees('Payment', 'This page has stopped checking by itself.');
  await person.check('payment, stopped');
  await person.leave();
});

test('a page looks seldom at a server that is busy, and never past a login', TIMEOUT, async () => {
  const { person, requests } = await waiting();
  const { page } = person;
  const before = await page.innerHTML('main');
  await page.route('**/payments/*', (route) => route.fulfill({ status: 503, body: 'busy' }));
  await wait(page, requests, 80, STEP_MS);
  assert.ok(requests.urls.length <= 4, `${requests.urls.length} looks`);
  await page.unroute('**/payments/*');
  await person.context.clearCookies();
  // After four failures the next look is 80 seconds away.
  await wait(page, requests, 100, STEP_MS);
  const looks = requests.urls.length;
  await wait(page, requests, 80, STEP_MS);
  assert.equal(requests.urls.length, looks);
  assert.equal(await page.innerHTML('main'), before);
  await person.leave();
});
