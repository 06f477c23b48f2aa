// What a page of the dashboard costs in data, to somebody whose browser has nothing of it yet.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TIMEOUT, browser, stack } from './office.mjs';
import { Person } from './person.mjs';
import { KIB, checkFirstView, weigh } from './scales.mjs';
import { number } from './shop.mjs';
import { until } from './stack.mjs';

/** The page, its style sheet and its script. */
const FIRST_VIEW = { requests_max: 3, bytes_max: 50 * KIB };

test('the first view of a page is light and all ours', TIMEOUT, async () => {
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
    const weighed = await weigh(other, () => other.go(path));
    assert.equal(new URL(other.page.url()).pathname, path);
    checkFirstView(weighed, stack.ready.dashboard, FIRST_VIEW);
    await other.leave();
  }
  await person.leave();
});
