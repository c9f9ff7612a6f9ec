// The form for a new key, and the key that came of it: shown once, until it is put away.

import { ApiError, requestJson } from "./api.js";
import { $, copy } from "./page.js";
import { apiKey, useKey } from "./settings.js";

const dialog = $("new-key");
const form = dialog.querySelector("form");
const fields = form.elements;
const LIMITS = ["requests_per_minute", "tokens_per_minute", "concurrency", "budget_usd"];
let busy = false;

/** What is left empty is left to the gateway. */
function spec() {
  const text = (name) => fields[name].value.trim();
  const models = text("models").split(",").map((model) => model.trim()).filter(Boolean);
  const limits = LIMITS.filter(text).map((name) => [name, Number(text(name))]);
  if (text("budget_usd")) limits.push(["budget_period", text("budget_period")]);
  return {
    name: text("name"),
    priority: text("priority"),
    is_admin: fields.is_admin.checked,
    ...(text("tenant") && { tenant: text("tenant") }),
    ...(models.length && { models }),
    ...(text("weight") && { weight: Number(text("weight")) }),
    ...(limits.length && { allowance: Object.fromEntries(limits) }),
    ...(text("days") && { expires_at: Math.floor(Date.now() / 1000) + Number(text("days")) * 86_400 }),
  };
}

function reveal({ name, key }) {
  $("h-created").textContent = `The key of ${name}`;
  $("created").querySelector("code").textContent = key;
  $("created").hidden = false;
  $("h-created").focus();
}

function putAway() {
  $("created").hidden = true;
  $("created").querySelector("code").textContent = "";
  $("create-key").focus();
}

async function submit(onCreated) {
  if (busy) return;
  busy = true;
  try {
    const created = await requestJson("POST", "admin/keys", { key: apiKey(), body: spec(), timeoutMs: 15_000 });
    dialog.close();
    reveal(created);
    // The first key closes the gateway: without it this page would lock itself out.
    if (created.is_admin && !apiKey()) useKey(created.key);
    onCreated();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    $("new-key-error").textContent = error.message;
  } finally {
    busy = false;
  }
}

/** Opens the empty form. The first key of all should be an admin's. */
export function askForNewKey(isFirst) {
  form.reset();
  $("new-key-error").textContent = "";
  $("first-key").hidden = !isFirst;
  fields.is_admin.checked = isFirst;
  dialog.showModal();
}

/** Wires the form up; `onCreated` runs when there is another key. */
export function watchKeyForm(onCreated) {
  form.addEventListener("submit", (event) => {
    if (event.submitter?.value !== "ok") return;
    event.preventDefault();
    submit(onCreated);
  });
  $("copy-key").onclick = () => copy($("created").querySelector("code").textContent, $("copy-key"));
  $("created-done").onclick = putAway;
}
