"use strict";
// Shows what has changed. What somebody is reading with the keyboard or filling in is never replaced under their hands.
const live = document.querySelector("#live");
const main = document.querySelector("#main");
const source = new EventSource(document.body.dataset.events);
source.onopen = () => { live.textContent = "Changes are shown as they happen."; };
source.onerror = () => { live.textContent = "Not connected. Does the command still run?"; };
source.onmessage = async () => {
  if (main.contains(document.activeElement) && document.activeElement !== main) {
    live.textContent = "Something has changed. Reload the page to see it.";
    return;
  }
  const reply = await fetch(location.href, { cache: "no-store" });
  if (!reply.ok) { return; }
  const next = new DOMParser().parseFromString(await reply.text(), "text/html").querySelector("#main");
  main.replaceChildren(...next.childNodes);
};
