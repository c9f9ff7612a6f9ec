// The page itself: composer, keyboard, panel and theme. Everything else is wired up here.

import { clear, send, stop, watchChat } from "./chat.js";
import { dashboard } from "./dashboard.js";
import { keys } from "./keys.js";
import { refresh, watchModels } from "./models.js";
import { $ } from "./page.js";
import { watchScrolling } from "./scroll.js";
import { settingsAreValid, showWhatIsInvalid, watchSettings } from "./settings.js";
import { isShown, watchViews } from "./views.js";

const wide = matchMedia("(min-width: 60rem)");
const panelIsOpen = () => document.body.classList.contains("panel");

function panel(open) {
  document.body.classList.toggle("panel", open);
  $("toggle").setAttribute("aria-expanded", open);
  for (const part of [$("main"), document.querySelector("header")]) part.inert = open && !wide.matches;
  if (open && !wide.matches) $("close").focus();
  else if (!open && document.activeElement === document.body) $("toggle").focus();
}

const root = document.documentElement;
const systemTheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

function setTheme(theme) {
  root.dataset.theme = theme && theme !== systemTheme() ? theme : ""; // empty follows the system
  localStorage.setItem("baton.theme", root.dataset.theme);
}

const toggleTheme = () => setTheme((root.dataset.theme || systemTheme()) === "dark" ? "light" : "dark");

function grow() {
  $("prompt").style.height = "auto";
  $("prompt").style.height = `${$("prompt").scrollHeight}px`;
}

function submit(text) {
  if (!settingsAreValid()) {
    panel(true);
    showWhatIsInvalid();
  } else if (send(text)) {
    $("prompt").value = "";
    grow();
  }
}

function onKey(event) {
  if (event.key === "Escape" && isShown("chat") && !document.querySelector("dialog[open]")) {
    if (panelIsOpen() && !wide.matches) panel(false);
    else stop();
  } else if (event.key === "Enter" && event.target === $("prompt") && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit($("prompt").value);
  }
}

document.addEventListener("keydown", onKey);
$("composer").addEventListener("submit", (event) => { event.preventDefault(); submit($("prompt").value); });
$("prompt").addEventListener("input", grow);
$("stop").onclick = stop;
$("clear").onclick = clear;
$("empty").addEventListener("click", (event) => submit(event.target.closest("[data-prompt]")?.dataset.prompt ?? ""));
$("theme").onclick = toggleTheme;
$("toggle").onclick = () => panel(!panelIsOpen());
$("close").onclick = $("shade").onclick = () => panel(false);
wide.onchange = () => panel(wide.matches);

setTheme(localStorage.getItem("baton.theme"));
watchScrolling();
watchSettings(refresh);
watchChat();
panel(wide.matches);
watchModels();
watchViews({ chat: { hide: () => panel(panelIsOpen() && wide.matches) }, dashboard, keys });
