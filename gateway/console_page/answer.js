// One answer: streamed, measured and shown. Knows nothing of the conversation around it.

import { streamChat } from "./api.js";
import { renderMarkdown } from "./markdown.js";
import { element, speaker } from "./page.js";

/** Figures to show under an answer as [class, text, explanation]. Without the gateway's own count they are marked as about. */
function figures({ stats = {}, finish }) {
  const { rate, ttft, prompt, cached, completion, exact } = stats;
  const about = exact ? "" : "≈ ";
  return [
    finish === "stopped" && ["flag", "stopped", "You stopped this answer"],
    finish === "length" && ["flag", "cut short", "The answer reached max tokens or the end of the context"],
    rate && ["rate", `${about}${rate.toFixed(1)} tok/s`, "Speed after the first token"],
    ttft && ["ttft", `TTFT ${ttft < 1000 ? `${ttft.toFixed(0)} ms` : `${(ttft / 1000).toFixed(2)} s`}`, "Time to the first token"],
    prompt !== undefined && ["prompt", `${prompt} prompt`, "Prompt tokens"],
    cached !== undefined && ["cached", `${cached} cached`, "Prompt tokens that were in the cache"],
    completion && ["completion", `${about}${completion} out`, "Tokens of the answer"],
  ].filter(Boolean);
}

/** Makes the view show the message {content, finish?, error?, stats?}. */
export function paintAnswer(view, message) {
  const { content, error } = message;
  renderMarkdown(view.querySelector(".text"), content);
  view.querySelector(".stats").replaceChildren(...figures(message).map(([name, text, title]) => {
    return Object.assign(element("li", name, text), { title });
  }));
  view.querySelector("[data-act=copy]").hidden = !content;
  view.querySelector("footer").hidden = Boolean(error) && !content;
  const box = view.querySelector(".error");
  box.hidden = !error;
  if (!error) return;
  const [title, text, small] = box.children;
  title.textContent = error.status ? `Error ${error.status}` : content ? "The answer broke off" : "No answer";
  text.textContent = error.message;
  small.textContent = [error.code, error.requestId].filter(Boolean).join(" · ");
}

function measure({ sent, first, last, pieces }, usage) {
  const seconds = (last - first) / 1000;
  const completion = usage?.completion_tokens ?? pieces;
  return {
    exact: Boolean(usage),
    ttft: first && first - sent,
    rate: seconds > 0 && completion > 1 ? (completion - 1) / seconds : 0,
    completion,
    prompt: usage?.prompt_tokens,
    cached: usage?.prompt_tokens_details?.cached_tokens,
  };
}

/** Fills the message from the stream and calls `show` at most once a frame. Throws what ends the stream early. */
export async function streamInto(message, body, options, show) {
  const clock = { sent: performance.now(), first: 0, last: 0, pieces: 0 };
  const say = speaker();
  let frame = 0;
  const draw = () => { frame = 0; show(); say(message.content); };
  try {
    for await (const { choices, usage } of streamChat(body, options)) {
      const piece = choices?.[0]?.delta?.content;
      message.finish = choices?.[0]?.finish_reason ?? message.finish;
      if (piece) {
        clock.last = performance.now();
        clock.first ||= clock.last;
        clock.pieces += 1;
        message.content += piece;
      }
      message.stats = measure(clock, usage);
      frame ||= requestAnimationFrame(draw);
    }
  } finally {
    cancelAnimationFrame(frame);
    say(message.content, true);
  }
}
