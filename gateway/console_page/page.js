// What every part of the page uses: elements, the tab's memory, the clipboard, the toast, a question and the voice for screen readers.

export const $ = (id) => document.getElementById(id);

export function element(tag, className, ...children) {
  const node = document.createElement(tag);
  node.className = className;
  node.append(...children);
  return node;
}

/** Reads what `save` kept in this tab, or `fallback`. */
export function load(name, fallback) {
  try {
    return JSON.parse(sessionStorage.getItem(`baton.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function save(name, value) {
  try {
    sessionStorage.setItem(`baton.${name}`, JSON.stringify(value));
  } catch {
    toast("This conversation is too long to survive a reload.");
  }
}

let toastTimer = 0;
export const hideToast = () => { $("toast").hidden = true; };

/** Shows a line for a few seconds, with a way back if `undo` is given. */
export function toast(text, undo) {
  const [label, button] = $("toast").children;
  label.textContent = text;
  button.hidden = !undo;
  button.onclick = () => { undo(); hideToast(); };
  $("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(hideToast, 6000);
}

/** Asks a question that has one answer beside "Cancel"; true when that was chosen. */
export function confirmed({ title, text, yes, danger = false }) {
  const dialog = $("confirm");
  const button = $("confirm-yes");
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  button.textContent = yes;
  button.classList.toggle("danger", danger);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

/** Copies text and marks the button as done for a moment. */
export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // plain http from another machine has no clipboard API
    const area = element("textarea", "sr");
    area.value = text;
    button.after(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.dataset.done = "";
  speak("Copied");
  setTimeout(() => delete button.dataset.done, 1500);
}

function speak(text) {
  const node = element("p", "", text);
  $("spoken").append(node);
  setTimeout(() => node.remove(), 10_000);
}

/** Speaks a growing text sentence by sentence: a live region that changes with every token would stutter. */
export function speaker() {
  let spoken = 0;
  return (text, all) => {
    const end = all ? text.length : Math.max(...[". ", "! ", "? ", "\n"].map((mark) => text.lastIndexOf(mark))) + 1;
    if (end > spoken) speak(text.slice(spoken, end));
    spoken = Math.max(spoken, end);
  };
}
