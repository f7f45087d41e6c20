// While a page shows now, what happens makes its marked parts anew: at most once in some seconds, never twice at once.
"use strict";

(() => {
  const REST_MS = 3000, RETRY_MS_FIRST = 2000, RETRY_MS_MAX = 120000;
  const url = document.body.dataset.events;
  const state = document.getElementById("state");
  if (!url || !window.EventSource) return;
  let source = null, timer = null, retry = null, busy = false, stale = false, missed = false, last = 0, rest = RETRY_MS_FIRST;

  const say = (text) => { if (state.textContent !== text) state.textContent = text; };

  const isUsed = (part) => part.contains(document.activeElement) || (!getSelection().isCollapsed && part.contains(getSelection().anchorNode));

  function put(part, found) {
    const open = [...part.querySelectorAll("details[open]")].map((each) => each.id);
    const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    part.className = found.className;
    part.replaceChildren(...found.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    part.querySelectorAll(".scroll").forEach((each, i) => { each.scrollLeft = scrolled[i] || 0; });
    part.dispatchEvent(new CustomEvent("berth:changed", { bubbles: true }));
  }

  async function renew() {
    if (busy) { stale = true; return; }
    busy = true; stale = false; last = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error" });
      if (answer.status === 401) { stop(); say("signed out: load the page again"); return; }
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const found = page.getElementById(part.id);
        if (found && !isUsed(part)) put(part, found);
      }
    } catch { /* the stream says when the API is back */ } finally {
      busy = false;
      if (stale) soon();
    }
  }

  function soon() {
    if (timer === null) timer = setTimeout(() => { timer = null; renew(); }, Math.max(200, REST_MS - (Date.now() - last)));
  }

  function stop() {
    source?.close(); source = null;
    clearTimeout(timer); timer = null;
    clearTimeout(retry); retry = null;
  }

  function start() {
    if (source || document.hidden) return;
    source = new EventSource(url);
    source.onopen = () => {
      rest = RETRY_MS_FIRST;
      say("live");
      if (missed) soon();  // what happened while nobody listened
      missed = false;
    };
    for (const kind of ["decisions", "releases", "pending", "nodes", "shards"]) source.addEventListener(kind, soon);
    source.onerror = () => {
      missed = true;
      say("not live: trying again");
      if (source && source.readyState === EventSource.CLOSED) {  // refused: the browser gives up, so do we, for a while
        source = null;
        retry = setTimeout(start, rest);
        rest = Math.min(RETRY_MS_MAX, rest * 2);
      }
    };
  }

  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else { start(); soon(); } });
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", start);
  start();
})();
