// The dashboard: asks for the live document every two seconds while somebody looks, and hands it to what shows it.

import { getJson } from "./api.js";
import { showCanaries } from "./canary.js";
import { makeCards } from "./cards.js";
import { showFacts } from "./facts.js";
import { isRefusal, open, shut } from "./gate.js";
import { $ } from "./page.js";
import { apiKey, onNewKey } from "./settings.js";

const PERIOD_MS = 2000;
const page = $("dashboard");
const showCards = makeCards();
let shown = false;
let timer = 0;
let turn = 0; // answers to older questions come too late

function say(tone, words) {
  const [dot, text] = $("live").children;
  dot.className = `dot ${tone}`;
  if (text.textContent !== words) text.textContent = words; // a status that is written again is read out again
  page.classList.toggle("stale", tone === "failed");
}

function draw(live) {
  open(page);
  showCards(live);
  showCanaries(live.routes);
  showFacts(live);
  if (live.is_draining) say("degraded", "Shutting down");
  else say("ready", "Live");
}

function fail(error) {
  if (isRefusal(error)) {
    shut(page, error, poll);
    say("", "");
  } else {
    say("failed", error.status ? `Error ${error.status}: ${error.message}` : error.message);
  }
}

async function poll() {
  const mine = ++turn;
  clearTimeout(timer);
  if (!shown || document.hidden) return;
  try {
    const live = await getJson("admin/live", { key: apiKey() });
    if (mine !== turn) return;
    draw(live);
  } catch (error) {
    if (mine !== turn) return;
    fail(error);
    if (isRefusal(error)) return; // until there is another key
  }
  timer = setTimeout(poll, PERIOD_MS);
}

function look(on) {
  shown = on;
  poll();
}

document.addEventListener("visibilitychange", poll);
onNewKey(poll);

export const dashboard = { show: () => look(true), hide: () => look(false) };
