// @ts-check
// The whole script of the console: theme, keys, the recorder's zoom and selection, forms in dialogs, and looking again.
// Pages are complete without it: what it does in place, a link or a form does by loading a page.
'use strict';

/** @type {(selector: string, root?: ParentNode) => any} */
const $ = (selector, root = document) => root.querySelector(selector);
/** @type {(selector: string, root?: ParentNode) => any[]} */
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const clamp = (/** @type {number} */ x, /** @type {number} */ low, /** @type {number} */ high) => Math.min(high, Math.max(low, x));
document.documentElement.classList.add('scripted');

/** Small settings, which stay in this browser. @type {{get: (name: string) => string, set: (name: string, value: string) => void}} */
const kept = {
  get(name) { try { return localStorage.getItem(name) ?? ''; } catch { return ''; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* a browser that keeps nothing */ } },
};

// The theme: auto, light or dark.
/** @param {string} theme */
function setTheme(theme) {
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  for (const b of $$('.theme button')) b.setAttribute('aria-pressed', String(b.value === (theme || 'auto')));
}
setTheme(kept.get('theme'));
for (const b of $$('.theme button')) b.onclick = () => { setTheme(b.value); kept.set('theme', b.value); };

// The door: the code of the link is sent once, and is in no address any more.
const door = $('#door');
if (door && /^#[\w-]{43}$/.test(location.hash)) {
  $('#code').value = location.hash.slice(1);
  history.replaceState(null, '', location.pathname);
  door.requestSubmit();
} else if (door && $('[name=next]').value) $('[name=next]').value += location.hash; // of a link that was sent

// The page of the rail that is open is in view where the rail scrolls.
const here = $('nav [aria-current]');
if (here) $('.rail nav').scrollLeft = here.offsetLeft - 40;

