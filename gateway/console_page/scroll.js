// Stays at the end of the conversation while it grows, unless the reader went up.

import { $ } from "./page.js";

const box = $("scroll");
let follow = true;
let lastTop = 0;
const distance = () => box.scrollHeight - box.scrollTop - box.clientHeight;

/** Call after the content changed. */
export function keepUp() {
  if (follow) box.scrollTop = box.scrollHeight;
  $("latest").hidden = follow || distance() < 80;
}

/** Goes to the end and stays there. */
export function toEnd() {
  follow = true;
  keepUp();
}

export function watchScrolling() {
  box.addEventListener("scroll", () => {
    if (distance() < 8) follow = true;
    else if (box.scrollTop < lastTop) follow = false;
    lastTop = box.scrollTop;
    $("latest").hidden = follow || distance() < 80;
  }, { passive: true });
  $("latest").onclick = toEnd;
  new ResizeObserver(keepUp).observe(box);
}
