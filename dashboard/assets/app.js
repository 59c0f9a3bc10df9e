// Keeps open pages up to date and adds the keyboard. Every page works without it.
"use strict";

const html = document.documentElement;
const root = html.dataset.root || "./";
const watch = html.dataset.watch || "";
const after = html.dataset.after || ""; // the newest event that the page may know
let script = document.currentScript?.dataset.stream; // stream.js; "" if the browser does not run it

// ---- live updates --------------------------------------------------------

const link = document.getElementById("link");
const shortest = 1000; // milliseconds between two reloads of the page's parts
const longest = 30000; // milliseconds that a reload may take
const silence = 35000; // milliseconds without a word after which the server has gone; it sends a beat every 15 seconds
let due = false, loading = false, last = 0, took = 0, timer = 0;
const waits = "live, waits for you"; // what the top bar says while a part is not replaced
let skipped = false; // a part was not replaced because somebody works in it

function say(state, text) {
  if (!link) return;
  link.hidden = false;
  link.dataset.state = state;
  if (link.textContent !== text) link.textContent = text;
  if (state === "lost") warn();
  else if (state === "live") calm();
}

// The page says how old it is when the server has not answered for a while. A server that only
// restarts is back before that.
const lost = document.getElementById("lost");
let warning = 0;

function warn() {
  if (!lost || warning) return;
  warning = setTimeout(() => {
    const known = lost.querySelector("time");
    known.dateTime = document.querySelector(".foot time").dateTime;
    tick(known);
    lost.hidden = false;
  }, 2000);
}

function calm() {
  clearTimeout(warning);
  warning = 0;
  if (lost) lost.hidden = true;
}

// concerns reports whether a change is about what the page shows.
function concerns(change) {
  if (watch === "clock") return false; // what it shows has no events
  if (watch === "all" || change.many) return true;
  const at = watch.indexOf(":"), kind = watch.slice(0, at), name = watch.slice(at + 1);
  if (kind === "queue") return (change.queues || []).includes(name);
  // The state of other jobs decides when a waiting job starts, so its page reloads too.
  return kind === "job";
}

function refresh() {
  due = true;
  if (loading || timer || document.hidden) return;
  // A page that is expensive for the server is loaded less often.
  const pause = Math.max(shortest, 10 * took);
  timer = setTimeout(load, Math.max(0, last + pause - Date.now()));
}

async function load() {
  timer = 0;
  if (document.hidden) return;
  due = false;
  loading = true;
  const began = Date.now();
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html", "Gq-Reload": "1" }, credentials: "same-origin", signal: AbortSignal.timeout?.(longest) });
    const text = await response.text();
    if (response.status === 401 || response.status === 403 || response.status === 404) {
      location.reload(); // the page says what has happened
      return;
    }
    if (response.ok) {
      replace(new DOMParser().parseFromString(text, "text/html"));
      say("live", skipped ? waits : "live");
    } else {
      say("lost", "server error");
      due = true;
    }
  } catch {
    say("lost", "disconnected");
    due = true;
  } finally {
    loading = false;
    last = Date.now();
    took = last - began;
    if (due) refresh();
  }
}

// replace puts the new parts of the page in place of the old ones, except where somebody works.
function replace(page) {
  skipped = false;
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(part.id);
    if (fresh && fresh.innerHTML === part.innerHTML) continue;
    if (busy(part)) {
      skipped = true;
      continue;
    }
    if (!fresh) { location.reload(); return; } // the page no longer has it
    if (part.dataset.searched) continue; // it has more than the page
    const opened = [...part.querySelectorAll("details")].map((d) => d.open);
    const scrolls = [...part.querySelectorAll(".scroll")].map((s) => [s.scrollLeft, s.scrollTop]);
    const focus = part.contains(document.activeElement) ? identity(document.activeElement) : null;
    const row = part.querySelector("[data-row].at");
    const rowLink = row && opens(row)?.getAttribute("href");
    part.className = fresh.className;
    part.replaceChildren(...[...fresh.childNodes].map((n) => document.importNode(n, true)));
    part.querySelectorAll("details").forEach((d, i) => { d.open = opened[i] || false; });
    part.querySelectorAll(".scroll").forEach((s, i) => { if (scrolls[i]) [s.scrollLeft, s.scrollTop] = scrolls[i]; });
    if (rowLink) rows().find((r) => opens(r)?.getAttribute("href") === rowLink)?.classList.add("at");
    if (focus) [...part.querySelectorAll("a, button, summary, [tabindex]")].find((e) => identity(e) === focus)?.focus({ preventScroll: true });
  }
  for (const part of page.querySelectorAll("[data-live]")) {
    if (!document.getElementById(part.id) && !skipped) { location.reload(); return; } // the page has a new part
  }
  const now = page.querySelector(".foot time"), old = document.querySelector(".foot time");
  if (now && old) old.replaceWith(document.importNode(now, true));
}

