// The way back to the shop: a hint that proves nothing, and that tells no one where it came from.

import assert from 'node:assert/strict';
import { number } from './shop.mjs';
import { story } from './world.mjs';

function hint(session, status) {
  return `/thanks?order=17&session_id=${session.session_id}&status=${status}`;
}

story('who has paid is returned to the shop', {}, async ({ shop, payer, site }) => {
  const from = number('001');
  const session = await shop.session({ redirect_url: `${site.url}/thanks?order=17#top` });
  // The page stays until the shop's has come.
  let come;
  const coming = new Promise((resolve) => { come = resolve; });
  await payer.context.route(`${site.url}/**`, (route) => coming.then(() => route.continue()));
  await payer.open(session);
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('success', 'Return to localhost', 'You will be returned');
  come();
  await payer.page.waitForURL(`${site.url}${hint(session, 'completed')}#top`);
  assert.deepEqual(site.visits[0], { url: hint(session, 'completed'), referrer: undefined });
  await shop.checkPaidOnce(session, { from });
});

story('who wants to stay stays', {}, async ({ shop, payer, site }) => {
  const session = await shop.session({ redirect_url: `${site.url}/thanks?order=17` });
  await payer.cannotReach(site);
  await payer.open(session);
  await payer.pay({ network: 'MTN MoMo', number: number('001') });
  await payer.sees('success');
  await payer.check('success, about to return');
  await payer.page.reload();
  await payer.page.getByRole('button', { name: 'Stay on this page' }).click();
  await payer.page.getByText('You will be returned').waitFor({ state: 'hidden' });
  await payer.check('success, staying');
});

story('who gives up returns, and can still pay', {}, async ({ shop, payer, site }) => {
  const from = number('001');
  const session = await shop.session({ redirect_url: `${site.url}/thanks?order=17` });
  await payer.open(session);
  await payer.page.getByRole('link', { name: 'Cancel and return' }).click();
  await payer.page.waitForURL(`${site.url}${hint(session, 'cancelled')}`);
  await payer.page.goBack();
  await payer.sees('form');
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('success');
  await shop.checkPaidOnce(session, { from });
});

story('who failed may return too', {}, async ({ shop, payer, site }) => {
  const session = await shop.session({ redirect_url: `${site.url}/thanks?order=17` });
  await payer.open(session);
  await payer.pay({ network: 'MTN MoMo', number: number('003') });
  await payer.sees('failed', 'Return to localhost');
  await payer.check('failed, with a way back');
  await payer.page.getByRole('link', { name: 'Return to localhost' }).click();
  await payer.page.waitForURL(`${site.url}${hint(session, 'failed')}`);
});