// Times: ages count on by themselves; clocks are local, or UTC as the log has them.
let skew = 0; // of the daemon's clock, as far as ages show it
/** @param {number} ms */
function ageText(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${String(Math.floor(s % 3600 / 60)).padStart(2, '0')} min`;
  return `${Math.floor(s / 86400)} days`;
}
function showTimes() {
  for (const t of $$('time[data-age]')) {
    const text = ageText(Date.now() - skew - Number(t.dataset.age));
    if (t.textContent !== text) t.textContent = text;
  }
  const utc = kept.get('utc') === 'yes';
  for (const t of $$('time[data-at]')) {
    t.dataset.local ??= t.textContent;
    t.textContent = utc ? new Date(Number(t.dataset.at)).toISOString().slice(11, 19) + 'Z' : t.dataset.local;
  }
}
showTimes();
setInterval(() => { if (!document.hidden) showTimes(); }, 1000);

// Keys: / finds, g then a letter goes to a page, ? explains, u changes the clock.
let begun = 0;
addEventListener('keydown', (e) => {
  const at = /** @type {HTMLElement} */ (e.target);
  if (at.matches('input, select, textarea') || e.metaKey || e.ctrlKey || e.altKey) return;
  if ($('dialog[open]') || kept.get('keys') === 'off' && e.key !== '?') return;
  if (e.key === '/') { e.preventDefault(); $('#find')?.focus(); }
  else if (e.key === 'g') begun = Date.now();
  else if (e.key === '?') $('#keys')?.showModal();
  else if (recorder && '+=-0'.includes(e.key)) recorder.zoom({ '-': 'out', 0: 'all' }[e.key] ?? 'in');
  else if (e.key === 'u' && Date.now() - begun > 900) { kept.set('utc', kept.get('utc') === 'yes' ? 'no' : 'yes'); showTimes(); }
  else if (Date.now() - begun < 900) {
    const a = $(`nav a[data-key="${CSS.escape(e.key)}"]`);
    if (a) location.assign(a.href);
  }
});
const off = $('#keys-off');
if (off) { off.checked = kept.get('keys') === 'off'; off.onchange = () => kept.set('keys', off.checked ? 'off' : 'on'); }

// Ctrl-K: pages, the runs that the words find, and what can be done on this page.
const palette = $('#palette'), words = $('#goto', palette ?? document);
let searching = 0;
/** @param {any[]} links */
const list = (links) => $('ul', palette).replaceChildren(...links.slice(0, 12).map((a) => { const li = document.createElement('li'), b = a.cloneNode(true); b.className = ''; b.removeAttribute('tabindex'); li.append(b); return li; }));
async function choose() {
  const low = words.value.trim().toLowerCase(), mine = ++searching;
  const has = (/** @type {any} */ a) => a.textContent.toLowerCase().includes(low);
  const here = [...$$('.rail nav a'), ...$$('main [data-ask]')].filter(has);
  list(here);
  if (low.length < 2) return;
  await new Promise((done) => setTimeout(done, 200));
  if (mine !== searching) return;
  const { doc } = await page(`${document.body.dataset.base}find?q=${encodeURIComponent(words.value.trim())}`, {});
  if (mine === searching && doc) list([...here, ...$$('main a.b', doc)]);
}
addEventListener('keydown', (e) => {
  if (palette && e.key === 'k' && (e.ctrlKey || e.metaKey) && !$('dialog[open]')) { e.preventDefault(); words.value = ''; palette.showModal(); choose(); }
  if (!palette?.open || !['ArrowDown', 'ArrowUp', 'Enter'].includes(e.key)) return;
  const stops = [words, ...$$('a', palette)], at = stops.indexOf(document.activeElement);
  if (e.key !== 'Enter') { e.preventDefault(); stops.at((at + (e.key === 'ArrowDown' ? 1 : -1)) % stops.length).focus(); }
  else if (at === 0) { e.preventDefault(); stops[1]?.click(); }
});
if (words) words.oninput = () => choose().catch(() => {});
palette?.addEventListener('click', (/** @type {any} */ e) => { if (e.target.closest('a')) palette.close(); });

// What is said aloud: politely, and once in ten seconds at most.
let lastSaid = 0;
/** @param {string} text @param {boolean} [now] */
function say(text, now) {
  if (!now && Date.now() - lastSaid < 10000) return;
  lastSaid = Date.now();
  const place = $('#said');
  if (place) place.textContent = text;
}
/** @param {string} text */
function note(text) {
  const p = document.createElement('p');
  p.className = 'note';
  p.textContent = text;
  $$('main > .note').forEach((old) => old.remove());
  $('#away')?.after(p);
  say(text, true);
}

/** Reads a page of the console. @param {string} url @param {Record<string, string>} headers */
async function page(url, headers) {
  const r = await fetch(url, { headers, credentials: 'same-origin', redirect: 'follow' });
  const text = r.status === 304 ? '' : await r.text();
  return { status: r.status, headers: r.headers, url: r.url, doc: text ? new DOMParser().parseFromString(text, 'text/html') : null };
}

// Forms open in a dialog. The form itself is a page of its own, drawn when it is asked for, with a key of its own.
const dialog = /** @type {HTMLDialogElement} */ ($('#ask'));
/** @type {HTMLElement | null} */
let asker = null;
/** @param {HTMLAnchorElement} link */
async function openForm(link) {
  if (!dialog.open) asker = link; // a link in a form replaces the form
  const { doc } = await page(link.href, {});
  const form = doc && ($('form.ask', doc) ?? $('main .card', doc));
  if (!form) { location.assign(link.href); return; }
  dialog.replaceChildren(document.adoptNode(form));
  if (!$('#askh', dialog)) { const h = $('h2', dialog); if (h) h.id = 'askh'; addClose(); }
  if (!dialog.open) dialog.showModal();
  ($('input:not([type=hidden]), textarea:not(details textarea)', dialog) ?? $('.btn', dialog))?.focus();
}
function addClose() {
  const b = document.createElement('button');
  b.type = 'button';
  b.className = 'btn';
  b.dataset.close = '';
  b.textContent = 'Close';
  dialog.append(b);
}
/** @param {HTMLFormElement} form */
async function sendForm(form) {
  const button = $('.btn.pri', form);
  if (button.disabled) return;
  button.disabled = true;
  const body = new URLSearchParams(/** @type {any} */ (new FormData(form)));
  try {
    const r = await fetch(form.action, { method: 'POST', body, headers: { 'Ckpt-Form': '1' }, credentials: 'same-origin' });
    const text = await r.text();
    if (r.ok) {
      dialog.close();
      note(text.trim());
      await look(true);
      return;
    }
    const doc = new DOMParser().parseFromString(text, 'text/html');
    const card = $('main .card', doc);
    if (r.status === 422 || r.status === 503) { // what was typed stays, to be corrected or sent again
      button.disabled = false;
      failed(form, $('.in p', card ?? doc)?.textContent ?? text);
      return;
    }
    dialog.replaceChildren();
    if (card) dialog.append(document.adoptNode(card)); else dialog.textContent = text;
    const h = $('h2', dialog);
    if (h) h.id = 'askh';
    addClose();
    say(h?.textContent ?? text, true);
    look(true);
  } catch {
    button.disabled = false;
    failed(form, 'The console did not answer. Send it again: the same form does it once.');
  }
}
/** Says in a form why it was not done. @param {HTMLFormElement} form @param {string} text */
function failed(form, text) {
  const p = $('.sendfail', form) ?? document.createElement('p');
  p.className = 'crit sendfail';
  p.textContent = text;
  form.append(p);
  p.scrollIntoView({ block: 'nearest' });
  say(text, true);
}
dialog?.addEventListener('submit', (e) => {
  const form = /** @type {HTMLFormElement} */ (e.target);
  if (!form.matches('.ask')) return;
  e.preventDefault();
  sendForm(form);
});
dialog?.addEventListener('close', () => { if (asker?.isConnected) asker.focus(); asker = null; });

// One listener for the page, because parts of it are replaced.
addEventListener('click', (e) => {
  const at = /** @type {HTMLElement} */ (e.target);
  const b = /** @type {any} */ (at.closest('[data-ask], [data-close], [data-copy], [data-zoom], [data-pick], .mk'));
  if (!b || e.ctrlKey || e.metaKey || e.shiftKey || e.button !== 0) return;
  if (b.dataset.close !== undefined) {
    const d = b.closest('dialog');
    if (d) { e.preventDefault(); d.close(); }
  } else if (b.dataset.copy !== undefined) {
    navigator.clipboard?.writeText($('pre, code', b.parentElement).textContent).then(() => { b.textContent = 'Copied'; }, () => {});
  } else if (b.dataset.ask !== undefined && b.href.includes('/ask/')) {
    e.preventDefault();
    openForm(b).catch(() => location.assign(b.href));
  } else if (b.dataset.zoom && recorder) {
    e.preventDefault();
    recorder.zoom(b.dataset.zoom);
  } else if (b.matches('.mk') && recorder) {
    e.preventDefault();
    recorder.select(b);
  } else if (b.dataset.pick && recorder?.step(b.dataset.pick === 'after' ? 1 : -1)) {
    e.preventDefault();
  }
});
addEventListener('change', (e) => {
  const at = /** @type {any} */ (e.target);
  if (at.id === 'against') goTo(new URL(`?${new URLSearchParams(/** @type {any} */ (new FormData(at.form)))}`, at.form.action).href, true);
  else if (at.closest('form[data-filter]')) at.form.requestSubmit();
});

// Looking again. The server answers 304 while the page would show the same. What has changed is replaced part by part, so
// that focus, scroll and open folds stay.
const live = Number(document.body.dataset.live || 0);
let etag = '', looking = false, where = location.href, awaySince = '';
/** A part without the times in it, which count on by themselves. @param {Element} part */
const still = (part) => part.outerHTML.replace(/(<time[^>]*>)[^<]*/g, '$1').replace(/ data-local="[^"]*"/g, '');
/** @type {Map<string, string>} */
const drawn = new Map();
for (const part of $$('[data-live][id]')) drawn.set(part.id, still(part));

/** @param {Document} doc */
function replaceParts(doc) {
  let changed = 0;
  const parts = $$('[data-live][id]', doc), there = new Set(parts.map((part) => part.id));
  for (const fresh of parts) {
    const text = still(fresh), old = document.getElementById(fresh.id);
    if (drawn.get(fresh.id) === text) continue;
    drawn.set(fresh.id, text);
    if (!old) { changed++; $('main > .stack')?.append(document.adoptNode(fresh)); continue; }
    const open = new Set($$('details[open][id]', old).map((d) => d.id)), scroll = $$('.diff, .tree, .scroll', old).map((x) => [x.scrollTop, x.scrollLeft]);
    const focus = old.contains(document.activeElement) ? pathTo(old, document.activeElement) : null;
    const node = document.adoptNode(fresh);
    settle(node);
    const end = node.dataset.follow !== undefined && innerHeight + scrollY > document.documentElement.scrollHeight - 120;
    old.replaceWith(node);
    if (end) scrollTo(0, document.documentElement.scrollHeight);
    for (const d of $$('details[id]', node)) if (open.has(d.id)) d.open = true;
    $$('.diff, .tree, .scroll', node).forEach((x, i) => { if (scroll[i]) [x.scrollTop, x.scrollLeft] = scroll[i]; });
    if (focus) focusOn(node, focus);
    if (fresh.id === 'recorder') startRecorder();
    changed++;
  }
  for (const old of $$('[data-live][id]')) if (!there.has(old.id)) { drawn.delete(old.id); old.remove(); changed++; }
  const badge = $('.rail nav ul', doc), rail = $('.rail nav ul');
  if (badge && rail && badge.innerHTML !== rail.innerHTML && !rail.contains(document.activeElement)) rail.replaceWith(document.adoptNode(badge));
  showHead(doc);
  showTimes();
  return changed;
}
/** Shows in the title and in the icon how much needs a person, and tells it if nobody sees the page. @param {Document} doc */
function showHead(doc) {
  const before = needsIn(document.title), now = needsIn(doc.title), icon = $('link[rel=icon]'), fresh = $('link[rel=icon]', doc);
  document.title = (now ? `(${now}) ` : '') + document.title.replace(/^\(\d+\) /, '');
  if (icon && fresh && icon.href !== fresh.href) icon.href = fresh.href;
  if (document.hidden && now > before && globalThis.Notification?.permission === 'granted') {
    new Notification(`${now} need you`, { body: $('#needs .t', doc)?.textContent ?? '', tag: 'ckptsidecar' });
  }
}
const needsIn = (/** @type {string} */ title) => Number(/^\((\d+)\)/.exec(title)?.[1] ?? 0);
/** Marks rows that are new. While the pointer or the focus is in a list, no row moves: a new row comes at the end, and a
 * row that is gone stays in its place and does nothing. @param {Element} fresh */
function settle(fresh) {
  for (const list of $$('[data-rows]', fresh)) {
    const old = document.getElementById(list.id), rows = new Map($$('[data-row]', list).map((row) => [row.dataset.row, row]));
    if (!old) continue;
    const held = old.matches(':hover, :focus-within'), was = $$('[data-row]', old);
    const known = new Set(was.map((row) => row.dataset.row)), come = [...rows.values()].filter((row) => !known.has(row.dataset.row));
    for (const row of come) row.classList.add('new');
    if (come.length) say(`New: ${come.map((row) => $('.b', row).textContent).join(', ')}`);
    if (!held) continue;
    for (const row of was) {
      const now = rows.get(row.dataset.row) ?? row.cloneNode(true);
      if (!rows.has(row.dataset.row)) { now.inert = true; now.classList.add('gone'); }
      list.append(now);
    }
    list.append(...come);
    drawn.delete(fresh.id); // the order of the page comes when the pointer has left
    etag = '';
    due = true;
  }
}
/** How to find an element again in a newer part: by its id, its link, or its label. @param {Element} root @param {any} el */
function pathTo(root, el) {
  if (el.id) return `#${CSS.escape(el.id)}`;
  if (el.getAttribute('href')) return `[href="${CSS.escape(el.getAttribute('href'))}"]`;
  if (el.getAttribute('aria-label')) return `[aria-label="${CSS.escape(el.getAttribute('aria-label'))}"]`;
  return el.closest('[id]') === root ? '' : null;
}
/** @param {any} root @param {string} path */
function focusOn(root, path) {
  const el = path ? root.querySelector(path) : null;
  if (el) { el.focus({ preventScroll: true }); return; }
  // What had the focus is gone: the part itself takes it, so that it is not lost.
  root.tabIndex = -1;
  root.focus({ preventScroll: true });
}

