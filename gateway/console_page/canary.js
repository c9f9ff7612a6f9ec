// The canaries of routes: how they do beside the others, and what an operator can decide about them.

import { requestJson } from "./api.js";
import { count, percent, time } from "./format.js";
import { $, confirmed, toast } from "./page.js";
import { apiKey } from "./settings.js";
import { fillTable } from "./tables.js";

const TONES = { running: "good", paused: "warn", promoted: "good", rolled_back: "bad" };
const POSSIBLE = { promote: ["running", "paused"], pause: ["running"], resume: ["paused", "rolled_back"], rollback: ["running", "paused", "promoted"] };
const DONE = { promote: "gets everything now", pause: "climbs no further", resume: "climbs on", rollback: "gets nothing now" };
const cards = new Map(); // route -> {node, canary, busy}

function paint(route) {
  const { node, canary } = cards.get(route);
  const { deployment, state, percent: share, reason } = canary;
  node.querySelector("h4").textContent = route;
  const pill = node.querySelector(".state");
  pill.className = `state ${TONES[state]}`;
  pill.textContent = state.replace("_", " ");
  const [amount, rest] = node.querySelector(".share").children;
  amount.textContent = `${Number(share.toFixed(2))}\u202f%`;
  rest.textContent = ` of the conversations go to ${deployment}`;
  Object.assign(node.querySelector("progress"), { value: share, ariaLabel: `Share of ${deployment}` });
  fillTable(node.querySelector("table"), [
    ["Answers", count(canary.attempts), count(canary.baseline_attempts)],
    ["Errors", percent(canary.error_rate), percent(canary.baseline_error_rate)],
    ["First token, p95", time(canary.ttft_p95_s || null), time(canary.baseline_ttft_p95_s || null)],
    ["Between tokens, p95", time(canary.itl_p95_s || null), time(canary.baseline_itl_p95_s || null)],
  ]);
  node.querySelector(".reason").textContent = reason;
  const middle = node.querySelector("[data-act=pause], [data-act=resume]");
  middle.dataset.act = POSSIBLE.resume.includes(state) ? "resume" : "pause";
  middle.textContent = middle.dataset.act === "resume" ? "Resume" : "Pause";
  // Not `disabled`: the button that was just pressed would lose the focus.
  for (const button of node.querySelectorAll("[data-act]")) button.ariaDisabled = !POSSIBLE[button.dataset.act].includes(state);
}

async function decide(route, action) {
  const card = cards.get(route);
  if (card.busy || !POSSIBLE[action].includes(card.canary.state)) return;
  const { deployment } = card.canary;
  const question = { title: `Promote ${deployment}?`, text: `All conversations of ${route} will go to it.`, yes: "Promote" };
  if (action === "promote" && !await confirmed(question)) return;
  card.busy = true;
  try {
    const path = `admin/canary/${route.split("/").map(encodeURIComponent).join("/")}`;
    card.canary = await requestJson("POST", path, { key: apiKey(), body: { action }, timeoutMs: 15_000 });
    paint(route);
    toast(`${route}: ${deployment} ${DONE[action]}.`);
  } catch (error) {
    toast(error.message);
  } finally {
    card.busy = false;
  }
}

function add(route, list) {
  const node = $("t-canary").content.firstElementChild.cloneNode(true);
  node.addEventListener("click", (event) => {
    const { act } = event.target.closest("[data-act]")?.dataset ?? {};
    if (act) decide(route, act);
  });
  list.append(node);
  const card = { node, canary: null, busy: false };
  cards.set(route, card);
  return card;
}

/** Shows the canaries of these routes ({name, canary}); where an order is under way, its answer is waited for. */
export function showCanaries(routes) {
  const box = $("canaries");
  const those = routes.filter(({ canary }) => canary);
  box.hidden = !those.length;
  for (const { name, canary } of those) {
    const card = cards.get(name) ?? add(name, box.lastElementChild);
    if (card.busy) continue;
    card.canary = canary;
    paint(name);
  }
  for (const [name, { node }] of cards) {
    if (those.some((route) => route.name === name)) continue;
    node.remove();
    cards.delete(name);
  }
}