// busy reports whether somebody works in a part: fills in a form, has opened one, has ticked a box, has selected
// text, or points at a link or a button, which must not become another one under the pointer.
function busy(part) {
  const e = document.activeElement;
  const text = getSelection();
  return e && part.contains(e) && /^(INPUT|SELECT|TEXTAREA)$/.test(e.tagName) && e.type !== "hidden" ||
    part.querySelector("details[open] input, details[open] select, button:hover") ||
    pointed && part.querySelector("a:hover, summary:hover") ||
    !text.isCollapsed && text.containsNode(part, true) ||
    [...part.querySelectorAll("[type=checkbox]")].some((box) => box.checked !== box.defaultChecked);
}

// A finger points at nothing, nor does a mouse that has not moved since the page was opened.
let pointed = false;
document.addEventListener("pointermove", (e) => { pointed = e.pointerType === "mouse"; }, { passive: true });

for (const kind of ["focusout", "toggle", "change", "pointerout", "selectionchange"]) {
  document.addEventListener(kind, () => { if (skipped) refresh(); }, true);
}

// A search that has not looked at everything goes on by itself, until it has filled a page or somebody stops it.
async function search() {
  const part = document.getElementById("live-jobs");
  const found = () => part.querySelectorAll(".scroll tbody tr").length;
  const stop = Object.assign(document.createElement("button"), { type: "button", textContent: "Stop", onclick: () => { part.dataset.searched = "stopped"; } });
  for (let next; !document.hidden && part?.dataset.searched !== "stopped" && (next = part?.querySelector("a[data-further]"));) {
    if (part.dataset.searched && found() >= 50) return;
    part.dataset.searched = "on";
    const focus = document.activeElement === next;
    next.replaceWith(stop);
    if (focus) stop.focus();
    let fresh;
    try {
      const response = await fetch(next.href, { headers: { Accept: "text/html" }, credentials: "same-origin", signal: AbortSignal.timeout(30000) });
      if (!response.ok) throw new Error(response.statusText);
      fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("live-jobs");
      if (!fresh) throw new Error("another page"); // such as the one to sign in
    } catch {
      stop.replaceWith(next); // whoever clicks it sees why
      part.dataset.searched = "stopped";
      return;
    }
    const focused = document.activeElement === stop;
    const kept = part.querySelector(".scroll"); // what was found before; it stays, with what somebody has selected there
    const nodes = [...fresh.childNodes].map((n) => document.importNode(n, true));
    const at = nodes.findIndex((n) => n.matches?.(".scroll, .empty"));
    if (kept && at >= 0) {
      kept.querySelector("tbody").append(...nodes[at].querySelectorAll("tbody tr"));
      [...part.childNodes].forEach((n) => { if (n !== kept) n.remove(); });
      kept.before(...nodes.slice(0, at));
      kept.after(...nodes.slice(at + 1));
    } else {
      part.replaceChildren(...nodes);
    }
    if (focused) part.querySelector("a[data-further]")?.focus(); // the button takes its place and the focus
  }
}
search();
document.addEventListener("visibilitychange", search);

// identity says what a link or a button does. Its place in a list says nothing: rows come and go.
function identity(e) {
  const form = e.closest("form");
  const names = [e.tagName, e.getAttribute("href"), e.getAttribute("aria-label"), e.getAttribute("name"), e.getAttribute("value")];
  if (form) names.push(form.getAttribute("action"), ...[...form.elements].filter((f) => f.type === "hidden").map((f) => f.name + "=" + f.value));
  else if (e.closest("[data-row]")) names.push(opens(e.closest("[data-row]"))?.getAttribute("href"));
  if (e.tagName === "SUMMARY") names.push(e.textContent);
  return names.join("\n");
}

let heard = 0, again = 0, worker = null;
let leave = () => {}; // ends following the server

// follow calls hear with what the server says and returns what ends that. A browser has few connections to a server,
// so its pages share one where it can: see stream.js. Elsewhere each page that is shown has its own.
function follow(hear) {
  const address = new URL(root + "live", location.href).href;
  const known = Number(after);
  if (script && window.SharedWorker && !worker) {
    worker = new SharedWorker(script);
    worker.onerror = () => { // the browser does not run it
      script = "";
      if (!document.hidden) listen();
    };
  }
  if (script && worker) {
    worker.port.onmessage = ({ data }) => hear(data);
    worker.port.postMessage({ join: address, after: known });
    return () => {
      worker.port.onmessage = null;
      worker.port.postMessage({});
    };
  }
  const source = new EventSource(address + "?after=" + known);
  for (const kind of ["hello", "beat", "change"]) {
    source.addEventListener(kind, (e) => hear({ kind, data: JSON.parse(e.data) }));
  }
  source.onerror = () => hear({ kind: "error", closed: source.readyState === EventSource.CLOSED });
  return () => source.close();
}

function listen() {
  clearTimeout(again);
  leave();
  heard = Date.now();
  leave = follow(({ kind, data, closed }) => {
    if (kind !== "error") heard = Date.now();
    if (kind === "hello") {
      if (link && link.dataset.state === "lost") refresh(); // something may have been missed
      say("live", skipped ? waits : "live");
    } else if (kind === "change") {
      if (concerns(data)) refresh();
    } else if (kind === "error") {
      say("lost", "disconnected");
      if (!closed) return; // the browser connects again
      again = setTimeout(listen, 3000); // refused: the session is over, or the server is
      refresh();
    }
  });
}

