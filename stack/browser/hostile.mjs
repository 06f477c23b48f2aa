// Pages that strangers write into: nothing of it runs, and no form of theirs is taken.

import assert from 'node:assert/strict';
import { CORPUS, NAME, OF_NETWORKS, checkNothingRan } from './corpus.mjs';
import { Shop, Site, number } from './shop.mjs';
import { anotherPayer, approve, stack, story } from './world.mjs';

story('descriptions are text', {}, async ({ shop, payer }) => {
  for (const text of CORPUS) {
    const session = await shop.session({ description: text, customer_name: text });
    await payer.open(session);
    await payer.sees('form');
    assert.equal(await payer.page.locator('.description').textContent(), text);
    await checkNothingRan(payer, text, '/pay/');
  }
});

story('names and what is typed are text, in every state', {}, async ({ payer, site }) => {
  const shop = await Shop.open(stack, NAME);
  const from = number('100');
  const session = await shop.session({ description: NAME, customer_name: NAME, redirect_url: site.url });
  await payer.cannotReach(site);
  await payer.open(session);
  await payer.sees('form', NAME);
  await payer.pay({ network: 'Telecel Cash', number: NAME.slice(0, 30) });
  await payer.sees('form', 'There is a problem');
  assert.equal(await payer.page.locator('#mobile_number').inputValue(), NAME.slice(0, 30));
  await checkNothingRan(payer, 'form', '/pay/');
  await payer.pay({ network: 'Telecel Cash', number: number('002', '020') });
  await payer.sees('otp', NAME);
  await payer.page.locator('#otp').evaluate((input) => input.removeAttribute('maxlength'));
  await payer.enter('"><img src=x onerror=ran=1>');
  await payer.sees('otp', 'There is a problem');
  await checkNothingRan(payer, 'otp', '/pay/');
  await payer.useUpCodes();
  await payer.sees('failed', NAME);
  await checkNothingRan(payer, 'failed', '/pay/');
  await payer.page.getByRole('link', { name: 'Try again' }).click();
  await payer.pay({ network: 'MTN MoMo', number: from });
  await payer.sees('prompt', NAME);
  await checkNothingRan(payer, 'prompt', '/pay/');
  await payer.check('prompt, strange names');
  await approve(from);
  await payer.sees('success', NAME);
  await checkNothingRan(payer, 'success', '/pay/');
});

story('what a network says is text', {}, async ({ shop, payer }) => {
  const session = await shop.session();
  await payer.open(session);
  await payer.pay({ network: 'Telecel Cash', number: number('017', '020') });
  await payer.sees('otp', OF_NETWORKS);
  await checkNothingRan(payer, 'otp', '/pay/');
  await payer.check('otp, strange words');
  const reference = await payer.reference();
  await payer.enter('123456');
  await payer.sees('failed');
  await checkNothingRan(payer, 'failed', '/pay/');
  await shop.checkCharge(session, reference, { status: 'FAILED', reason: 'RAIL_ERROR' });
});

story('addresses are addresses', {}, async ({ shop, payer }) => {
  const refused = ['javascript:ran=1', 'data:text/html,x', 'https://a@evil.example', 'https:\\\\evil.example'];
  for (const redirect_url of refused) {
    const { code } = await shop.call('POST', '/initiate', { amount: 1, currency: 'GHS', redirect_url });
    assert.equal(code, 400, redirect_url);
  }
  const redirect_url = 'https://shop.example/"><script>ran=1</script>?a=\'"><svg/onload=ran=1>#"><b>';
  const session = await shop.session({ redirect_url });
  await payer.open(session);
  await payer.sees('form');
  await checkNothingRan(payer, redirect_url, '/pay/');
  const link = payer.page.getByRole('link', { name: 'Cancel and return' });
  assert.equal(new URL(await link.getAttribute('href')).host, 'shop.example');
  for (const query of ['?lang="><script>ran=1</script>', '?again="><svg onload=ran=1>', '#"><b>']) {
    await payer.open(session.payment_url + query);
    await payer.sees('form');
    await checkNothingRan(payer, query, '/pay/');
  }
  await payer.open(`${stack.ready.checkout}/pay/${encodeURIComponent('"><script>ran=1</script>')}`);
  await payer.sees('unknown');
  await checkNothingRan(payer, 'address', '/pay/');
});

story('a form on another site pays nothing', {}, async ({ shop, payer }) => {
  const from = number('001');
  const session = await shop.session();
  const fields = { attempt: crypto.randomUUID(), network: 'MTN', number: 'other', mobile_number: from };
  const inputs = Object.entries(fields).map(([name, value]) => `<input name="${name}" value="${value}">`);
  const form = `<form method="post" action="${session.payment_url}">${inputs.join('')}<button>Win</button></form>`;
  const evil = await Site.open(`<!doctype html><title>Win</title>${form}<iframe src="${session.payment_url}"></iframe>`);
  payer.expected.push('frame-ancestors');
  await payer.open(evil.url);
  const framed = payer.page.frames().find((frame) => frame.parentFrame());
  assert.equal(await framed.locator('body[data-state]').count(), 0, 'the page cannot be framed');
  const answered = payer.page.waitForResponse((answer) => answer.request().method() === 'POST');
  await payer.page.getByRole('button', { name: 'Win' }).click();
  assert.equal((await answered).status(), 403);
  await payer.sees('refused', 'so nothing was done');
  await payer.check('refused');
  await evil.close();
  assert.equal((await shop.status(session)).status, 'PENDING');
  assert.deepEqual(await stack.book(from), []);
  const honest = await anotherPayer();
  await honest.open(session);
  await honest.sees('form');
  await honest.leave();
});
