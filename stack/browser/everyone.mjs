// Payers who use no mouse, or who read Twi; and shops with much to say.

import assert from 'node:assert/strict';
import { Shop, number } from './shop.mjs';
import { until } from './stack.mjs';
import { approve, decline, stack, story } from './world.mjs';

story('the keyboard alone pays', {}, async ({ shop, payer }) => {
  const from = number('002', '020');
  const session = await shop.session();
  const { keyboard } = payer.page;
  await payer.open(session);
  await payer.sees('form');
  await payer.press('Tab', /network/);
  await payer.press('Tab', /mobile_number/);
  await payer.press('Tab', /Pay/);
  await keyboard.press('Enter');
  // The summary has the focus, and leads to each field.
  await payer.sees('form', 'There is a problem');
  await payer.page.locator('.errors:focus').waitFor();
  assert.ok((await payer.focused()).is_visible, 'the focus on the summary can be seen');
  assert.match(await payer.page.title(), /^Error: /);
  await payer.press('Tab', /Choose the network/);
  await payer.press('Tab', /Enter your mobile/);
  await payer.press('Enter', /mobile_number/);
  await keyboard.type(from);
  await payer.press('Shift+Tab', /AT|network/);
  await payer.page.locator('#network').focus();
  await payer.press('ArrowDown', /TELECEL/);
  assert.ok(await payer.page.getByLabel('Telecel Cash').isChecked());
  await payer.press('Tab', /mobile_number/);
  await keyboard.press('Enter');
  await payer.sees('otp');
  await payer.press('Tab', /otp/);
  await keyboard.type('000000');
  await keyboard.press('Enter');
  await payer.sees('otp', 'Tries left: 2');
  await payer.page.locator('.errors:focus').waitFor();
  await payer.press('Tab', /not accepted/);
  await payer.press('Enter', /otp/);
  await keyboard.press('Control+A');
  await keyboard.type('123456');
  await payer.press('Tab', /Submit/);
  await keyboard.press('Enter');
  await payer.sees('success');
  await shop.checkPaidOnce(session, { from });
});

story('a payer who reads Twi pays in Twi', {}, async ({ shop, payer }) => {
  const from = number('100');
  const session = await shop.session();
  const is_twi = async () => assert.equal(await payer.page.locator('html').getAttribute('lang'), 'tw');
  await payer.open(session);
  await payer.page.getByRole('link', { name: 'Twi' }).click();
  await payer.sees('form', 'Yi wo network', 'Tua GHS 25.50');
  await is_twi();
  await payer.check('form, Twi');
  await payer.submit();
  await payer.sees('form', 'Ɔhaw bi wɔ hɔ');
  await is_twi();
  await payer.check('form, errors, Twi');
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('prompt', 'Hwɛ wo fon so');
  await is_twi();
  await payer.check('prompt, Twi');
  await approve(from);
  await payer.sees('success', 'Woatua awie');
  await is_twi();
  await payer.check('success, Twi');
  await payer.page.getByRole('link', { name: 'English' }).click();
  await payer.sees('success', 'Payment complete');
  await shop.checkPaidOnce(session, { from });
});

story('a browser that prefers Twi is answered in Twi', { locale: 'tw-GH' }, async ({ shop, payer }) => {
  await payer.open(await shop.session());
  await payer.sees('form', 'Yi wo network');
});

story('the longest words and the largest amount fit', {}, async ({ payer }) => {
  const from = number('100');
  const shop = await Shop.open(stack, 'Akwaaba'.repeat(28));
  const order = { amount: 9_999_999_999.99, description: 'Nkosuo'.repeat(83) };
  await payer.open(await shop.session(order));
  await payer.sees('form', 'GHS 9,999,999,999.99');
  for (const width of [320, 360, 1280]) {
    await payer.page.setViewportSize({ width, height: 640 });
    const lines = await payer.page.locator('.amount').evaluate(({ firstChild }) => {
      const digits = document.createRange();
      digits.setStart(firstChild, 'GHS '.length);
      digits.setEnd(firstChild, firstChild.length);
      return digits.getClientRects().length;
    });
    assert.equal(lines, 1, `no amount is torn apart at ${width} px`);
  }
  await payer.check('form, long words');
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('prompt');
  await payer.check('prompt, long words');
  await decline(from);
  await payer.sees('failed');
  await payer.check('failed, long words');
});
