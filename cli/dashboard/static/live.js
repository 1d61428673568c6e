"use strict";
// Shows what has changed. What somebody is reading with the keyboard or filling in is never replaced under their hands.
// A page that nobody sees has no stream: a browser opens only a few connections to one server.
const live = document.querySelector("#live");
const main = document.querySelector("#main");
let source = null;
let shown = new Date();
let connectedBefore = false;
let refreshing = false;
let again = false;
const RETRY_MILLISECONDS = 5000;

function connect() {
  source = new EventSource(document.body.dataset.events);
  source.onopen = () => {
    live.textContent = "Changes are shown as they happen.";
    if (connectedBefore) { refresh(); }  // something may have changed meanwhile
    connectedBefore = true;
  };
  source.onerror = () => { outdated("Not connected. Does the command still run?"); };
  source.onmessage = refresh;
}

function disconnect() {
  source.close();
  source = null;
}

function outdated(why) {
  live.textContent = `${why} The page shows how things were at ${shown.toLocaleTimeString()}.`;
}

// One reply at a time, so that an older one never replaces a newer one.
async function refresh() {
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = true;
  do {
    again = false;
    await showChange();
  } while (again);
  refreshing = false;
}

async function showChange() {
  if (main.contains(document.activeElement) && document.activeElement !== main) {
    live.textContent = "Something has changed. Reload the page to see it.";
    return;
  }
  let reply, text;
  try {
    reply = await fetch(location.href, { cache: "no-store" });
    text = await reply.text();
  } catch {
    outdated("Not connected. Does the command still run?");
    setTimeout(refresh, RETRY_MILLISECONDS);
    return;
  }
  const next = new DOMParser().parseFromString(text, "text/html").querySelector("#main");
  if (!reply.ok || !next) {
    const problem = next && next.querySelector(".problem");
    outdated(problem ? problem.textContent : "The page cannot be read now.");
    setTimeout(refresh, RETRY_MILLISECONDS);
    return;
  }
  shown = new Date();
  live.textContent = "Changes are shown as they happen.";
  main.replaceChildren(...next.childNodes);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden && source) { disconnect(); }
  if (!document.hidden && !source) { connect(); }
});
if (!document.hidden) { connect(); }
