// Somebody with a browser, and what must hold of every page that they see.

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

export class Visitor {
  /** Least height of what fingers touch. */
  touch_min = 48;

  /** `options` are the browser context's: a language, no scripts, another size. */
  static async arrive(browser, options = {}) {
    const visitor = new this();
    visitor.context = await browser.newContext({ viewport: PHONE, locale: 'en-GB', ...options });
    visitor.context.setDefaultTimeout(WAIT_MAX_MS);
    visitor.faults = [];
    visitor.expected = [];
    visitor.context.on('dialog', (dialog) => {
      visitor.faults.push(`a dialog: ${dialog.message()}`);
      return dialog.dismiss();
    });
    visitor.context.on('weberror', (fault) => visitor.faults.push(`a script failed: ${fault.error()}`));
    visitor.context.on('console', (message) => {
      // An answer that is an error, or none, is the test's own doing.
      const expected = ['Failed to load resource', ...visitor.expected];
      if (message.type() !== 'error') return;
      if (expected.some((text) => message.text().includes(text))) return;
      visitor.faults.push(message.text());
    });
    visitor.page = await visitor.context.newPage();
    return visitor;
  }

  /** Ends the visit; in all of it nothing ran that is not ours, and nothing of ours failed. */
  async leave() {
    await this.context.close();
    assert.deepEqual(this.faults, []);
  }

  /** What must hold of every state of every page. `name` is for the summary and for messages. */
  async check(name) {
    seen.add(name);
    await this.checkWidth(name);
    await this.checkTouch(name);
    await this.checkNames(name);
    const before = this.page.viewportSize();
    for (const size of [NARROW, PHONE, DESK]) {
      await this.page.setViewportSize(size);
      for (const colorScheme of ['light', 'dark']) {
        await this.page.emulateMedia({ colorScheme });
        await this.checkAccessible(`${name}, ${size.width} px, ${colorScheme}`);
        await this.picture(name, colorScheme, size);
      }
    }
    await this.page.emulateMedia({ colorScheme: null });
    await this.page.setViewportSize(before);
  }

  async picture(name, colorScheme, size) {
    if (!PICTURES) return;
    const before = this.page.viewportSize();
    await this.page.setViewportSize(size);
    const file = `${name.replaceAll(', ', '-').replaceAll(' ', '_')}.${colorScheme}.${size.width}.png`;
    await this.page.screenshot({ path: path.join(PICTURES, file), fullPage: true });
    await this.page.setViewportSize(before);
  }

  /** Nothing sticks out at 320 px and 1280 px, nor at 360 px with text twice as large. */
  async checkWidth(name) {
    const before = this.page.viewportSize();
    for (const [size, text] of [[NARROW, '100%'], [PHONE, '200%'], [DESK, '100%']]) {
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
      const touched = 'button, summary, .card, .check, .button, .quiet, input:not([type=radio], [type=checkbox], [type=hidden])';
      return [...document.querySelectorAll(touched)]
        .filter((element) => element.checkVisibility() && element.offsetHeight < least)
        .map((element) => `${element.offsetHeight} px: ${element.outerHTML}`);
    }, this.touch_min);
    assert.deepEqual(small, [], name);
  }

  /** Every link and button has a name, and no two of the same name do different things. */
  async checkNames(name) {
    const ambiguous = await this.page.evaluate(() => {
      const done = new Map();
      const told = (text) => (text ?? '').replace(/\s+/g, ' ').trim();
      for (const control of document.querySelectorAll('a[href], button')) {
        if (!control.checkVisibility()) continue;
        const fields = control.form ? [...new FormData(control.form)].flat().join(' ') : '';
        const does = control.href ?? control.dataset.copy ?? `${control.form?.action} ${fields}`;
        const called = told(control.getAttribute('aria-label') ?? control.textContent);
        done.set(called, (done.get(called) ?? new Set()).add(does));
      }
      const wrong = [...done].filter(([called, does]) => called === '' || does.size > 1);
      return wrong.map(([called, does]) => `${called}: ${[...does].join(', ')}`);
    });
    assert.deepEqual(ambiguous, [], name);
  }

  /** What has the focus, and whether that can be seen. */
  focused() {
    return this.page.evaluate(() => {
      const { activeElement } = document;
      const { outlineStyle, outlineWidth } = getComputedStyle(activeElement);
      const box = activeElement.getBoundingClientRect();
      // Of a field with several lines, browsers show the one with the cursor.
      const fits = box.height <= innerHeight && activeElement.tagName !== 'TEXTAREA';
      const is_in_view = fits ? box.top >= 0 && box.bottom <= innerHeight : box.top < innerHeight && box.bottom > 0;
      return {
        name: activeElement.id || activeElement.value || activeElement.className || activeElement.innerText,
        is_visible: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2 && is_in_view,
      };
    });
  }

  /** Presses a key, which must lead to what has a name like this, and show it. */
  async press(key, expected) {
    await this.page.keyboard.press(key);
    let now;
    const claim = () => `${key} leads to ${expected} and shows it, not ${JSON.stringify(now)}`;
    await until(claim, async () => {
      now = await this.focused();
      return expected.test(now.name) && now.is_visible;
    });
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
