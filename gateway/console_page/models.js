// Which models are served and how they are: the picker, and a list that is asked for again every few seconds.

import { getJson } from "./api.js";
import { $, element, load, save } from "./page.js";
import { apiKey, askForKey } from "./settings.js";

const PERIOD_MS = 3000;
const picker = $("model");
let served = new Map(); // name -> its entry in /v1/models
let states = {}; // name -> {state, running, waiting, slots, detail} from /health/ready
let asked = false; // a dialog that was cancelled does not come back by itself
let drawn = "";
let timer = 0;

async function list() {
  try {
    const { data } = await getJson("v1/models", { key: apiKey() });
    served = new Map(data.map((model) => [model.id, model]));
  } catch (error) {
    if (error.status !== 401 || asked) throw error;
    asked = !await askForKey(error.message);
    if (asked) throw error;
    return list();
  }
  const wanted = picker.value || load("model", "");
  const chat = [...served.values()].filter(({ meta }) => meta?.capabilities?.includes("chat") ?? true);
  const options = chat.map(({ id }) => new Option(id, id, false, id === wanted));
  picker.replaceChildren(...(options.length ? options : [new Option("no model", "")]));
}

function row(name) {
  const { state = "unknown", running = 0, waiting = 0, slots = 0, detail = "" } = states[name] ?? {};
  const { max_model_len: context, meta } = served.get(name) ?? {};
  const use = slots ? `${running} of ${slots} slots` : `${running} running`;
  const text = [state, state === "ready" && use, waiting > 0 && `${waiting} waiting`, detail].filter(Boolean).join(" · ");
  const facts = [context && `${context.toLocaleString("en")} tokens of context`, meta?.quantization].filter(Boolean).join(" · ");
  const item = element("li", name === picker.value ? "chosen" : "");
  item.append(element("span", `dot ${state}`), element("b", "", name), element("small", "", text));
  const pips = Array.from({ length: slots <= 16 ? slots : 0 }, (_, i) => element("i", i < running ? "on" : ""));
  if (facts) item.append(element("small", "", facts));
  if (pips.length) item.append(element("span", "pips", ...pips));
  return item;
}

function draw() {
  const chosen = picker.value;
  const names = [...new Set([...served.keys(), ...Object.keys(states)])];
  const news = JSON.stringify([names, states, chosen]);
  if (news === drawn) return;
  drawn = news;
  $("models").replaceChildren(...names.map(row));
  const state = states[chosen]?.state ?? "unknown";
  $("model-dot").className = `dot ${state}`;
  picker.title = chosen && `${chosen}: ${state}`;
  $("prompt").placeholder = chosen ? `Message ${chosen}` : "Message";
}

async function update() {
  let trouble = "";
  try {
    const { status, models = {} } = await getJson("health/ready", { key: apiKey(), accept: [503] });
    states = models;
    if (status === "draining") trouble = "The gateway is shutting down.";
    if (!served.size || Object.keys(states).some((name) => !served.has(name))) await list();
    if (!served.size) trouble = "No model is served yet.";
  } catch (error) {
    if (!error.status) states = {};
    trouble = error.message;
  }
  $("health").textContent = trouble;
  draw();
}

async function tick() {
  if (document.hidden) return;
  await update();
  clearTimeout(timer);
  timer = setTimeout(tick, PERIOD_MS);
}

/** Asks again now, the list of models included; resolves when the answers are shown. */
export function refresh() {
  served = new Map();
  asked = false;
  return tick();
}

export const chosenModel = () => picker.value;

export function watchModels() {
  picker.onchange = () => { save("model", picker.value); draw(); };
  document.addEventListener("visibilitychange", tick);
  tick();
}
