// Payments from the first page to the last, each also as the shop's API and the networks' book
// have it.

import assert from 'node:assert/strict';
import { number } from './shop.mjs';
import { approve, decline, story } from './world.mjs';

const MTN = 'MTN MoMo';
const TELECEL = 'Telecel Cash';
const AT = 'AT Money';

story('a prompt is approved on the phone', {}, async ({ shop, payer }) => {
  const from = number('100');
  const session = await shop.session();
  await payer.open(session);
  await payer.sees('form', 'GHS 25.50', 'Ama’s Kitchen', 'Order 17', 'Pay GHS 25.50');
  assert.equal(await payer.page.locator(':checked').count(), 0, 'no network is chosen for the payer');
  await payer.check('form');
  await payer.pay({ network: MTN, number: from });
  await payer.sees('prompt', 'Check your phone', `${from.slice(0, 3)} ••• ${from.slice(-4)}`);
  await payer.check('prompt');
  const reference = await payer.reference();
  await shop.checkCharge(session, reference, { status: 'INITIATED' });
  assert.equal((await shop.status(session)).status, 'PROCESSING');
  await payer.openHelp();
  await payer.sees('prompt', 'Did not get a prompt?', '*170#');
  await payer.check('prompt, help');
  await approve(from);
  await payer.sees('success', 'Payment complete', 'GHS 25.50', reference, 'You can close this page.');
  await payer.check('success');
  await shop.checkPaidOnce(session, { from });
  await shop.checkCharge(session, reference, { status: 'SETTLED' });
});

story('a wrong code is told and the right one pays', {}, async ({ shop, payer }) => {
  const from = number('002', '020');
  const session = await shop.session();
  await payer.open(session);
  await payer.pay({ network: TELECEL, number: from });
  await payer.sees('otp', 'Enter your code', '*110#');
  await payer.check('otp');
  const reference = await payer.reference();
  await shop.checkCharge(session, reference, { status: 'OTP_REQUIRED' });
  await payer.submit();
  await payer.sees('otp', 'There is a problem', 'Enter the code');
  await payer.check('otp, nothing entered');
  await payer.enter('000000');
  await payer.sees('otp', 'The last code was not accepted. Tries left: 2.');
  assert.match(await payer.page.title(), /^Error: /);
  await payer.check('otp, wrong code');
  await payer.openHelp();
  await payer.sees('otp', 'I did not get a code', 'Check that the phone is on');
  await payer.check('otp, help');
  await payer.enter('123456');
  await payer.sees('success', reference);
  await shop.checkPaidOnce(session, { from });
});

story('three wrong codes end the try, and another network pays', {}, async ({ shop, payer }) => {
  const session = await shop.session();
  await payer.open(session);
  await payer.pay({ network: TELECEL, number: number('002', '020') });
  await payer.sees('otp');
  await payer.useUpCodes();
  await payer.sees('failed', 'too many times', 'If money left your wallet');
  await payer.page.getByRole('link', { name: 'Try again' }).click();
  const from = number('001', '026');
  await payer.sees('form');
  await payer.pay({ network: AT, number: from });
  await payer.sees('success', AT);
  await shop.checkPaidOnce(session, { from });
});

story('a declined payment is paid in a second try', {}, async ({ shop, payer, site }) => {
  const [first, second] = [number('100'), number('100')];
  const session = await shop.session({ customer_phone: first, redirect_url: site.url });
  await payer.cannotReach(site);
  await payer.open(session);
  await payer.sees('form', '•••', 'Use another number');
  await payer.check('form, the shop knows the number');
  await payer.page.getByLabel(MTN).check();
  await payer.submit();
  await payer.sees('prompt');
  const declined = await payer.reference();
  await decline(first);
  await payer.sees('failed', 'declined on the phone', 'You were not charged.', declined);
  await payer.check('failed, declined');
  await shop.checkCharge(session, declined, { status: 'FAILED', reason: 'PAYER_DECLINED' });
  await shop.settled(session, 'PENDING');
  await payer.page.getByRole('link', { name: 'Try again' }).click();
  await payer.sees('form');
  await payer.page.getByLabel('Use another number').first().check();
  await payer.check('form, another number');
  await payer.pay({ network: MTN, number: second });
  await payer.sees('prompt');
  const paid = await payer.reference();
  assert.notEqual(paid, declined);
  await approve(second);
  await payer.sees('success', paid);
  await shop.checkPaidOnce(session, { from: second });
  await shop.checkCharge(session, declined, { status: 'FAILED', reason: 'PAYER_DECLINED' });
});

