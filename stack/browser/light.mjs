// What a page of the dashboard costs in data, to somebody whose browser has nothing of it yet.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TIMEOUT, browser, stack } from './office.mjs';
import { Person } from './person.mjs';
import { KIB, weigh } from './scales.mjs';
import { number } from './shop.mjs';
import { until } from './stack.mjs';

const FIRST_VIEW_MAX = 50 * KIB;

/** The page, its style sheet and its script. */
const FIRST_VIEW_REQUESTS_MAX = 3;

test('the first view is light and all ours', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  await person.becomeMerchant();
  const key = await person.createKey('Server');
  const reference = await person.charge(key, number('001'));
  for (let more = 0; more < 20; more += 1) await person.charge(key, number(more % 5 ? '001' : '003'));
  await until('the payment is settled', async () => {
    await person.go(`/payments/${reference}`);
    return (await person.page.innerText('main')).includes('Settled');
  }, 1_000);
  const storageState = await person.context.storageState();
  for (const path of ['/login', '/', '/payments', `/payments/${reference}`]) {
    // Another browser of the same person: nothing is in its cache.
    const other = await Person.arrive(browser, path === '/login' ? {} : { storageState });
    other.stack = stack;
    const { urls, bytes } = await weigh(other, () => other.go(path));
    assert.equal(new URL(other.page.url()).pathname, path);
    const strangers = urls.filter((url) => !url.startsWith(`${stack.ready.dashboard}/`));
    assert.deepEqual(strangers, []);
    assert.ok(urls.length <= FIRST_VIEW_REQUESTS_MAX, String(urls));
    assert.ok(bytes > 0 && bytes <= FIRST_VIEW_MAX, `${path}: ${bytes} bytes`);
    console.log(`first view of ${path}: ${urls.length} requests, ${bytes} bytes`);
    await other.leave();
  }
  await person.leave();
});
