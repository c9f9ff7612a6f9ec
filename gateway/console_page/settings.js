// The parameters of a request: a form, kept in this tab's memory, and the API key that the gateway may ask for.

import { $, load, save } from "./page.js";

const form = $("settings");
const fields = form.elements;

const keyListeners = [];
let knownKey = "";

export const apiKey = () => fields.key.value.trim();

/** Calls `listener` whenever another key is used from now on. */
export const onNewKey = (listener) => keyListeners.push(listener);

function showTemperature() {
  $("temperature-out").value = Number(fields.temperature.value).toFixed(2).replace(/0$/, "");
}

function changed() {
  showTemperature();
  save("settings", Object.fromEntries(new FormData(form)));
  if (apiKey() === knownKey) return;
  knownKey = apiKey();
  keyListeners.forEach((listener) => listener());
}

/** Uses this key from now on. */
export function useKey(key) {
  fields.key.value = key;
  changed();
}

/** Fills the form from memory and keeps both together; `onKey` runs when the key changed. */
export function watchSettings(onKey) {
  const values = load("settings", {});
  for (const field of fields) {
    if (field.type === "checkbox") field.checked = field.name in values;
    else if (field.name in values) field.value = values[field.name];
  }
  knownKey = apiKey();
  showTemperature();
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", changed);
  form.addEventListener("reset", () => {
    const key = apiKey(); // who resets a temperature does not log out
    setTimeout(() => { fields.key.value = key; changed(); });
  });
  fields.key.addEventListener("change", onKey);
}

export const settingsAreValid = () => form.checkValidity();
export const showWhatIsInvalid = () => form.reportValidity();

/** The request without its model: what is left empty is left to the gateway. */
export function requestBody(history) {
  const system = fields.system.value.trim();
  const body = {
    messages: [...(system ? [{ role: "system", content: system }] : []), ...history],
    stream: true,
    stream_options: { include_usage: true },
    temperature: Number(fields.temperature.value),
  };
  for (const name of ["top_p", "top_k", "min_p", "seed", "max_tokens"]) {
    if (fields[name].value !== "") body[name] = Number(fields[name].value);
  }
  const escapes = { n: "\n", t: "\t", "\\": "\\" };
  const stop = fields.stop.value.split("\n").filter(Boolean);
  if (stop.length) body.stop = stop.map((text) => text.replace(/\\([nt\\])/g, (_, letter) => escapes[letter]));
  if (fields.json.checked) body.response_format = { type: "json_object" };
  return body;
}

/** Asks for an API key; true when one was given. `why` is the gateway's own message. */
export function askForKey(why) {
  const dialog = $("ask");
  if (dialog.open) return Promise.resolve(false);
  $("ask-why").textContent = why;
  $("ask-key").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    const given = dialog.returnValue === "ok";
    if (given) fields.key.value = $("ask-key").value;
    changed();
    resolve(given);
  }, { once: true }));
}
