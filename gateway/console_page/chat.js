// The conversation: its messages on the page and in the tab's memory, and the one answer that may be under way.

import { paintAnswer, streamInto } from "./answer.js";
import { ApiError } from "./api.js";
import { chosenModel, refresh } from "./models.js";
import { $, copy, hideToast, load, save, toast } from "./page.js";
import { keepUp, toEnd } from "./scroll.js";
import { apiKey, askForKey, requestBody } from "./settings.js";

const views = new WeakMap(); // message -> its article
let messages = []; // {role, content}; answers also {finish?, error?, stats?}
let run = null; // the AbortController of the answer that streams

const remember = () => save("messages", messages);
const copied = (message, button) => button.closest("figure")?.querySelector("code").textContent ?? message.content;

function add(message) {
  const view = $(message.role === "user" ? "t-user" : "t-answer").content.firstElementChild.cloneNode(true);
  views.set(message, view);
  view.addEventListener("click", (event) => {
    const button = event.target.closest("[data-act]");
    if (button?.dataset.act === "copy") copy(copied(message, button), button);
    else if (button && !run) again(message);
  });
  if (message.role === "user") view.querySelector(".text").textContent = message.content;
  else paintAnswer(view, message);
  $("log").append(view);
}

function show(list) {
  messages = list;
  $("log").replaceChildren();
  messages.forEach(add);
  $("empty").hidden = messages.length > 0;
  toEnd();
}

function again(message) {
  messages.splice(messages.indexOf(message), 1);
  views.get(message).remove();
  answer();
}

function busy(view, on) {
  view.classList.toggle("live", on);
  view.setAttribute("aria-busy", on);
  $("send").hidden = on;
  $("stop").hidden = !on;
  // The button that was pressed is gone now. On a phone, focus would open the keyboard over the answer.
  if (document.activeElement === document.body && !matchMedia("(pointer: coarse)").matches) $("prompt").focus();
}

async function answer() {
  const history = messages.filter(({ content }) => content).map(({ role, content }) => ({ role, content }));
  const body = { model: chosenModel(), ...requestBody(history) };
  const message = { role: "assistant", content: "" };
  messages.push(message);
  add(message);
  const view = views.get(message);
  const { signal } = (run = new AbortController());
  const paint = () => { paintAnswer(view, message); keepUp(); };
  busy(view, true);
  toEnd();
  try {
    await streamInto(message, body, { key: apiKey(), signal }, paint);
  } catch (error) {
    if (signal.aborted) message.finish = "stopped";
    else if (!(error instanceof ApiError)) throw error;
    else message.error = { message: error.message, status: error.status, code: error.code, requestId: error.requestId };
  } finally {
    run = null;
    busy(view, false);
    paint();
    remember();
  }
  if (message.error?.status !== 401 || !await askForKey(message.error.message)) return;
  await refresh(); // without a key there was no model to choose
  if (!run && views.get(message).isConnected) again(message);
}

/** Sends a message, unless it is empty or an answer is under way; true when it was sent. */
export function send(text) {
  if (run || !text.trim()) return false;
  const message = { role: "user", content: text.trim() };
  messages.push(message);
  $("empty").hidden = true;
  hideToast(); // what was cleared stays cleared now
  add(message);
  remember();
  answer();
  return true;
}

/** Ends the answer under way; what has arrived stays. */
export const stop = () => run?.abort();

/** Starts anew. The old conversation can be had back for a few seconds. */
export function clear() {
  stop();
  const old = messages;
  show([]);
  remember();
  $("prompt").focus();
  if (old.length) toast("Conversation cleared.", () => { show(old); remember(); });
}

export function watchChat() {
  show(load("messages", []));
  addEventListener("pagehide", remember);
}
