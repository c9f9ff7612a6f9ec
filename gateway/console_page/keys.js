// The page of API keys: what there is, a new one, and the end of one.

import { ApiError, getJson, requestJson } from "./api.js";
import { ago, count, date, money } from "./format.js";
import { open, shut } from "./gate.js";
import { askForNewKey, watchKeyForm } from "./new-key.js";
import { $, confirmed, element, toast } from "./page.js";
import { apiKey, onNewKey } from "./settings.js";
import { fillTable, state } from "./tables.js";

const MOST = 200; // rows that are shown at once
const TONES = { active: "good", expired: "warn", revoked: "none" };
const page = $("admin-keys");
let shown = false;
let turn = 0; // answers to older questions come too late
let stored = [];

function limits({ requests_per_minute: requests, tokens_per_minute: tokens, concurrency, budget_usd: budget, budget_period: period }) {
  return [
    requests && `${count(requests)} requests/min`,
    tokens && `${count(tokens)} tokens/min`,
    concurrency && `${count(concurrency)} at once`,
    budget && `${money(budget)} ${period === "total" ? "in total" : `a ${period}`}`,
  ].filter(Boolean).join(", ") || "none";
}

function names(models) {
  if (!models) return "all";
  return models.length > 3 ? `${models.slice(0, 3).join(", ")} and ${models.length - 3} more` : models.join(", ");
}

function row(key) {
  const name = [element("b", "", key.name), ...(key.is_admin ? [" ", element("span", "badge", "admin")] : []), element("code", "", `${key.prefix}…`)];
  const until = key.state === "active" && key.expires_at ? [element("small", "", `until ${date(key.expires_at)}`)] : [];
  const revoke = element("button", "plain danger", "Revoke");
  revoke.dataset.revoke = key.id;
  revoke.ariaLabel = `Revoke ${key.name}`;
  return [
    name, key.tenant, names(key.models), key.weight === 1 ? key.priority : `${key.priority} × ${key.weight}`,
    limits(key.allowance), ago(key.last_used_at), [state(TONES[key.state], key.state), ...until],
    key.state === "active" ? revoke : "",
  ];
}

/** Those that work come first, and among them the newest. */
function draw() {
  const wanted = $("find-key").value.trim().toLowerCase();
  const found = stored
    .filter(({ name, tenant, prefix }) => [name, tenant, prefix].some((text) => text.toLowerCase().includes(wanted)))
    .sort((a, b) => (b.state === "active") - (a.state === "active") || b.created_at - a.created_at);
  fillTable($("key-list"), found.slice(0, MOST).map(row), stored.length ? "No key is like that." : "There is no key yet.");
  const few = found.length > MOST ? `The first ${MOST} of ` : "";
  $("key-count").textContent = `${few}${count(found.length)} ${found.length === 1 ? "key" : "keys"}`;
}

async function load() {
  const mine = ++turn;
  if (!shown) return;
  try {
    const { data } = await getJson("admin/keys", { key: apiKey() });
    if (mine !== turn) return;
    stored = data;
    open(page);
    draw();
  } catch (error) {
    if (mine === turn) shut(page, error, load);
  }
  $("create-key").hidden = page.querySelector(".content").hidden;
}

async function revoke(key) {
  const own = apiKey().startsWith(key.prefix) ? " It is the key that this page uses." : "";
  const text = `Requests with this key fail from now on. That cannot be undone.${own}`;
  if (!await confirmed({ title: `Revoke ${key.name}?`, text, yes: "Revoke", danger: true })) return;
  try {
    await requestJson("DELETE", `admin/keys/${encodeURIComponent(key.id)}`, { key: apiKey(), timeoutMs: 15_000 });
    toast(`${key.name} is revoked.`);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    toast(error.message);
  }
  await load();
  $("find-key").focus(); // the button that was pressed is gone
}

$("find-key").addEventListener("input", draw);
$("create-key").onclick = () => askForNewKey(!stored.length && !apiKey());
$("key-list").addEventListener("click", (event) => {
  const { revoke: id } = event.target.closest("[data-revoke]")?.dataset ?? {};
  if (id) revoke(stored.find((key) => key.id === id));
});
watchKeyForm(load);
onNewKey(load);

export const keys = {
  show() { shown = true; load(); },
  hide() { shown = false; turn += 1; },
};
