// A payer with a browser, and the phone on which prompts are approved.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { WAIT_MAX_MS, until } from './stack.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** The phone that most pages are made for, and the narrowest that they must fit. */
const PHONE = { width: 360, height: 740 };
const NARROW = { width: 320, height: 640 };

/** Where pictures of every page are kept, to be looked at by people; none are taken without it. */
const PICTURES = process.env.PICTURES;
const DESK = { width: 1280, height: 800 };

/** Least height of what fingers touch (pages.md D.3). */
const TOUCH_MIN = 48;

export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    chromiumSandbox: false,
    timeout: WAIT_MAX_MS,
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync',
      '--disable-background-networking', '--disable-component-update', '--disable-dev-shm-usage',
    ],
  });
}

/** States of the page that were checked in some test, for the summary. */
export const seen = new Set();

export class Payer {
  /** `options` are the browser context's: a language, no scripts, another size. */
  static async arrive(browser, options = {}) {
    const payer = new Payer();
    payer.context = await browser.newContext({ viewport: PHONE, locale: 'en-GB', ...options });
    payer.context.setDefaultTimeout(WAIT_MAX_MS);
    payer.faults = [];
    payer.expected = [];
    payer.context.on('dialog', (dialog) => {
      payer.faults.push(`a dialog: ${dialog.message()}`);
      return dialog.dismiss();
    });
    payer.context.on('weberror', (fault) => payer.faults.push(`a script failed: ${fault.error()}`));
    payer.context.on('console', (message) => {
      // An answer that is an error, or none, is the test's own doing.
      const expected = ['Failed to load resource', ...payer.expected];
      if (message.type() !== 'error') return;
      if (expected.some((text) => message.text().includes(text))) return;
      payer.faults.push(message.text());
    });
    payer.page = await payer.context.newPage();
    return payer;
  }

  /** Ends the visit; in all of it nothing ran that is not ours, and nothing of ours failed. */
  async leave() {
    await this.context.close();
    assert.deepEqual(this.faults, []);
  }

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

  /** What must hold of every state of every page. `name` is for the summary and for messages. */
  async check(name) {
    seen.add(name);
    await this.checkWidth(name);
    await this.checkTouch(name);
    for (const colorScheme of ['light', 'dark']) {
      await this.page.emulateMedia({ colorScheme });
      await this.checkAccessible(`${name}, ${colorScheme}`);
      await this.picture(name, colorScheme, PHONE);
    }
    await this.page.emulateMedia({ colorScheme: null });
    await this.picture(name, 'light', DESK);
  }

  async picture(name, colorScheme, size) {
    if (!PICTURES) return;
    const before = this.page.viewportSize();
    await this.page.setViewportSize(size);
    const file = `${name.replaceAll(', ', '-').replaceAll(' ', '_')}.${colorScheme}.${size.width}.png`;
    await this.page.screenshot({ path: path.join(PICTURES, file), fullPage: true });
    await this.page.setViewportSize(before);
  }

  /** Nothing sticks out at 320 px, nor at 360 px with text twice as large. */
  async checkWidth(name) {
    const before = this.page.viewportSize();
    for (const [size, text] of [[NARROW, '100%'], [PHONE, '200%']]) {
      await this.page.setViewportSize(size);
      const width = await this.page.evaluate((text) => {
        document.documentElement.style.fontSize = text;
        const { scrollWidth } = document.documentElement;
        document.documentElement.style.fontSize = '';
        return scrollWidth;
      }, text);
      assert.ok(width <= size.width, `${name} is ${width} px wide on ${size.width} px, text ${text}`);
    }
    await this.page.setViewportSize(before);
  }

  async checkTouch(name) {
    const small = await this.page.evaluate((least) => {
      const touched = 'button, summary, .card, .button, .quiet, input:not([type=radio], [type=hidden])';
      return [...document.querySelectorAll(touched)]
        .filter((element) => element.checkVisibility() && element.offsetHeight < least)
        .map((element) => `${element.offsetHeight} px: ${element.outerHTML}`);
    }, TOUCH_MIN);
    assert.deepEqual(small, [], name);
  }

  async checkAccessible(name) {
    await this.page.evaluate(AXE);
    const { violations } = await this.page.evaluate(
      (tags) => window.axe.run(document, { runOnly: tags, resultTypes: ['violations'] }),
      RULES,
    );
    const told = violations.map(({ id, help, nodes }) => ({ id, help, at: nodes.map(({ html }) => html) }));
    assert.deepEqual(told, [], name);
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
