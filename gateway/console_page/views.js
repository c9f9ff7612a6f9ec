// Which view is shown: the address says it after the #, so that it can be linked to, reloaded and gone back from.

import { $ } from "./page.js";

const TITLES = { chat: "Baton", dashboard: "Dashboard – Baton", keys: "Keys – Baton" };
const { body } = document;

const wanted = () => {
  const name = location.hash.replace(/^#\/?/, "");
  return Object.hasOwn(TITLES, name) ? name : "chat";
};

export const isShown = (name) => body.dataset.view === name;

/** Follows the address. `views` holds by name what to call when a view is shown (`show`) and when it is left (`hide`). */
export function watchViews(views) {
  let current = "";
  const follow = () => {
    const name = wanted();
    if (name === current) return;
    views[current]?.hide?.();
    current = body.dataset.view = name;
    document.title = TITLES[name];
    for (const main of document.querySelectorAll("main")) main.hidden = main.dataset.view !== name;
    for (const link of $("views").children) link.ariaCurrent = link.hash === `#/${name}` ? "page" : null;
    views[name]?.show?.();
  };
  addEventListener("hashchange", follow);
  follow();
}