/** @param {boolean} [now] */
async function look(now) {
  if (looking || !now && (document.hidden || !live)) return;
  if (!now && dialog?.open) return;
  looking = true;
  due = false;
  looked = Date.now();
  try {
    const { status, headers, doc } = await page(where, now ? {} : { 'Ckpt-Live': '1', 'If-None-Match': etag });
    if (status === 304 || status === 200) back();
    if (status === 200 && doc) {
      const first = etag === '';
      etag = headers.get('ETag') ?? '';
      const needs = count();
      if ($('#retry')) { location.reload(); return; }
      if (replaceParts(doc) && !first && count() !== needs) say(`${count()} need you`);
    } else if (status === 503) {
      away(headers.get('Ckpt-Away-Since') ?? '', headers.get('Ckpt-Away-What') ?? undefined);
    } else if (status === 403) {
      location.reload();
    }
  } catch {
    away('', 'The console has ended, or cannot be reached');
  } finally { looking = false; }
}
const count = () => parseInt($('#needs-n')?.textContent ?? '0', 10) || 0;
/** @param {string} since @param {string} [what] */
function away(since, what = 'The daemon is away') {
  const p = $('#away');
  if (!p) return;
  awaySince ||= since ? new Date(since).toLocaleTimeString() : new Date().toLocaleTimeString();
  p.hidden = false;
  p.textContent = `${what} since ${awaySince}. What stands here is from before. The page goes on by itself when it is back.`;
}
function back() {
  const p = $('#away');
  if (!p || p.hidden) return;
  p.hidden = true;
  awaySince = '';
  etag = '';
  say('The daemon is back', true);
}

