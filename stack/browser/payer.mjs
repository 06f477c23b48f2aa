// A payer with a browser, and the phone on which prompts are approved.

import { WAIT_MAX_MS, until } from './stack.mjs';
import { Visitor } from './visitor.mjs';

export class Payer extends Visitor {
  /** The site cannot be reached, so that nothing takes the payer there after five seconds. */
  async cannotReach(site) {
    await this.context.route(`${site.url}/**`, (route) => route.abort('aborted'));
  }

  async open(address) {
    return this.page.goto(address.payment_url ?? address);
  }

  /** The page shows this state and these texts, now or after what is under way. */
  async sees(state, ...texts) {
    await this.page.waitForSelector(`body[data-state="${state}"]`);
    let words = '';
    const has_all = async () => {
      words = (await this.page.innerText('body')).replaceAll('\u{a0}', ' ');
      return texts.every((text) => words.includes(text));
    };
    await until(() => `the page says ${texts.join(' and ')}; it says:\n${words}`, has_all);
  }

  async fill({ network, number }) {
    if (network) await this.page.getByLabel(network).check();
    // Where the shop gave a number, another one is asked for only when it is chosen.
    const other = this.page.getByRole('radio', { name: /another number/ });
    if (await other.count()) await other.check();
    await this.page.locator('#mobile_number').fill(number);
  }

  async submit() {
    await this.page.locator('form button').click();
  }

  async pay(entered) {
    await this.fill(entered);
    await this.submit();
  }

  async enter(code) {
    await this.page.locator('#otp').fill(code);
    await this.submit();
  }

  /** Enters wrong codes until no more are taken. */
  async useUpCodes() {
    for (const left of [2, 1]) {
      await this.enter('000000');
      await this.sees('otp', `: ${left}.`);
    }
    await this.enter('000000');
    await this.sees('failed');
  }

  /** Opens the help, unless it has opened by itself meanwhile. */
  async openHelp() {
    const is_open = () => this.page.locator('details[open]').count();
    await until('the help is open', async () => {
      if (!(await is_open())) await this.page.locator('summary').click();
      return is_open();
    });
  }

  /** The charge's reference, as a payer would read it out. */
  async reference() {
    const words = await this.page.innerText('main');
    return words.match(/TX-[0-9A-Z]+-[0-9A-Z]+/)[0];
  }
}

/** Does at the simulated handset's own page what a payer does on the phone. */
export async function atHandset(browser, stack, action, number) {
  const context = await browser.newContext();
  context.setDefaultTimeout(WAIT_MAX_MS);
  const page = await context.newPage();
  await page.goto(`${stack.ready.handset}/?phone=${number}`);
  // The page brings the prompt by itself once the network has it.
  const done = page.waitForResponse((answer) => answer.request().method() === 'POST');
  await page.locator('.prompt').getByRole('button', { name: action }).click();
  await done;
  await context.close();
}