story('who does not want to wait is told how it stands', {}, async ({ shop, payer, site }) => {
  const from = number('100');
  const session = await shop.session({ redirect_url: site.url });
  await payer.cannotReach(site);
  await payer.open(session);
  await payer.pay({ network: TELECEL, number: number('002', '020') });
  await payer.sees('otp');
  await payer.page.getByRole('link', { name: 'Use another number or network' }).click();
  await payer.sees('otp', 'This payment is still open', 'You can enter a code until', 'Return to localhost');
  await payer.check('otp, leaving');
  await payer.page.getByRole('link', { name: 'Back to the payment' }).click();
  await payer.page.locator('#otp').waitFor();
  await payer.useUpCodes();
  await payer.page.getByRole('link', { name: 'Try again' }).click();
  await payer.pay({ network: MTN, number: from });
  await payer.sees('prompt');
  await payer.page.getByRole('link', { name: 'Cancel waiting' }).click();
  await payer.sees('prompt', 'This payment is still open', 'If you approve it, you pay GHS 25.50.');
  await payer.check('prompt, leaving');
  // The payer leaves in words only: the phone decides.
  await approve(from);
  await payer.sees('success');
  await shop.checkPaidOnce(session, { from });
});

story('the reference can be copied', { permissions: ['clipboard-read', 'clipboard-write'] }, async ({ shop, payer }) => {
  const from = number('100');
  const session = await shop.session();
  await payer.open(session);
  await payer.pay({ network: MTN, number: from });
  await payer.sees('prompt');
  const reference = await payer.reference();
  await payer.page.getByRole('button', { name: 'Copy reference' }).click();
  await payer.page.getByText('Copied').waitFor();
  assert.equal(await payer.page.evaluate(() => navigator.clipboard.readText()), reference);
  await decline(from);
  await payer.sees('failed');
});

for (const [name, suffix, network, ...words] of [
  ['no funds', '003', MTN, 'not enough money', 'You were not charged.'],
  ['over a limit', '012', MTN, 'over a limit', 'You were not charged.'],
  ['no wallet', '006', MTN, 'no wallet on the network', 'You were not charged.'],
  ['the network refuses', '007', TELECEL, 'cannot take payments right now', 'If money left your wallet'],
]) {
  story(`a payment that fails says why: ${name}`, {}, async ({ shop, payer }) => {
    const from = number(suffix);
    const session = await shop.session();
    await payer.open(session);
    await payer.pay({ network, number: from });
    await payer.sees('failed', 'Payment not completed', 'Try again', ...words);
    await payer.check(`failed, ${name}`);
    await shop.settled(session, 'PENDING');
  });
}

story('a session in dollars shows and takes cedis', {}, async ({ shop, payer }) => {
  const from = number('100');
  const session = await shop.session({ amount: 10, currency: 'USD' });
  await payer.open(session);
  await payer.sees('form', 'USD 10.00', 'GHS 125.00', 'Rate: 12.50', 'Pay GHS 125.00');
  await payer.check('form, another currency');
  await payer.pay({ network: MTN, number: from });
  await payer.sees('prompt', 'GHS 125.00');
  const reference = await payer.reference();
  await approve(from);
  await payer.sees('success', 'GHS 125.00');
  await payer.check('success, another currency');
  await shop.checkPaidOnce(session, { from, charged: 12_500 });
  await shop.checkCharge(session, reference, { status: 'SETTLED', amount: 125 });
});

story('all of it works without scripts', { javaScriptEnabled: false }, async ({ shop, payer, site }) => {
  const from = number('100');
  const session = await shop.session({ redirect_url: `${site.url}/thanks` });
  await payer.open(session);
  await payer.sees('form');
  await payer.submit();
  await payer.sees('form', 'Choose the network of your number', 'Enter your mobile money number');
  await payer.pay({ network: TELECEL, number: number('002', '020') });
  await payer.useUpCodes();
  await payer.page.getByRole('link', { name: 'Try again' }).click();
  await payer.pay({ network: MTN, number: from });
  await payer.sees('prompt');
  const look = () => payer.page.getByRole('link', { name: 'Check now' }).click();
  await look();
  await payer.sees('prompt');
  await approve(from);
  await shop.settled(session, 'COMPLETED');
  await look();
  await payer.sees('success', 'Return to localhost');
  await shop.checkPaidOnce(session, { from });
  await payer.page.getByRole('link', { name: 'Return to localhost' }).click();
  await payer.page.getByRole('heading', { name: 'Thank you' }).waitFor();
});