// The console says when something has changed. Where it cannot, the page looks again by itself. A hidden tab asks nothing,
// unless a person wants to be told what needs one: then it asks rarely.
const tells = () => kept.get('tell') === 'yes';
const tell = $('#tell');
if (tell) {
  tell.checked = tells();
  tell.onchange = () => { kept.set('tell', tell.checked ? 'yes' : 'no'); if (tell.checked) globalThis.Notification?.requestPermission(); };
}
let due = false, told = false, following = false, looked = Date.now();
/** @type {AbortController | null} */
let waiting = null;
const rarely = 10000; // a page that is told of changes also looks this often
async function follow() {
  if (following) return;
  following = true;
  let seen = '';
  while (!document.hidden || tells()) {
    waiting = new AbortController();
    try {
      const r = await fetch(`${document.body.dataset.base}changes?seen=${seen}&${document.body.dataset.of ?? ''}`,
        { headers: { 'Ckpt-Live': document.hidden ? 'hidden' : '1' }, credentials: 'same-origin', signal: waiting.signal });
      if (r.status !== 200 && r.status !== 204) throw new Error();
      told = true;
      if (r.status === 204) continue;
      seen = (await r.text()).trim();
      due = true;
    } catch { told = false; seen = ''; }
    if (!document.hidden) await look();
    else if (tells()) await page(document.body.dataset.base ?? '', { 'Ckpt-Live': 'hidden' }).then(({ doc }) => { if (doc) showHead(doc); }, () => {});
    await new Promise((done) => setTimeout(done, document.hidden ? rarely : live));
  }
  following = false;
}
if (live) {
  setInterval(() => { if (due || !told || Date.now() - looked > rarely) look(); if (!document.hidden || tells()) follow(); }, live);
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) { if (!tells()) waiting?.abort(); return; }
    due = true;
    look();
    follow();
  });
  follow();
}