// A connection can be cut without notice, by a network that goes away or a server that hangs.
function checkConnection() {
  if (document.hidden || Date.now() - heard < silence) return;
  say("lost", "disconnected");
  listen();
}

if (watch) {
  if (!document.hidden) listen();
  setInterval(checkConnection, 5000);
  addEventListener("pagehide", () => leave());
  // Rates fall and workers go while no job changes, so such a page also reloads by the clock.
  if (document.querySelector("[data-clock]")) setInterval(() => { if (Date.now() - last > 14000) refresh(); }, 15000);
  // A page that nobody sees follows nothing.
  document.addEventListener("visibilitychange", () => {
    clearTimeout(again);
    leave();
    if (document.hidden) return;
    listen();
    refresh();
  });
}

// ---- what does not fit ----------------------------------------------------

// On a phone the navigation is wider than the window: the current page is in view.
const here = document.querySelector(".bar > nav [aria-current]");
if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2;

// A cell that is cut off shows its whole text while somebody points at it.
document.addEventListener("pointerover", (e) => {
  const cell = e.target.closest?.("td");
  if (cell && !cell.title && cell.scrollWidth > cell.clientWidth) cell.title = cell.innerText;
});

// ---- loading -------------------------------------------------------------

// A page that takes its time says so, and a form is sent once.
addEventListener("beforeunload", () => setTimeout(() => say("busy", "loading"), 300));
document.addEventListener("submit", (e) => {
  if (e.target.method !== "post") return;
  if (e.target.dataset.sent) e.preventDefault();
  e.target.dataset.sent = "1";
});
// An action on many jobs goes on part by part, until somebody leaves the page.
const unfinished = document.querySelector("form[data-continue]");
if (unfinished) setTimeout(() => unfinished.requestSubmit(unfinished.querySelector("button")), 300);
// A page that the browser kept is out of date and follows nothing.
addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });

// ---- times ---------------------------------------------------------------

function duration(ms) {
  const s = Math.floor(ms / 1000);
  if (ms < 1000) return ms < 1 ? "<1 ms" : Math.floor(ms) + " ms";
  if (s < 10) return Math.floor(ms / 100) / 10 + " s";
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  for (let i = 0; i < units.length; i++) {
    const [name, size] = units[i];
    if (s < size) continue;
    let text = Math.floor(s / size) + " " + name;
    if (i + 1 < units.length) {
      const rest = Math.floor((s % size) / units[i + 1][1]);
      if (rest > 0) text += " " + rest + " " + units[i + 1][0];
    }
    return text;
  }
  return "0 s";
}

// The server's clock counts: the browser's may be wrong.
const footTime = document.querySelector(".foot time");
const skew = footTime ? Date.parse(footTime.dateTime) - Date.now() : 0;

// tick writes how far the time of an element is from now.
function tick(t) {
  if (t.dataset.form === "exact") return;
  const d = Date.now() + skew - Date.parse(t.dateTime);
  let text = duration(Math.abs(d));
  if (t.dataset.form === "age") text = duration(Math.max(0, d));
  else if (Math.abs(d) < 1000) text = "now";
  else text = d < 0 ? "in " + text : text + " ago";
  if (t.textContent !== text) t.textContent = text;
}

setInterval(() => {
  if (!document.hidden) document.querySelectorAll("main time, #lost time").forEach(tick);
}, 1000);

// ---- keyboard ------------------------------------------------------------

const rows = () => [...document.querySelectorAll("main [data-row]")];
const opens = (row) => row.querySelector("[data-open]") || row.querySelector("a");

function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const here = all.findIndex((r) => r.classList.contains("at"));
  const next = Math.min(all.length - 1, Math.max(0, here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step));
  all.forEach((r, i) => r.classList.toggle("at", i === next));
  all[next].scrollIntoView({ block: "nearest" });
  opens(all[next])?.focus({ preventScroll: true });
}

let going = 0; // until when g waits for the second key

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey || e.isComposing) return;
  const help = document.getElementById("help");
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  if (help?.open) return; // it closes by itself
  if (going > Date.now()) {
    going = 0;
    const to = document.querySelector(`nav [data-key="${CSS.escape(e.key)}"]`);
    if (to) { e.preventDefault(); location.href = to.href; }
    return;
  }
  switch (e.key) {
    case "/": {
      const find = document.getElementById("find");
      if (find) { e.preventDefault(); find.focus(); find.select(); }
      break;
    }
    case "?":
      e.preventDefault();
      help?.showModal();
      break;
    case "g":
      going = Date.now() + 1500;
      break;
    case "j":
      e.preventDefault();
      move(1);
      break;
    case "k":
      e.preventDefault();
      move(-1);
      break;
    case "Escape":
      rows().forEach((r) => r.classList.remove("at"));
      break;
  }
});
