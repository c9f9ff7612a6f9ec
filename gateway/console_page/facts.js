// The tables of the dashboard: deployments, routes, keys and stores.

import { count, money, percent, time, utcTime } from "./format.js";
import { $, element } from "./page.js";
import { fillTable, state, twoLines } from "./tables.js";

const STATES = { ready: "good", degraded: "warn", loading: "warn", failed: "bad", stopped: "bad" };
const BREAKERS = { closed: ["good", "closed"], half_open: ["warn", "half open"], open: ["bad", "open"] };
const STORES = { up: ["good", "up"], down: ["bad", "down"], unused: ["none", "not used yet"] };

function deployment({ name, state: word, detail, slots, waiting, breaker, error_rate: errors, outstanding, ttft_s: ttft, is_healthy: healthy, paused_s: paused }) {
  const running = slots ? `${outstanding} of ${slots}` : count(outstanding);
  const rest = paused > 0 ? `rests for ${Math.ceil(paused)} s` : "";
  return [
    name,
    [state(STATES[word] ?? "none", word), ...(detail ? [element("small", "", detail)] : [])],
    state(...BREAKERS[breaker]),
    percent(errors),
    waiting ? twoLines(running, `${count(waiting)} waiting`) : running,
    time(ttft),
    [state(healthy ? "good" : "bad", healthy ? "healthy" : "unhealthy"), ...(rest ? [element("small", "", rest)] : [])],
  ];
}

const route = ({ name, deployments, running, capacity, waiting, refused }) =>
  [name, deployments.join(", "), capacity ? `${count(running)} of ${count(capacity)}` : count(running), count(waiting), count(refused)];

const key = ({ key_id: id, name, requests, tokens, cost_usd: cost }) =>
  [twoLines(name || id, name && id), count(requests), count(tokens), money(cost)];

/** Shows the facts of a live document. */
export function showFacts({ deployments, routes, usage, stores }) {
  fillTable($("deployments"), deployments.map(deployment), "There is none.");
  fillTable($("routes"), routes.map(route), "There is none.");
  const others = usage.others ? [key({ ...usage.others, name: "all other keys" })] : [];
  fillTable($("usage"), [...usage.keys.map(key), ...others], "No request has ended yet.");
  $("since").textContent = `Since ${utcTime(usage.since)}`;
  $("stores").replaceChildren(...stores.map(({ name, state: word, detail }) => {
    return element("li", "", element("b", "", name), state(...STORES[word]), ...(detail ? [element("small", "", detail)] : []));
  }));
  $("facts").hidden = false;
}