// What looks at very much comes after the page.
const later = $('[data-later]');
if (later) page(later.dataset.later, {}).then(({ status, doc }) => { if (status === 200 && doc) replaceParts(doc); }, () => {});

/** Shows another view of the same page in place. @param {string} url @param {boolean} [replace] */
async function goTo(url, replace) {
  try {
    const { status, doc, headers } = await page(url, {});
    if (status !== 200 || !doc) { location.assign(url); return; }
    where = url;
    etag = headers.get('ETag') ?? '';
    if (replace) history.replaceState(null, '', url); else history.pushState(null, '', url);
    replaceParts(doc);
  } catch { location.assign(url); }
}
// Back shows the view before. A link within the page, such as the one to the content, loads nothing.
const plain = (/** @type {string} */ url) => url.split('#')[0];
addEventListener('popstate', () => { if (plain(location.href) !== plain(where)) location.reload(); });

// The flight recorder: zoom, brush, and the choice of a checkpoint.
/** @type {null | {zoom: (how: string) => void, select: (mark: any) => void, step: (by: number) => boolean}} */
let recorder = null;
/** @type {[number, number] | null} */
let view = null; // kept while the recorder is replaced
function startRecorder() {
  recorder = null;
  const rec = $('#rec');
  if (!rec) return;
  const W = Number(rec.dataset.w), L = Number(rec.dataset.l), P = W - L;
  const binned = $('[data-binned]') !== null;
  /** @type {[number, number][]} */
  const scale = JSON.parse($('#rec-scale')?.textContent || '[]');
  let [a, b] = view ?? [0, 1];
  const marks = $$('[data-a]', rec), win = $('.win', rec), h1 = $('#h1'), h2 = $('#h2');
  const whole = { x: Number(win.getAttribute('x')), w: Number(win.getAttribute('width')) };
  const draw = () => {
    for (const m of marks) {
      const x0 = L + (m.dataset.a - a) / (b - a) * P;
      if (m.tagName === 'rect') {
        const x1 = L + (m.dataset.b - a) / (b - a) * P, l = clamp(x0, L, W), r = clamp(x1, L, W);
        m.setAttribute('x', l);
        m.setAttribute('width', Math.max(r - l - .6, x0 >= L && x0 <= W ? Number(m.dataset.min || 0) : 0));
      } else {
        m.setAttribute('transform', `translate(${x0} ${m.dataset.y || 0})`);
        m.setAttribute('visibility', x0 < L - 1 || x0 > W + 1 ? 'hidden' : 'visible');
      }
    }
    const x = whole.x + a * whole.w, w = (b - a) * whole.w;
    win.setAttribute('x', x);
    win.setAttribute('width', Math.max(2, w));
    h1.setAttribute('x', x - 3);
    h2.setAttribute('x', x + w - 3);
  };
  /** @param {number} x @param {number} y */
  const see = (x, y) => {
    const w = clamp(y - x, .01, 1);
    a = clamp(x, 0, 1 - w);
    b = a + w;
    view = a === 0 && b === 1 ? null : [a, b];
    draw();
  };
  /** The moment at a share of the axis, which has folds in it. @param {number} x */
  const moment = (x) => {
    for (let i = 1; i < scale.length; i++) {
      const [x0, t0] = scale[i - 1], [x1, t1] = scale[i];
      if (x <= x1 || i === scale.length - 1) return Math.round(t0 + (x - x0) / (x1 - x0 || 1) * (t1 - t0));
    }
    return 0;
  };
  /** A view of bins is fetched anew. @param {number} x @param {number} y */
  const fetchView = (x, y) => {
    const url = new URL(where);
    url.searchParams.set('from', String(moment(x)));
    url.searchParams.set('to', String(Math.max(moment(y), moment(x) + 100)));
    view = null;
    goTo(url.href);
  };
  const at = (/** @type {MouseEvent} */ e) => {
    const r = rec.getBoundingClientRect();
    return clamp(((e.clientX - r.left) / r.width * W - L) / P, 0, 1);
  };
  const options = $$('.mk', rec);
  const middle = () => {
    const p = Number($('#selx')?.dataset.a ?? (a + b) / 2);
    return p >= a && p <= b ? p : (a + b) / 2;
  };
  const zoom = (/** @type {string} */ how) => {
    const moved = new URL(where).searchParams.has('from');
    if (how === 'all') {
      if (moved) { const url = new URL(where); url.searchParams.delete('from'); url.searchParams.delete('to'); view = null; goTo(url.href); } else see(0, 1);
      return;
    }
    const p = middle(), k = how === 'in' ? .7 : 1.4, x = p - (p - a) * k, y = p + (b - p) * k;
    if (binned && how === 'in') fetchView(Math.max(0, x), Math.min(1, y));
    else if (moved && how === 'out' && a === 0 && b === 1) goTo($('[data-zoom=out]').href);
    else see(x, y);
  };
  const select = (/** @type {any} */ m) => {
    for (const o of options) {
      o.setAttribute('aria-selected', String(o === m));
      o.tabIndex = o === m ? 0 : -1;
      $('.cp', o).classList.toggle('sel', o === m);
    }
    const p = Number(m.dataset.a), line = $('#selx', rec);
    if (line) line.dataset.a = m.dataset.a;
    if (p < a || p > b) see(p - (b - a) / 2, p + (b - a) / 2); else draw();
    m.focus({ preventScroll: true });
    pick(m);
  };
  const step = (/** @type {number} */ by) => {
    const i = options.findIndex((o) => o.getAttribute('aria-selected') === 'true'), to = options[i + by];
    if (!to) return false;
    select(to);
    return true;
  };
  for (const [i, m] of options.entries()) {
    m.onkeydown = (/** @type {KeyboardEvent} */ e) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: options.length - 1, ' ': i }[e.key];
      if (to === undefined || !options[to]) return;
      e.preventDefault();
      select(options[to]);
    };
  }
  if (options.length && !options.some((o) => o.tabIndex === 0)) options[0].tabIndex = 0;
  rec.addEventListener('wheel', (/** @type {WheelEvent} */ e) => {
    if (!e.ctrlKey && !e.shiftKey) return;
    e.preventDefault();
    const p = a + at(e) * (b - a), k = (e.deltaY || e.deltaX) > 0 ? 1.25 : .8;
    see(p - (p - a) * k, p + (b - p) * k);
  }, { passive: false });
  /** @type {string | null} */
  let drag = null;
  const brush = $('#brush', rec), inWhole = (/** @type {MouseEvent} */ e) => clamp((at(e) * P + L - whole.x) / whole.w, 0, 1);
  brush.addEventListener('pointerdown', (/** @type {any} */ e) => {
    const p = inWhole(e);
    drag = e.target.id || (p > a && p < b ? `m${p - a}` : 'h2');
    if (drag === 'h2' && !(p > a && p < b)) [a, b] = [p, p + .02];
    brush.setPointerCapture(e.pointerId);
  });
  brush.addEventListener('pointermove', (/** @type {any} */ e) => {
    if (!drag) return;
    const p = inWhole(e);
    if (drag === 'h1') see(Math.min(p, b - .01), b);
    else if (drag === 'h2') see(a, Math.max(p, a + .01));
    else if (drag[0] === 'm') see(p - Number(drag.slice(1)), p - Number(drag.slice(1)) + b - a);
  });
  brush.addEventListener('pointerup', () => {
    drag = null;
    if (binned && b - a < .98) fetchView(a, b);
  });
  recorder = { zoom, select, step };
  if (view) draw();
}
startRecorder();

// The newest choice wins: whoever steps through checkpoints quickly sees the last one.
let picking = 0;
/** @param {any} mark */
async function pick(mark) {
  const mine = ++picking, url = new URL(mark.getAttribute('href'), location.href);
  const now = new URL(where);
  for (const name of ['from', 'to']) if (now.searchParams.has(name)) url.searchParams.set(name, now.searchParams.get(name) ?? '');
  await new Promise((done) => setTimeout(done, 60));
  if (mine !== picking) return;
  try {
    const { status, doc, headers } = await page(url.href, {});
    if (mine !== picking) return;
    const fresh = doc && $('#picked', doc), old = $('#picked');
    if (status !== 200 || !fresh || !old) { location.assign(url.href); return; }
    where = url.href;
    etag = headers.get('ETag') ?? '';
    history.replaceState(null, '', url.href);
    drawn.set('picked', still(fresh));
    old.replaceWith(document.adoptNode(fresh));
    const rec = $('#recorder', doc);
    if (rec) drawn.set('recorder', still(rec));
    showTimes();
    say($('#pickedname')?.textContent ?? '', true);
  } catch { location.assign(url.href); }
}
