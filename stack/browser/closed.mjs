// Where nothing can be paid: the page says so, blames nobody, and nothing is charged.

import assert from 'node:assert/strict';
import { number } from './shop.mjs';
import { stack, story } from './world.mjs';

/** The session's page at another gateway. */
function at(gateway, { session_id }) {
  return `${gateway}/pay/${session_id}`;
}

story('unknown and malformed addresses look the same', {}, async ({ payer }) => {
  const pages = new Set();
  for (const id of ['00000000-0000-4000-8000-000000000000', 'what', '%3Cb%3E']) {
    const answer = await payer.open(`${stack.ready.checkout}/pay/${id}`);
    assert.equal(answer.status(), 404);
    await payer.sees('unknown', 'Page not found');
    pages.add(await payer.page.innerHTML('main'));
  }
  assert.equal(pages.size, 1);
  await payer.check('unknown');
});

story('a shop that takes no payments right now', {}, async ({ shop, payer, site }) => {
  const session = await shop.session({ redirect_url: site.url });
  await payer.cannotReach(site);
  await payer.open(session);
  await payer.sees('form');
  await stack.payctl('merchant', 'update', shop.id, '--accepting', 'false');
  const from = number('001');
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('unavailable', 'Not available right now', 'Return to localhost');
  await payer.check('unavailable, the shop');
  assert.deepEqual(await stack.book(from), []);
  await stack.payctl('merchant', 'update', shop.id, '--accepting', 'true');
  await payer.page.reload();
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('success');
});

story('a currency without a rate', {}, async ({ shop, payer }) => {
  await payer.open(await shop.session({ amount: 10, currency: 'EUR' }));
  await payer.sees('unavailable', 'EUR 10.00', 'no exchange rate');
  await payer.check('unavailable, no rate');
});

story('too many tries for one payment', {}, async ({ shop, payer }) => {
  const gateway = await stack.gateway({
    CHECKOUT_TRIES_PER_SESSION: '1',
    CHECKOUT_UNKNOWN_PER_ADDRESS: '1',
    CHECKOUT_LIMIT_WINDOW: '8760h',
  });
  const session = await shop.session();
  await payer.open(at(gateway, session));
  await payer.pay({ network: 'MTN MoMo', number: number('003') });
  await payer.sees('failed');
  await payer.page.getByRole('link', { name: 'Try again' }).click();
  await payer.sees('form');
  const from = number('001');
  await payer.fill({ network: 'Telecel Cash', number: from });
  const answered = payer.page.waitForResponse((answer) => answer.request().method() === 'POST');
  await payer.submit();
  assert.equal((await answered).status(), 429);
  await payer.sees('form', 'Too many tries. Nothing was charged.');
  assert.equal(await payer.page.locator('#mobile_number').inputValue(), from);
  await payer.check('form, too many tries');
  assert.deepEqual(await stack.book(from), []);
  const guess = `${gateway}/pay/00000000-0000-4000-8000-000000000000`;
  assert.equal((await payer.open(guess)).status(), 404);
  assert.equal((await payer.open(guess)).status(), 429);
  await payer.sees('unavailable', 'Too many tries');
  await payer.check('unavailable, too many guesses');
});

story('a service behind the page is away', {}, async ({ shop, payer }) => {
  const gateway = await stack.gateway({ CHARGES_URL: 'http://127.0.0.1:9' });
  const session = await shop.session();
  await payer.open(at(gateway, session));
  const from = number('001');
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('form', 'could not be sent just now. Nothing was charged.');
  assert.equal(await payer.page.locator('#mobile_number').inputValue(), from);
  await payer.check('form, not sent');
  assert.deepEqual(await stack.book(from), []);
  // The payer gets through on the working one, and a look at the broken one knows nothing.
  await payer.open(session);
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('success');
  const answer = await payer.open(at(gateway, session));
  assert.equal(answer.status(), 503);
  await payer.sees('unavailable', 'Something does not work on our side');
  await payer.check('unavailable, trouble');
  await shop.checkPaidOnce(session, { from });
});
