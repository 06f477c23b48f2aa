// People who use no mouse: every control of every page can be reached, and seen when it is.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TIMEOUT, browser, stack } from './office.mjs';
import { PASSWORD, Person } from './person.mjs';
import { Receiver } from './receiver.mjs';
import { number } from './shop.mjs';
import { until } from './stack.mjs';

const CONTROLS = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]';

/** Most stops of one control: a date with a time has seven. */
const INSIDE_MAX = 8;

/** Tab leads through all controls of the page, shows each, and gets stuck at none. */
async function checkTabs(person, name) {
  const { page } = person;
  const controls = await page.evaluate((controls) => {
    const groups = new Set();
    const all = [...document.querySelectorAll(controls)].filter((control) => {
      if (control.disabled || control.tabIndex < 0 || !control.checkVisibility()) return false;
      // The buttons of one choice are one stop.
      if (control.type !== 'radio') return true;
      return !groups.has(control.name) && groups.add(control.name);
    });
    all.forEach((control, index) => control.setAttribute('data-stop', index));
    document.activeElement.blur();
    getSelection().collapse(document.body, 0);
    return all.map((control) => control.outerHTML);
  }, CONTROLS);
  const reached = new Set();
  // Some controls have stops within.
  for (let last, inside = 0; ;) {
    await page.keyboard.press('Tab');
    const stop = await page.evaluate(() => document.activeElement.dataset.stop);
    // Past the last one comes the browser itself, or the first again.
    if (stop === undefined || (stop === '0' && stop !== last && reached.has(stop))) break;
    inside = stop === last ? inside + 1 : 0;
    assert.ok(inside > 0 || !reached.has(stop), `${name}: back at ${controls[stop]}`);
    assert.ok(inside < INSIDE_MAX, `${name}: no way out of ${controls[stop]}`);
    // The browser itself shows which of them has the focus.
    assert.ok(inside > 0 || (await person.focused()).is_visible, `${name}: the focus cannot be seen on ${controls[stop]}`);
    reached.add(stop);
    last = stop;
  }
  const left = controls.filter((_, index) => !reached.has(String(index)));
  assert.deepEqual(left, [], `${name}: not reached`);
  return controls.length;
}

test('the keyboard reaches everything', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  const shop = await Receiver.open();
  await person.becomeMerchant();
  const key = await person.createKey('Server');
  await person.setWebhook(shop.url);
  await person.charge(key, number('001'));
  await until('the customer is listed', async () => {
    await person.go('/customers');
    return person.page.locator('td a').count();
  }, 1_000);
  let controls = 0;
  const walked = await person.walk(async (kind) => { controls += await checkTabs(person, kind); });
  assert.ok(walked.size > 30, [...walked].join(' '));
  assert.ok(controls > 10 * walked.size, `${controls} controls on ${walked.size} pages`);
  await shop.close();
  await person.leave();
});

test('the keyboard alone logs in, skips to the content and asks for a payment', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  await person.becomeMerchant();
  await person.page.context().clearCookies();
  const { keyboard } = person.page;
  await person.go('/login');
  await person.press('Tab', /skip/);
  await person.press('Tab', /email/);
  await keyboard.type(person.email);
  await person.press('Tab', /password/);
  await keyboard.type('not this one, I think');
  await keyboard.press('Enter');
  await person.sees('Log in', 'There is a problem');
  // The summary has the focus, and what was typed is still there.
  await person.page.locator('.errors:focus').waitFor();
  assert.equal(await person.page.inputValue('[name=email]'), person.email);
  await person.press('Tab', /email/);
  await person.press('Tab', /password/);
  await keyboard.type(PASSWORD);
  await keyboard.press('Enter');
  await person.sees('Overview', 'Networks and money are simulated here.');
  await person.go('/payments/new');
  await person.press('Tab', /skip/);
  await keyboard.press('Enter');
  await person.press('Tab', /amount/);
  await keyboard.type('25.50');
  await person.press('Tab', /description/);
  await keyboard.type('Lunch');
  await keyboard.press('Enter');
  await person.sees('Payment link', 'GHS 25.50');
  await person.leave();
});
