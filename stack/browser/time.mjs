// What time does to a payment. The stack's clock is moved; nobody waits.

import assert from 'node:assert/strict';
import { number } from './shop.mjs';
import { approve, stack, storyOfTime } from './world.mjs';

storyOfTime('a prompt that nobody answers runs out and can be paid again', {}, async ({ shop, payer }) => {
  const session = await shop.session();
  await payer.open(session);
  await payer.pay({ network: 'MTN MoMo', number: number('005') });
  await payer.sees('prompt');
  const reference = await payer.reference();
  await stack.advance(30);
  await payer.sees('failed', 'not approved in time');
  // Money may still come late: the page promises nothing that it does not know.
  assert.equal(await payer.page.getByText('You were not charged').count(), 0);
  await payer.check('failed, out of time');
  await shop.checkCharge(session, reference, { status: 'FAILED', reason: 'PAYER_TIMEOUT' });
  await payer.page.getByRole('link', { name: 'Try again' }).click();
  const from = number('001');
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('success');
  await shop.checkPaidOnce(session, { from });
});

storyOfTime('after two minutes the page says that there is nothing more to do', {}, async ({ shop, payer }) => {
  const from = number('100');
  const session = await shop.session();
  await payer.open(session);
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('prompt');
  await stack.advance(150);
  await payer.sees('slow', 'Still waiting', 'you do not need to pay again', '*170#');
  await payer.check('slow');
  await approve(from);
  await payer.sees('success');
  await shop.checkPaidOnce(session, { from });
});

storyOfTime('a link ends after a day, also for a page that was open', {}, async ({ shop, payer, site }) => {
  const from = number('001');
  const session = await shop.session({ redirect_url: `${site.url}/basket?order=17` });
  await payer.open(session);
  await payer.sees('form', 'This link can be paid until');
  await stack.advance(24 * 3_600);
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('expired', 'This link has ended', 'GMT', 'Ask the shop for a new one');
  await payer.check('expired');
  await shop.settled(session, 'EXPIRED');
  assert.deepEqual(await stack.book(from), []);
  await payer.page.getByRole('link', { name: 'Return to localhost' }).click();
  await payer.page.getByRole('heading', { name: 'Thank you' }).waitFor();
  assert.match(site.visits[0].url, /^\/basket\?order=17&session_id=[0-9a-f-]+&status=expired$/);
});
