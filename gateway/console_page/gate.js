// The notice that stands where a page for operators would be when the gateway refuses to fill it.

import { refresh } from "./models.js";
import { askForKey } from "./settings.js";

const TITLES = { 401: "An API key is needed", 403: "An admin key is needed", 404: "This gateway has no such page" };

export const isRefusal = ({ status }) => status in TITLES;

/** Shows an error in the gate of a page instead of its content; `again` is called when it may work now. */
export function shut(page, error, again) {
  const [title, text, button] = page.querySelector(".gate").children;
  const wantsKey = error.status === 401 || error.status === 403;
  title.textContent = TITLES[error.status] ?? (error.status ? `Error ${error.status}` : "The gateway cannot be reached");
  text.textContent = error.message;
  button.textContent = wantsKey ? "Enter an admin key" : "Try again";
  button.onclick = async () => {
    if (wantsKey && !await askForKey("Only admin keys open this page.")) return;
    if (wantsKey) refresh(); // a key may also see other models
    again();
  };
  page.querySelector(".gate").hidden = false;
  page.querySelector(".content").hidden = true;
}

export function open(page) {
  page.querySelector(".gate").hidden = true;
  page.querySelector(".content").hidden = false;
}
