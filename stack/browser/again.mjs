// The same payment looked at again: reload, back, another device, a double click, a lost
// connection. Every look shows the same, and whatever happens there is one charge.

import assert from 'node:assert/strict';
import { number } from './shop.mjs';
import { anotherPayer, approve, stack, story } from './world.mjs';

async function beginPrompt(payer, session, from) {
  await payer.open(session);
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('prompt');
}

story('reload and back show how it stands', {}, async ({ shop, payer, site }) => {
  const from = number('100');
  const session = await shop.session();
  await payer.open(site.url);
  await beginPrompt(payer, session, from);
  const reference = await payer.reference();
  await payer.page.reload();
  await payer.sees('prompt', reference);
  await payer.page.goBack();
  if (payer.page.url().startsWith(site.url)) await payer.page.goForward();
  await payer.sees('prompt', reference);
  await approve(from);
  await payer.sees('success', reference);
  await payer.page.reload();
  await payer.sees('success', reference);
  await payer.page.goBack();
  if (payer.page.url().startsWith(site.url)) await payer.page.goForward();
  await payer.sees('success', reference);
  await shop.checkPaidOnce(session, { from });
  assert.equal((await stack.book(from)).length, 1);
});

story('a second device shows the same and pays nothing twice', {}, async ({ shop, payer }) => {
  const [from, other] = [number('100'), number('001')];
  const session = await shop.session();
  const second = await anotherPayer();
  await second.open(session);
  await second.sees('form');
  await second.fill({ network: 'MTN MoMo', number: other });
  await beginPrompt(payer, session, from);
  const reference = await payer.reference();
  await second.submit();
  await second.sees('prompt', reference);
  await approve(from);
  await payer.sees('success', reference);
  await second.sees('success', reference);
  const third = await anotherPayer();
  await third.open(session);
  await third.sees('success', reference);
  await Promise.all([second.leave(), third.leave()]);
  await shop.checkPaidOnce(session, { from });
  assert.deepEqual(await stack.book(other), []);
});

for (const javaScriptEnabled of [true, false]) {
  const how = javaScriptEnabled ? 'with scripts' : 'without scripts';
  story(`a double click is one charge, ${how}`, { javaScriptEnabled }, async ({ shop, payer }) => {
    const from = number('100');
    const session = await shop.session();
    await payer.open(session);
    await payer.fill({ network: 'MTN MoMo', number: from });
    await payer.page.locator('form button').dblclick();
    await payer.sees('prompt');
    const requests = (await stack.book(from)).map((entry) => entry.requests);
    assert.deepEqual(requests, [1]);
    await approve(from);
    await shop.checkPaidOnce(session, { from });
  });
}

story('what was typed wrong stays, and the page says what to do', {}, async ({ shop, payer }) => {
  const session = await shop.session();
  await payer.open(session);
  await payer.submit();
  await payer.sees('form', 'There is a problem', 'Choose the network of your number');
  await payer.check('form, errors');
  await payer.pay({ network: 'Telecel Cash', number: '02x 12' });
  await payer.sees('form', 'Enter a Ghana mobile number, such as 024 123 4567');
  assert.equal(await payer.page.locator('#mobile_number').inputValue(), '02x 12');
  assert.ok(await payer.page.getByLabel('Telecel Cash').isChecked());
  await payer.check('form, wrong number');
  assert.equal((await shop.status(session)).status, 'PENDING');
});

story('a lost connection is told, and the page goes on by itself', {}, async ({ shop, payer }) => {
  const from = number('100');
  const session = await shop.session();
  await beginPrompt(payer, session, from);
  await payer.context.setOffline(true);
  await payer.page.getByText('No connection. Your payment is safe').waitFor();
  await payer.check('prompt, no connection');
  await approve(from);
  await shop.settled(session, 'COMPLETED');
  await payer.sees('prompt', 'No connection');
  await payer.context.setOffline(false);
  await payer.sees('success');
  await shop.checkPaidOnce(session, { from });
});
